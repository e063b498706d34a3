"""Element types: the default, and what mixed types become.

The rules are PyTorch's. There are three categories, bool < integer < floating. A Python scalar, and next an array
without dimensions, takes part only with its category; the type itself comes from the arrays with dimensions. An
integer that meets a floating type takes the floating type, and one that enters a function with fractional results
takes the default type. bfloat16, float32 without its last 16 bits, is the type of the package ml_dtypes.
"""

import builtins
import functools

import ml_dtypes
import numpy as np

from minigrad_kernels.errors import KindError

__all__ = ["default_dtype", "is_floating", "is_half", "promote", "result_dtype", "sum_dtype"]

bool, uint8 = np.dtype("bool"), np.dtype("uint8")
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
long = int64
default_dtype = float32
SCALARS = {builtins.bool: bool, int: int64, float: default_dtype}  # the types of Python's


def is_floating(dtype):
    """Whether gradients can flow through this element type."""
    return dtype.kind == "f" or dtype == bfloat16


def is_half(dtype):
    """Whether this is a floating type of 16 bits."""
    return dtype.itemsize == 2 and is_floating(dtype)


def sum_dtype(array):
    """The type of sums, statistics and parameters in kernels beside an array: float32 for elements of 16 bits."""
    return float32 if array.itemsize == 2 else array.dtype


def _category(dtype):
    """0 bool, 1 integer, 2 floating; None for other types."""
    return 2 if is_floating(dtype) else {"b": 0, "u": 1, "i": 1}.get(dtype.kind)


@functools.cache
def promote(first, second, op="promote"):
    """The smallest type that holds both: any integer with float32 is float32, float16 with bfloat16 is float32.

    Errors  TypeError for uint64 with a signed integer, which no integer type holds
    """
    low, high = sorted((first, second), key=_category)
    if not is_floating(low) and is_floating(high):
        return high
    if {first, second} == {float16, bfloat16}:  # which NumPy does not promote
        return float32
    both = np.promote_types(first, second)
    if is_floating(both) and not is_floating(high):
        raise KindError(f"{op}: no integer type holds both {first} and {second}; convert one of them")
    return both


def result_dtype(*values, op="result_dtype"):
    """The type of an operation, named for errors, on arrays and Python scalars.

    Errors  TypeError for complex and other unsupported element types, and as promote
    """
    ranks = {}  # 2 arrays with dimensions, 1 arrays without, 0 Python scalars: the dtype each group agrees on
    for value in values:
        scalar = SCALARS.get(type(value))
        rank, dtype = (1 + (value.ndim > 0), value.dtype) if scalar is None else (0, scalar)
        if _category(dtype) is None:
            raise KindError(f"{op}: got elements {dtype}, wanted bool, integer or floating ones")
        ranks[rank] = promote(ranks[rank], dtype, op) if rank in ranks else dtype
    result = None
    for rank in sorted(ranks, reverse=True):
        dtype = ranks[rank]
        if result is None or _category(dtype) > _category(result):
            result = dtype if result is None else promote(result, dtype, op)
    return result
