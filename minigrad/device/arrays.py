"""Arrays on a device: made, moved, laid out and combined element by element."""

import functools

import numpy as np

from minigrad_kernels import layout
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST, c_order, strides_of

from . import memory
from .types import default_dtype, is_floating, result_dtype

__all__ = [
    "accumulate",
    "array_module",
    "asarray",
    "broadcast_shapes",
    "can_hold_a_sum",
    "cast",
    "contiguous",
    "copy",
    "device_of",
    "element_type",
    "from_dlpack",
    "elementwise",
    "empty",
    "empty_like",
    "full",
    "host",
    "is_array",
    "is_device",
    "move",
    "order_of",
    "reduce",
    "select",
    "workspace",
    "zeros",
]

_NUMBERS = (int, float)
_SCALARS = (bool, *_NUMBERS)
_quiet = np.errstate(all="ignore")  # infinities and NaN are results, not warnings


def is_array(value):
    """Whether value is an array of some device."""
    return isinstance(value, np.ndarray)


def array_module(array):
    """The module whose functions work on this array."""
    return np


def device_of(array):
    """The name of the device that holds the array."""
    return "cpu"


def host(array):
    """The elements as a NumPy array: on the CPU the array itself."""
    return array


def is_device(name):
    """Whether a string is the name of a device, be it here or not."""
    return isinstance(name, str) and name.split(":")[0] in ("cpu", "cuda", "interpreter")


def move(array, device):
    """The array on a device, itself if it is there already."""
    if not isinstance(device, str) or device != "cpu":
        raise StateError(f"to: device is {device!r}, but the devices of this machine are: 'cpu'")
    return array


@_quiet
def asarray(value, dtype=None):
    """An array of a supported element type in this machine's byte order; arrays are taken as they are.

    Python floats become the default type (float32), integers int64, as in PyTorch. NumPy's own scalars keep theirs.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise KindError("Tensor: data is a ragged list, wanted rows of one length") from error
    if dtype is None and not hasattr(value, "dtype") and array.dtype == np.float64:
        dtype = default_dtype
    return array.astype(
        element_type(array.dtype).newbyteorder("=") if dtype is None else element_type(dtype), copy=False
    )


def from_dlpack(source):
    """An array on the memory of an array of another library."""
    try:
        return np.from_dlpack(source)
    except (AttributeError, TypeError, BufferError) as error:
        raise KindError(f"from_dlpack: source is a {type(source).__name__}, wanted an array on the CPU") from error


def element_type(dtype):
    """A supported element type, by its NumPy type or its name."""
    try:
        dtype = np.dtype("None" if dtype is None else dtype)  # NumPy takes None for float64
    except TypeError as error:
        raise KindError(f"dtype: got {dtype!r}, wanted an element type such as 'float32'") from error
    if dtype.kind not in "buif" or dtype == np.longdouble:
        raise KindError(f"Tensor: element type is {dtype}, wanted bool, integer or floating numbers")
    return dtype


def empty(shape, dtype=default_dtype, order=None):
    """An uninitialised array whose axes lie in memory in this order, slowest first (C order when None)."""
    dtype = np.dtype(dtype)
    return memory.take(shape, dtype, strides_of(shape, order or c_order(len(shape)), dtype.itemsize))


@_quiet
def full(shape, value, dtype=default_dtype, order=None):
    """An array of one value.

    Errors  ValueError if the element type cannot hold it
    """
    array = empty(shape, dtype, order)
    try:
        array.fill(value)
    except (OverflowError, ValueError) as error:
        raise ShapeError(f"full: value is {value}, which does not fit in {array.dtype}") from error
    return array


def zeros(shape, dtype=default_dtype, order=None):
    return full(shape, 0, dtype, order)


def empty_like(array, dtype=None):
    """An uninitialised array of the same shape, its axes in the same order in memory."""
    return empty(array.shape, dtype or array.dtype, order_of(array))


def workspace(nbytes):
    """Scratch bytes for a kernel."""
    return memory.take((nbytes,), np.uint8, (1,))


def order_of(array):
    """The order of the axes in memory, slowest first: the array's own if it is dense, else that of its strides."""
    if array.flags.c_contiguous:
        return c_order(array.ndim)
    if array.ndim == 4 and layout.is_dense(array, CHANNELS_LAST):
        return CHANNELS_LAST
    return tuple(sorted(range(array.ndim), key=lambda axis: (-abs(array.strides[axis]), axis)))


