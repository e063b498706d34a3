"""What launchers check before any work, and the views in which kernels see arrays.

Kernels see few types: 1-D, 2-D or 4-D C-contiguous arrays that are not marked read-only. The views share memory.
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..layout import CHANNELS_LAST, is_dense
from . import backend
from .cpu import alias
from .widening import SINGLE, is_half

__all__ = [
    "check_array",
    "check_c_order",
    "check_floats",
    "check_one_kind",
    "check_output",
    "flat",
    "is_floating",
    "nhwc",
    "pair",
    "rows",
    "type_of_sums",
    "workspace_of",
]

LIMIT = 1 << 31  # sizes, strides and paddings are 32-bit inside kernels
BYTE = np.dtype(np.uint8)
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def is_floating(dtype):
    return dtype in FLOATS


def is_array(array):
    """Whether there are kernels for this kind of array."""
    try:
        return bool(backend(array))
    except KindError:
        return False


def check_one_kind(op, arrays):
    """Refuse arrays, by name, of which some lie on another device than the first one; None is no array."""
    (first, like), *rest = arrays.items()
    for name, array in rest:
        if array is not None and type(array) is not type(like):
            kinds = f"{name} is {_kind(array)}, {first} is {_kind(like)}"
            raise KindError(f"{op}: {kinds}; wants arrays of one kind, on one device")


def _kind(array):
    return f"{type(array).__module__}.{type(array).__qualname__}"


def check_array(op, name, array, shape=None, dtype=None):
    """Refuse an argument that is no array, or whose shape or element type is another one."""
    if type(array) is not np.ndarray and not is_array(array):
        raise KindError(f"{op}: {name} is {_kind(array)}, wants numpy.ndarray")
    if dtype is not None and array.dtype != dtype:
        raise KindError(f"{op}: {name} has type {array.dtype}, wants {np.dtype(dtype)}")
    if shape is not None and array.shape != shape:
        raise ShapeError(f"{op}: {name} has shape {array.shape}, wants {shape}")


def check_output(op, name, array, shape, dtype):
    """check_array for an argument that the kernel writes."""
    check_array(op, name, array, shape, dtype)
    if not getattr(array.flags, "writeable", True):  # arrays of CuPy always are
        raise ShapeError(f"{op}: {name} is read-only, wants an array to write to")


def check_c_order(op, **arrays):
    """Refuse arrays, by name, that do not lie in C order without gaps; None is no array."""
    for name, array in arrays.items():
        if array is not None and not array.flags.c_contiguous:
            raise ShapeError(f"{op}: {name} (shape {array.shape}) has strides {array.strides}, wants C order")


def workspace_of(op, workspace, wanted, source, like):
    """So many bytes for a call whose arrays are such as `like`: the workspace, or what it gives if it is a function.

    source: the function that says how many bytes a call wants
    """
    if type(workspace) is np.ndarray is type(like) and workspace.dtype is BYTE and workspace.ndim == 1:
        if workspace.size >= wanted and workspace.flags.carray:  # as nearly always
            return workspace
    if callable(workspace):
        return workspace(wanted, like)
    if type(workspace) is not type(like):
        check_one_kind(op, {"out": like, "workspace": workspace})
    check_output(op, "workspace", workspace, None, np.uint8)
    if workspace.size < wanted or workspace.ndim != 1 or not workspace.flags.c_contiguous:
        got = f"workspace has shape {workspace.shape}"
        raise ShapeError(f"{op}: {got}, wants {wanted} contiguous bytes; see {source}")
    return workspace


def check_floats(op, name, array):
    """Refuse an argument that is no array of float32 or float64, or of 16 bits where there are kernels for those."""
    check_array(op, name, array)
    if array.dtype not in FLOATS and not is_half(array.dtype):
        raise KindError(f"{op}: {name} has type {array.dtype}, wants float32 or float64")


def type_of_sums(array):
    """The type of sums of an array's elements, and of statistics and parameters beside them."""
    return SINGLE if array.itemsize == 2 else array.dtype


def pair(op, name, value, least):
    """(vertical, horizontal) from one integer or two, each at least `least`."""
    if type(value) is tuple and len(value) == 2:  # as nearly always
        first, second = value
        if type(first) is int is type(second) and least <= first < LIMIT and least <= second < LIMIT:
            return value
    values = (value, value) if isinstance(value, int | np.integer) else value
    good = isinstance(values, tuple | list) and len(values) == 2
    if not good or any(isinstance(v, bool) or not isinstance(v, int | np.integer) for v in values):
        raise KindError(f"{op}: {name} is {value!r}, wants an integer or a pair of integers")
    if min(values) < least:
        raise ShapeError(f"{op}: {name} is {value}, wants at least {least}")
    if max(values) >= LIMIT:
        raise ShapeError(f"{op}: {name} is {value}, wants less than {LIMIT}")
    return int(values[0]), int(values[1])


def nhwc(op, name, array):
    """An (N, C, H, W) array whose memory is channels last, as a C-contiguous (N, H, W, C) view."""
    view = array.transpose(CHANNELS_LAST)
    if not view.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} (shape {array.shape}) has strides {array.strides}, wants channels last")
    return view if type(view) is np.ndarray and view.flags.writeable else alias(view)


def rows(op, name, array):
    """An (N, C) array in C order, or an (N, C, H, W) array with channels last, as a matrix of C columns."""
    if array.ndim == 4:
        view = nhwc(op, name, array)
        n, h, w, c = view.shape
        return view.reshape(n * h * w, c)
    if array.ndim != 2:
        raise ShapeError(f"{op}: {name} has shape {array.shape}, wants (N, C) or (N, C, H, W)")
    check_c_order(op, **{name: array})
    return alias(array)


def flat(op, names, arrays):
    """Dense arrays of one shape that lie in one order of axes, whichever it is, as 1-D views in that order."""
    first = arrays[0]
    for array in arrays:
        if not array.flags.c_contiguous:
            break
    else:  # as nearly always, so not worth a generator
        return [alias(array.reshape(-1)) for array in arrays]
    order = CHANNELS_LAST
    if first.ndim != 4 or not is_dense(first, order):
        order = tuple(sorted(range(first.ndim), key=lambda axis: -first.strides[axis]))
    views = [array.transpose(order) for array in arrays]
    for name, view, array in zip(names, views, arrays, strict=True):
        if not view.flags.c_contiguous:
            raise ShapeError(
                f"{op}: {name} (shape {array.shape}) has strides {array.strides}, "
                f"wants no gaps and the axis order of {names[0]}, {order}"
            )
    return [alias(view.reshape(-1)) for view in views]
