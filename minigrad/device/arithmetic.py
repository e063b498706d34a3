"""Arrays combined element by element under PyTorch's type rules, and reduced along axes."""

import functools
import math

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import c_order

from . import memory
from .arrays import array_module, cast, empty, full, order_of
from .places import CPU, is_array, place_of
from .types import default_dtype, is_floating, is_half, result_dtype

__all__ = ["accumulate", "broadcast_shapes", "elementwise", "reduce", "select"]

_NUMBERS = (int, float)
_SCALARS = (bool, *_NUMBERS)
_SINGLE = np.dtype(np.float32)
_quiet = np.errstate(all="ignore")  # infinities and NaN are results, not warnings


def elementwise(op, *values, out=None, named=None):
    """The ufunc behind an op, on arrays and Python scalars, under PyTorch's type rules and in pooled memory.

    named   the op to name in errors, if it is another one
    Errors  ValueError if shapes do not broadcast or a number does not fit in the type of the arrays, TypeError if a
            value is neither array nor number, or if the op is not defined for its type
    """
    first = values[0]
    alike = is_array(first) and is_floating(first.dtype)
    if (
        not alike
        or any(type(value) not in _NUMBERS and getattr(value, "dtype", 0) != first.dtype for value in values)
        or first.itemsize == 2
    ):
        dtype = _of_half(op, values)
        if dtype is not None:
            return _rounded(op, values, dtype, out, named)
        values = _converted(op, values, named or op)
    largest = max(values, key=lambda value: getattr(value, "nbytes", -1))
    there = _place_of(values)
    if out is None and (there is not CPU or getattr(largest, "nbytes", 0) >= memory.SMALLEST):
        shape = broadcast_shapes(named or op, *filter(is_array, values))
        order = order_of(largest) if largest.shape == shape else None
        out = empty(shape, bool if _of_integers(op) == "b" else largest.dtype, order, there)
    values = values if there is CPU else _beside(values)
    ufunc = getattr(there.module, _UFUNCS.get(op, op))
    try:
        with np.errstate(all="ignore"):
            result = ufunc(*values, out=out)
        return np.asarray(result) if there is CPU else result
    except (ValueError, TypeError) as error:
        broadcast_shapes(named or op, *filter(is_array, values))
        kind = getattr(largest, "dtype", int)
        raise KindError(f"{named or op}: not defined for elements {kind} ({error})") from error
    except OverflowError as error:
        raise ShapeError(f"{named or op}: a number does not fit in {largest.dtype} ({error})") from error


