"""Element types: the default, and what mixed types become.

The rules are PyTorch's. There are three categories, bool < integer < floating. A Python scalar, and next an array
without dimensions, takes part only with its category; the type itself comes from the arrays with dimensions. An
integer that meets a floating type takes the floating type, and one that enters a function with fractional results
takes the default type.
"""

import builtins
import functools

import numpy as np

from minigrad_kernels.errors import KindError

__all__ = ["default_dtype", "is_floating", "promote", "result_dtype"]

bool, uint8 = np.dtype("bool"), np.dtype("uint8")
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
long = int64
default_dtype = float32
_CATEGORIES = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2}  # bfloat16 registers with kind V
_PYTHON = {builtins.bool: 0, int: 1, float: 2}


def is_floating(dtype):
    """Whether gradients can flow through this element type."""
    kind = dtype.kind
    return kind == "f" or _CATEGORIES.get(kind) == 2


@functools.cache
def promote(first, second):
    """The smallest type that holds both: float32 with float64 is float64, any integer with float32 is float32.

    Errors  TypeError for uint64 with a signed integer, which no integer type holds
    """
    low, high = sorted((first, second), key=lambda dtype: _CATEGORIES[dtype.kind])
    if _CATEGORIES[low.kind] < 2 and is_floating(high):
        return high
    both = np.promote_types(first, second)
    if is_floating(both) and not is_floating(high):
        raise KindError(f"promote: no integer type holds both {first} and {second}; convert one of them")
    return both


def result_dtype(*values, op="result_dtype"):
    """The type of an operation, named for errors, on arrays and Python scalars.

    Errors  TypeError for complex and other unsupported element types, and as promote
    """
    try:
        return _result_dtype(values)
    except KindError as error:
        raise KindError(f"{op}: {str(error).partition(': ')[2]}") from None


def _result_dtype(values):
    ranks = {}  # 2 arrays with dimensions, 1 arrays without, 0 Python scalars: the dtype each group agrees on
    for value in values:
        if type(value) in _PYTHON:
            rank, dtype = 0, (bool, int64, default_dtype)[_PYTHON[type(value)]]
        else:
            rank, dtype = 1 + (value.ndim > 0), value.dtype
            if dtype.kind not in _CATEGORIES:
                raise KindError(f"dtype: got elements {dtype}, wanted bool, integer or floating ones")
        ranks[rank] = promote(ranks[rank], dtype) if rank in ranks else dtype
    result = None
    for rank in sorted(ranks, reverse=True):
        dtype = ranks[rank]
        if result is None or _CATEGORIES[dtype.kind] > _CATEGORIES[result.kind]:
            result = dtype if result is None else promote(result, dtype)
    return result
