"""Arrays combined element by element under PyTorch's type rules."""

import functools
import math

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import c_order, in_memory_order

from . import memory
from .arrays import SCALARS, cast, default_dtype, empty, float32, is_floating, is_half, order_of, quiet, result_dtype
from .places import CPU, is_array, place_of

__all__ = ["broadcast_shapes", "elementwise", "select"]

_NUMBERS = (int, float)


def elementwise(op, *values, out=None, named=None):
    """The ufunc behind an op, on arrays and Python scalars, under PyTorch's type rules and in pooled memory.

    named   the op to name in errors, if it is another one
    Errors  ValueError if shapes do not broadcast or a number does not fit in the type of the arrays, TypeError if a
            value is neither array nor number, or if the op is not defined for its type
    """
    first = values[0]
    if (
        not (is_array(first) and is_floating(first.dtype))
        or any(type(value) not in _NUMBERS and getattr(value, "dtype", 0) != first.dtype for value in values)
        or first.itemsize == 2
    ):
        values, rounded = _converted(op, values, named or op)
        if rounded is not None:
            result = elementwise(op, *values, named=named)
            if out is None:
                return cast(result, rounded)
            out[...] = result
            return out
    largest = max(values, key=lambda value: getattr(value, "nbytes", -1))
    there = _place_of(values)
    if out is None and (there is not CPU or getattr(largest, "nbytes", 0) >= memory.SMALLEST):
        shape = broadcast_shapes(named or op, *filter(is_array, values))
        order = order_of(largest) if largest.shape == shape else None
        out = empty(shape, bool if _of_integers(op) == "b" else largest.dtype, order, there)
    ufunc = getattr(there.module, _UFUNCS.get(op, op))
    try:
        with np.errstate(all="ignore"):  # the interpreter's arrays are NumPy's, too
            if there is not CPU:
                _in_memory_order(there.module, ufunc, out, values)
                return out
            if op in _LIMITS and type(values[1]) in _NUMBERS and out is not None:
                return np.clip(
                    values[0], *_LIMITS[op](values[1]), out=out
                )  # with a number a quarter of the ufunc's time
            return np.asarray(ufunc(*values, out=out))
    except (ValueError, TypeError) as error:
        broadcast_shapes(named or op, *filter(is_array, values))
        kind = getattr(largest, "dtype", int)
        raise KindError(f"{named or op}: not defined for elements {kind} ({error})") from error
    except OverflowError as error:
        raise ShapeError(f"{named or op}: a number does not fit in {largest.dtype} ({error})") from error


def _in_memory_order(module, ufunc, out, values):
    """Call a ufunc of CuPy on views whose axes stand as those of `out` lie in memory."""
    whole = [module.broadcast_to(x, out.shape) if is_array(x) and x.ndim else x for x in values]
    arrays = [x for x in whole if is_array(x) and x.ndim]
    out, *turned = in_memory_order(out, *arrays)
    turned = iter(turned)
    ufunc(*(next(turned) if is_array(x) and x.ndim else x for x in whole), out=out)


# Ops whose ufunc has another name, ops that refuse an integer 0, and ops that refuse bools.
_UFUNCS = {"sub": "subtract", "mul": "multiply", "div": "true_divide", "neg": "negative", "pow": "power"}
_UFUNCS |= {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_DIVISIONS = frozenset(("floor_divide", "remainder"))
_UNLIKE_BOOLS = frozenset("abs neg pow sub".split()) | _DIVISIONS
_LIMITS = {"maximum": lambda low: (low, math.inf), "minimum": lambda high: (-math.inf, high)}  # as clip takes them


@functools.cache
def _of_integers(op):
    """The kind of the results of integers, as the ufunc declares it: "b" bool, "f" fractions, else "i"."""
    ufunc = getattr(np, _UFUNCS.get(op, op))
    loops = dict(loop.split("->") for loop in ufunc.types)
    return {"?": "b", "d": "f"}.get(loops.get("l" * ufunc.nin, "d"), "i")


@quiet
def _converted(op, values, named, rounds=True):
    """(the values as arrays in the one type that PyTorch's rules give them, the type to round the result to or None).

    rounds  where numbers of Python meet arrays of 16 bits, have the op done in float32, and only its result rounded
    """
    for value in values:
        if not is_array(value) and not isinstance(value, np.generic) and type(value) not in SCALARS:
            raise KindError(f"{named}: got a {type(value).__name__}, wanted Tensors, arrays or Python numbers")
    dtype = result_dtype(*values, op=named)
    if rounds and is_half(dtype) and _of_integers(op) != "b" and any(type(value) in SCALARS for value in values):
        return [cast(value, float32) if is_array(value) else value for value in values], dtype
    kinds = {np.dtype(getattr(value, "dtype", type(value))).kind for value in values}
    if op in _UNLIKE_BOOLS and (kinds == {"b"} or op == "sub" and "b" in kinds):
        raise KindError(f"{named}: not defined for elements bool; convert with .to('float32'), or see logical_not")
    if _of_integers(op) == "f" and not is_floating(dtype):
        dtype = default_dtype
    typed = lambda value: value.astype(dtype, copy=False) if is_array(value) else np.asarray(value, dtype)[()]
    try:
        arrays = [*map(typed, values)]
    except OverflowError as error:
        if _of_integers(op) == "b" and dtype.kind in "iu":
            return values, None  # NumPy compares integers with a Python integer of any size
        raise ShapeError(f"{named}: a number does not fit in {dtype}, the type of the arrays ({error})") from error
    if op in _DIVISIONS and not is_floating(dtype) and not arrays[1].all():
        raise ShapeError(f"{named}: other has a 0, by which integers cannot be divided")
    return arrays, None


def _place_of(values):
    """The place of arrays among which may be numbers."""
    return next((place_of(value) for value in values if type(value) is not np.ndarray and is_array(value)), CPU)


@quiet
def select(condition, x, y):
    """x where the condition holds, else y, under the type rules of elementwise."""
    if not is_array(condition) or condition.dtype != bool:
        raise KindError(f"where: condition has elements {getattr(condition, 'dtype', type(condition))}, wanted bool")
    (x, y), _ = _converted("maximum", (x, y), "where", rounds=False)  # whose types meet in the same way
    shape = broadcast_shapes("where", condition, x, y)
    there = _place_of((condition, x, y))
    order = next((order_of(value) for value in (x, y, condition) if value.shape == shape), c_order(len(shape)))
    if there is not CPU:  # whose results have C order: so its axes are the ones in memory
        turn = lambda x: there.module.broadcast_to(x, shape).transpose(order) if x.shape else x
        return there.module.where(*map(turn, (condition, x, y))).transpose(np.argsort(order).tolist())
    out = empty(shape, x.dtype, order)
    # On bits, out = y xor ((x xor y) times condition): no branch that a processor could guess wrong.
    bits = np.dtype(f"u{x.itemsize}")
    x_bits, y_bits, out_bits = x.view(bits), y.view(bits), out.view(bits)
    if not y_bits.ndim and not y_bits:  # x where the condition holds, else 0: as in most gradients
        np.multiply(x_bits, condition.view(np.uint8), out=out_bits)
        return out
    np.bitwise_xor(x_bits, y_bits, out=out_bits)
    np.multiply(out_bits, condition.view(np.uint8), out=out_bits)
    np.bitwise_xor(out_bits, y_bits, out=out_bits)
    return out


def broadcast_shapes(op, *arrays):
    """The common shape, or a ValueError that names the op."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise ShapeError(f"{op}: shapes {shapes} do not broadcast") from error