def can_hold_a_sum(array):
    """Whether the elements fill memory of their own, without gaps or repeats, that may be written."""
    return array.flags.writeable and (array.flags.forc or layout.is_dense(array, order_of(array)))


def copy(array, order=None):
    """A copy whose axes lie in this order (C order when None)."""
    out = empty(array.shape, array.dtype, order)
    np.copyto(out, array)
    return out


@_quiet
def cast(array, dtype):
    """The numbers in another element type, the axes in the same order in memory."""
    out = empty_like(array, element_type(dtype))
    np.copyto(out, array, casting="unsafe")
    return out


def contiguous(array, order=None):
    """The array itself if it is dense in this order (C order when None), else such a copy."""
    return array if layout.is_dense(array, order or c_order(array.ndim)) else copy(array, order)


def elementwise(op, *values, out=None, named=None):
    """The ufunc behind an op, on arrays and Python scalars, under PyTorch's type rules and in pooled memory.

    named   the op to name in errors, if it is another one
    Errors  ValueError if shapes do not broadcast or a number does not fit in the type of the arrays, TypeError if a
            value is neither array nor number, or if the op is not defined for its type
    """
    ufunc = getattr(np, _UFUNCS.get(op, op))
    first = values[0]
    alike = is_array(first) and is_floating(first.dtype)
    if not alike or any(type(value) not in _NUMBERS and getattr(value, "dtype", 0) != first.dtype for value in values):
        values = _converted(op, values, named or op)
    largest = max(values, key=lambda value: getattr(value, "nbytes", 0))
    if out is None and getattr(largest, "nbytes", 0) >= memory.SMALLEST:
        shape = broadcast_shapes(named or op, *filter(is_array, values))
        order = order_of(largest) if largest.shape == shape else None
        out = empty(shape, bool if _of_integers(op) == "b" else largest.dtype, order)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(*values, out=out))
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


@_quiet
def _converted(op, values, named):
    """The values as arrays in the one type that PyTorch's rules give them."""
    for value in values:
        if not isinstance(value, np.ndarray | np.generic) and type(value) not in _SCALARS:
            raise KindError(f"{named}: got a {type(value).__name__}, wanted Tensors, arrays or Python numbers")
    dtype = result_dtype(*values, op=named)
    kinds = {np.dtype(getattr(value, "dtype", type(value))).kind for value in values}
    if op in _UNLIKE_BOOLS and (kinds == {"b"} or op == "sub" and "b" in kinds):
        raise KindError(f"{named}: not defined for elements bool; convert with .to('float32'), or see logical_not")
    if _of_integers(op) == "f" and not is_floating(dtype):
        dtype = default_dtype
    try:
        arrays = tuple(np.asarray(value, dtype) for value in values)
    except OverflowError as error:
        if _of_integers(op) == "b" and dtype.kind in "iu":
            return values  # NumPy compares integers with a Python integer of any size
        raise ShapeError(f"{named}: a number does not fit in {dtype}, the type of the arrays ({error})") from error
    if op in _DIVISIONS and not is_floating(dtype) and not arrays[1].all():
        raise ShapeError(f"{named}: other has a 0, by which integers cannot be divided")
    return arrays


@_quiet
def reduce(array, method, axes, **options):
    """What a method of arrays (sum, max, all, cumsum, ...) gives along axes, without warnings."""
    return np.asarray(getattr(array, method)(axis=axes, **options))


@_quiet
def select(condition, x, y):
    """x where the condition holds, else y, under the type rules of elementwise."""
    if not is_array(condition) or condition.dtype != bool:
        raise KindError(f"where: condition has elements {getattr(condition, 'dtype', type(condition))}, wanted bool")
    x, y = _converted("maximum", (x, y), "where")  # whose types meet in the same way
    shape = broadcast_shapes("where", condition, x, y)
    order = next((order_of(value) for value in (x, y, condition) if value.shape == shape), None)
    out = empty(shape, x.dtype, order)
    # On bits, out = y xor ((x xor y) times condition): no branch that a processor could guess wrong.
    bits = np.dtype(f"u{x.itemsize}")
    x_bits, y_bits, out_bits = x.view(bits), y.view(bits), out.view(bits)
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


@_quiet
def accumulate(total, value):
    """Add value into total, an array that nobody else reads."""
    np.add(total, value, out=total)