# Ops whose ufunc has another name, ops that refuse an integer 0, and ops that refuse bools.
_UFUNCS = {"sub": "subtract", "mul": "multiply", "div": "true_divide", "neg": "negative", "pow": "power"}
_UFUNCS |= {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_DIVISIONS = frozenset(("floor_divide", "remainder"))
_UNLIKE_BOOLS = frozenset("abs neg pow sub".split()) | _DIVISIONS


@functools.cache
def _of_integers(op):
    """The kind of the results of integers, as the ufunc declares it: "b" bool, "f" fractions, else "i"."""
    ufunc = getattr(np, _UFUNCS.get(op, op))
    loops = dict(loop.split("->") for loop in ufunc.types)
    return {"?": "b", "d": "f"}.get(loops.get("l" * ufunc.nin, "d"), "i")


def _of_half(op, values):
    """The type of a result of 16 bits in which numbers of Python take part; None for any other."""
    if not any(type(value) in _SCALARS for value in values) or _of_integers(op) == "b":
        return None
    if not any(is_array(value) and is_half(value.dtype) for value in values):
        return None
    dtype = result_dtype(*values, op=op)
    return dtype if is_half(dtype) else None


def _rounded(op, values, dtype, out, named):
    """elementwise in float32, so that the numbers are not rounded before the result is."""
    wide = [cast(value, _SINGLE) if is_array(value) else value for value in values]
    result = elementwise(op, *wide, named=named)
    if out is None:
        return cast(result, dtype)
    out[...] = result
    return out


@_quiet
def _converted(op, values, named):
    """The values as arrays in the one type that PyTorch's rules give them."""
    for value in values:
        if not is_array(value) and not isinstance(value, np.generic) and type(value) not in _SCALARS:
            raise KindError(f"{named}: got a {type(value).__name__}, wanted Tensors, arrays or Python numbers")
    dtype = result_dtype(*values, op=named)
    kinds = {np.dtype(getattr(value, "dtype", type(value))).kind for value in values}
    if op in _UNLIKE_BOOLS and (kinds == {"b"} or op == "sub" and "b" in kinds):
        raise KindError(f"{named}: not defined for elements bool; convert with .to('float32'), or see logical_not")
    if _of_integers(op) == "f" and not is_floating(dtype):
        dtype = default_dtype
    try:
        arrays = tuple(_typed(value, dtype) for value in values)
    except OverflowError as error:
        if _of_integers(op) == "b" and dtype.kind in "iu":
            return values  # NumPy compares integers with a Python integer of any size
        raise ShapeError(f"{named}: a number does not fit in {dtype}, the type of the arrays ({error})") from error
    if op in _DIVISIONS and not is_floating(dtype) and not arrays[1].all():
        raise ShapeError(f"{named}: other has a 0, by which integers cannot be divided")
    return arrays


def _typed(value, dtype):
    """An array of its device, a number as one of the CPU, in an element type."""
    if type(value) is np.ndarray or not is_array(value):
        return np.asarray(value, dtype)
    return value.astype(dtype, copy=False)


def _place_of(values):
    """The place of arrays among which may be numbers, and arrays of the CPU that were numbers."""
    for value in values:
        if type(value) is not np.ndarray and is_array(value):
            return place_of(value)
    return CPU


def _beside(values):
    """The values with numbers, arrays of the CPU without dimensions, as the scalars that other devices take."""
    return [value[()] if type(value) is np.ndarray else value for value in values]


@_quiet
def select(condition, x, y):
    """x where the condition holds, else y, under the type rules of elementwise."""
    if not is_array(condition) or condition.dtype != bool:
        raise KindError(f"where: condition has elements {getattr(condition, 'dtype', type(condition))}, wanted bool")
    x, y = _converted("maximum", (x, y), "where")  # whose types meet in the same way
    shape = broadcast_shapes("where", condition, x, y)
    there = _place_of((condition, x, y))
    order = next((order_of(value) for value in (x, y, condition) if value.shape == shape), None)
    if there is not CPU:
        return _select_there(there.module, (condition, *_beside((x, y))), shape, order or c_order(len(shape)))
    out = empty(shape, x.dtype, order)
    # On bits, out = y xor ((x xor y) times condition): no branch that a processor could guess wrong.
    bits = np.dtype(f"u{x.itemsize}")
    x_bits, y_bits, out_bits = x.view(bits), y.view(bits), out.view(bits)
    np.bitwise_xor(x_bits, y_bits, out=out_bits)
    np.multiply(out_bits, condition.view(np.uint8), out=out_bits)
    np.bitwise_xor(out_bits, y_bits, out=out_bits)
    return out


def _select_there(module, values, shape, order):
    """where of another device, which gives C order: so it is given axes in the order in which they are to lie."""
    if order != c_order(len(shape)):
        values = [module.broadcast_to(x, shape).transpose(order) if x.shape else x for x in values]
        return module.where(*values).transpose(np.argsort(order).tolist())
    return module.where(*values)


def broadcast_shapes(op, *arrays):
    """The common shape, or a ValueError that names the op."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise ShapeError(f"{op}: shapes {shapes} do not broadcast") from error


@_quiet
def accumulate(total, value):
    """Add value, an array of the same device or a number, into total, an array that nobody else reads.

    Errors  RuntimeError for an array of another device
    """
    if type(total) is np.ndarray and type(value) is np.ndarray:
        np.add(total, value, out=total)
        return
    there = place_of(total)
    if is_array(value) and place_of(value) is not there:
        raise StateError(
            f"backward: a gradient on {place_of(value).name} cannot be added to .grad on {there.name}; "
            "move a Tensor by .to(), or set its .grad to None where .data became an array of another device"
        )
    with there.active(values=(total, value)):
        there.module.add(total, value, out=total)


# ---- reductions ------------------------------------------------------------------------------------------------------

MANY = 1 << 12  # elements: as many added one by one in float32 lose digits that show


@_quiet
def reduce(array, method, axes, **options):
    """What a method of arrays (sum, max, all, cumsum, ...) gives along axes, without warnings."""
    if method == "sum" and array.dtype == _SINGLE and options.keys() <= {"keepdims"}:
        if array.size >= MANY and _added_one_by_one(array, axes) >= MANY:
            return cast(reduce(array, "sum", axes, dtype="float64", **options), _SINGLE)
    if type(array) is np.ndarray:
        return np.asarray(getattr(array, method)(axis=axes, **options))
    initial = options.pop("initial", None)  # which CuPy's methods do not know
    if initial is not None and not array.size:
        shape = getattr(np.empty(array.shape), method)(axis=axes, initial=initial, **options).shape
        return full(shape, initial, array.dtype, like=array)
    return array_module(array).asarray(getattr(array, method)(axis=axes, **options))


def _added_one_by_one(x, axes):
    """How many partial sums follow each other: NumPy adds in pairs along the innermost axes in memory alone."""
    count = math.prod([x.shape[axis] for axis in axes])
    for axis in reversed(order_of(x)):
        if axis not in axes:
            return count
        count //= x.shape[axis]
    return 0
