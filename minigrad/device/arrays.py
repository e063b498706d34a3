"""Element types, and arrays on a device: made, moved, laid out and added up.

Functions that make an array take `like`, an array on whose device the new one is to lie, or its place; without it
that is the CPU.

What mixed types become is ruled by PyTorch. There are three categories, bool < integer < floating. A Python scalar, and
next an array without dimensions, takes part only with its category; the type itself comes from the arrays with
dimensions. An integer that meets a floating type takes the floating type, and one that enters a function with
fractional results takes the default type. bfloat16, float32 without its last 16 bits, is a type of the package
ml_dtypes.
"""

import builtins
import functools
import math

import ml_dtypes
import numpy as np

from minigrad_kernels import layout
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import c_order, in_memory_order, order_of
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.modes import capturing
from minigrad_kernels.transpose import transpose

from . import memory
from .places import CPU, Place, is_array, place, place_of

__all__ = [
    "accumulate",
    "dense",
    "default_dtype",
    "is_floating",
    "is_half",
    "promote",
    "reduce",
    "result_dtype",
    "sum_dtype",
    "arange",
    "array_module",
    "assign",
    "asarray",
    "can_hold_a_sum",
    "cast",
    "constant",
    "contiguous",
    "copy",
    "device_of",
    "element_type",
    "empty",
    "empty_like",
    "fill",
    "full",
    "host",
    "may_share_memory",
    "move",
    "order_of",
    "workspace",
    "zeros",
]

quiet = np.errstate(all="ignore")  # infinities and NaN are results, not warnings

# ---- element types ---------------------------------------------------------------------------------------------------

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


# ---- where arrays lie ------------------------------------------------------------------------------------------------


def array_module(array):
    """The module whose functions work on this array."""
    return np if type(array) is np.ndarray else place_of(array).module


def device_of(array):
    """The name of the device that holds the array."""
    return CPU.name if type(array) is np.ndarray else place_of(array).name


def host(array):
    """The elements as a NumPy array: on the CPU the array itself, else a copy, once they are computed."""
    return array if type(array) is np.ndarray else place_of(array).download(array)


def move(array, device):
    """The array on a device, itself if it is there already, else a copy that lies alike.

    Errors  RuntimeError if there is no such device, TypeError for what is no name of one
    """
    here, there = place_of(array), place(device)
    return array if here is there else there.copied(array, here)


def constant(array, device):
    """A NumPy array, which stays as it is, on a device; a graph that is recorded takes it in as it is."""
    there = place(device)
    recorder = None if there is CPU else capturing.get()
    return there.upload(array) if recorder is None else recorder.upload(array)


@quiet
def asarray(value, dtype=None):
    """An array of a supported element type in this machine's byte order; arrays are taken as they are.

    Python floats become the default type (float32), integers int64, as in PyTorch. NumPy's own scalars keep theirs.
    """
    array = value if is_array(value) else _numbers(value)
    if isinstance(array, np.ma.MaskedArray):
        raise KindError("Tensor: data is a masked array, wanted one without a mask; fill it, as by data.filled(0)")
    if place_of(array) is CPU:
        array = np.asarray(array)  # a plain array on the memory of one of a subclass, such as a file's (memmap)
    own = element_type(array.dtype)
    if dtype is None:
        dtype = default_dtype if own == np.float64 and not hasattr(value, "dtype") else own
    dtype = element_type(dtype)
    if array.dtype == dtype:
        return array
    with memory.naming("Tensor"):
        return cast(array, dtype)


def _numbers(value):
    """What is no array as one."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise KindError("Tensor: data is a ragged list, wanted rows of one length") from error
    if array.dtype.hasobject and not hasattr(value, "dtype"):
        small = lambda one: isinstance(one, float) or isinstance(one, int) and -(1 << 63) <= one < 1 << 63
        first = next((one for one in array.flat if not small(one)), value)
        kind = type(first).__name__
        raise KindError(f"Tensor: data is or holds {first!r} of type {kind}, wanted numbers of 64 bits or nested lists")
    return array


def element_type(dtype, op="dtype", also=""):
    """A supported element type, by its NumPy type or its name. op: who asks; also: what else it would take."""
    try:
        dtype = np.dtype("None" if dtype is None else dtype)  # NumPy takes None for float64
    except TypeError as error:
        raise KindError(f"{op}: got {dtype!r}, wanted an element type such as 'float32'{also}") from error
    if (dtype.kind not in "buif" or dtype == np.longdouble) and dtype != bfloat16:
        raise KindError(f"Tensor: element type is {dtype}, wanted bool, integer or floating numbers")
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def empty(shape, dtype=default_dtype, order=None, like=None):
    """An uninitialised array whose axes lie in memory in this order, slowest first (C order when None)."""
    if like is None or type(like) is np.ndarray:
        return memory.take(shape, dtype, order)
    return (like if isinstance(like, Place) else place_of(like)).take(shape, dtype, order)


def full(shape, value, dtype=default_dtype, order=None, like=None):
    """An array of one value.

    Errors  ValueError if the element type cannot hold it
    """
    array = empty(shape, dtype, order, like)
    fill(array, value)
    return array


@quiet
def fill(array, value):
    """Write one value everywhere.

    Errors  ValueError if the element type cannot hold it
    """
    there = place_of(array)
    try:
        value = value if there is CPU else np.full((), value, array.dtype)[()]
        with there.active((array,)):
            array.fill(value)
    except (OverflowError, ValueError) as error:
        raise ShapeError(f"full: value is {value}, which does not fit in {array.dtype}") from error


def zeros(shape, dtype=default_dtype, order=None, like=None):
    return full(shape, 0, dtype, order, like)


def arange(stop, like=None):
    """The integers from 0 up to stop, stop not included."""
    there = place_of(like)
    with there.active():
        return there.module.arange(stop)


def empty_like(array, dtype=None):
    """An uninitialised array of the same shape, its axes in the same order in memory."""
    return empty(array.shape, dtype or array.dtype, None if array.flags.c_contiguous else order_of(array), array)


def workspace(nbytes, like=None):
    """Scratch bytes for a kernel."""
    return empty((nbytes,), np.uint8, None, like)


def can_hold_a_sum(array):
    """Whether the elements fill memory of their own, without gaps or repeats, that may be written."""
    flags = array.flags
    return getattr(flags, "writeable", True) and (flags.forc or layout.is_dense(array, order_of(array)))


def copyto(out, array):
    """Write the elements of an array into one of its device, whose type may be another one."""
    if type(out) is np.ndarray is type(array):
        np.copyto(out, array, casting="unsafe")
        return
    there = place_of(array)
    with there.active((out, array)):
        if out.shape == array.shape:
            out, array = in_memory_order(out, array)
        there.module.copyto(out, array, casting="unsafe")


def copy(array, order=None):
    """A copy whose axes lie in this order (C order when None)."""
    out = empty(array.shape, array.dtype, order, array)
    if array.size < LEAST or not _turned(array, out, order_of(array), order or c_order(array.ndim)):
        copyto(out, array)
    return out


LEAST = 1 << 15  # elements of arrays to ask for; for fewer NumPy's copy costs as little
NARROW = 16  # rows or columns, below which there are no tiles
MANY = 3  # threads, from which on a narrow matrix is worth the kernel: one by itself takes twice as long as NumPy


def _turned(array, out, order, out_order):
    """Write a dense array, whose axes lie in `order`, into `out`, where they lie in out_order; whether that was done.

    It is on the CPU, where two groups of axes behind those that both orders begin with have changed places: channels
    last and C order. A kernel of our own turns such matrices over; it pays where they are not narrow.
    """
    if type(array) is not np.ndarray or array.dtype.char not in "fd":
        return False
    seen = array.transpose(order)
    same = next((k for k, (a, b) in enumerate(zip(order, out_order, strict=True)) if a != b), None)
    middle = None if same is None else order.index(out_order[same])
    if middle is None or out_order[same:] != order[middle:] + order[same:middle] or not seen.flags.c_contiguous:
        return False
    count, rows = math.prod(seen.shape[:same]), math.prod(seen.shape[same:middle])
    columns = array.size // (count * rows)
    least = min(rows, columns)
    if least == 1 or (least < NARROW and threads() < MANY):
        return False
    transpose(seen.reshape(count, rows, columns), out.transpose(out_order).reshape(count, columns, rows))
    return True


@quiet
def cast(array, dtype):
    """The numbers in another element type, the axes in the same order in memory."""
    out = empty_like(array, element_type(dtype))
    copyto(out, array)
    return out


def assign(target, array):
    """Write the elements of an array, of whatever device, type and layout, into one of the same shape."""
    copyto(target, move(array, device_of(target)))


def may_share_memory(array, other):
    """Whether two arrays lie in one piece of memory: as far as their bounds tell, on a GPU in one allocation."""
    if isinstance(array, np.ndarray):
        return isinstance(other, np.ndarray) and np.may_share_memory(array, other)
    return place_of(other) is place_of(array) and array.data.mem is other.data.mem


def contiguous(array, order=None):
    """The array itself if it is dense in this order (C order when None), else such a copy."""
    if order is None:
        return array if array.flags.c_contiguous else copy(array)
    return array if layout.is_dense(array, order or c_order(array.ndim)) else copy(array, order)


def dense(kernel, *arrays, settings=()):
    """What a kernel for dense arrays of one layout gives."""
    like = arrays[-1]
    order = order_of(like)
    out = empty(like.shape, like.dtype, order, like)
    kernel(*[contiguous(array, order) for array in arrays], *settings, out)
    return out


# ---- added up --------------------------------------------------------------------------------------------------------

ONE_BY_ONE = 1 << 12  # elements: as many added one by one in float32 lose digits that show


@quiet
def accumulate(total, value):
    """Add value, an array of the same device or a number, into total, an array that nobody else reads.

    Errors  RuntimeError for an array of another device
    """
    if type(total) is np.ndarray and type(value) is np.ndarray:
        np.add(total, value, out=total)
    else:
        _accumulate(total, value)


def _accumulate(total, value):
    there = place_of(total)
    if is_array(value) and place_of(value) is not there:
        hint = "move a Tensor by .to(), or set its .grad to None where .data became an array of another device"
        found = f"a gradient on {place_of(value).name} cannot be added to .grad on {there.name}"
        raise StateError(f"backward: {found}; {hint}")
    with there.active((total, value)):
        if is_array(value) and value.shape == total.shape:
            total, value = in_memory_order(total, value)
        there.module.add(total, value, out=total)


@quiet
def reduce(array, method, axes, **options):
    """What a method of arrays (sum, max, all, cumsum, ...) gives along axes, without warnings."""
    if method == "sum" and array.dtype == float32 and options.keys() <= {"keepdims"}:
        if array.size >= ONE_BY_ONE and _added_one_by_one(array, axes) >= ONE_BY_ONE:
            return cast(reduce(array, "sum", axes, dtype="float64", **options), float32)
    return array_module(array).asarray(getattr(array, method)(axis=axes, **options))


def _added_one_by_one(x, axes):
    """How many partial sums follow each other: NumPy adds in pairs along the innermost axes in memory alone."""
    count = math.prod([x.shape[axis] for axis in axes])
    for axis in reversed(order_of(x)):
        if axis not in axes:
            return count
        count //= x.shape[axis]
    return 0
