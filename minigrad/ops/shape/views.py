"""Ops that look at the same elements in another shape or order of dimensions.

Types   any; out as input
Errors  ValueError if a shape or size does not fit, IndexError for a dimension out of range, TypeError for sizes and
        dimensions that are no integers
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import functools
import itertools
import math
import operator

from minigrad_kernels.errors import ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER, is_dense

from ... import device
from ...core.check import integers_of
from ...core.primitive import primitive
from ...core.tensor import tensor_of
from ...device import array_module
from ..axes import axes_of, axis_of, sized_axis

__all__ = ["broadcast_to", "clone", "contiguous", "expand", "flatten", "movedim", "permute", "reshape", "squeeze"]
__all__ += ["transpose", "unflatten", "unsqueeze", "view"]

# ---- another shape ---------------------------------------------------------------------------------------------------


@primitive(view="input")
def _reshape(input, shape):
    """The same elements, in C order, in another shape; a copy only where memory does not allow a view."""
    return (input if _can_be_seen(input, shape) else device.copy(input)).reshape(shape)


_reshape.grads(input=lambda g, input_shape: _reshape(g, input_shape))


def _can_be_seen(array, shape):
    """Whether elements in C order can be seen in another shape: evenly spaced runs must end where its axes end."""
    if array.flags.c_contiguous:
        return True
    return _meet(array.shape, array.strides, shape)


@functools.lru_cache(maxsize=1024)
def _meet(sizes, strides, shape):
    """Whether runs and axes end at the same places."""
    runs = []
    for n, stride in zip(sizes, strides, strict=True):
        if runs and runs[-1][1] == n * stride:
            runs[-1] = runs[-1][0] * n, stride
        elif n != 1:
            runs.append((n, stride))
    ends = itertools.accumulate((n for n, _ in runs), operator.mul)
    return {*ends} <= {*itertools.accumulate(shape, operator.mul)}


def _filled(op, name, sizes, count):
    """Sizes that hold count elements; one may be -1 and follows from the others."""
    sizes = integers_of(op, name, (sizes,))
    known = math.prod(n for n in sizes if n != -1)
    wrong = any(n < -1 for n in sizes) or sizes.count(-1) > 1
    if not wrong and -1 in sizes:
        wrong = known == 0 or count % known != 0
        sizes = sizes if wrong else tuple(count // known if n == -1 else n for n in sizes)
    if wrong or math.prod(sizes) != count:
        raise ShapeError(f"{op}: {name} is {sizes}, which does not hold the {count} elements that there are")
    return sizes


def reshape(input, shape):
    """The same elements, in C order, in another shape; a view of the same memory where its order allows.

    Math    out.flat[i] = input.flat[i]
    Grads   dinput = reshape(g, input.shape)
    Shapes  any with as many elements; one size may be -1 and follows from the others
    """
    shape = _filled("reshape", "shape", shape, tensor_of("reshape", "input", input).numel())
    return input if shape == input.shape else _reshape(input, shape)


def view(input, size):
    """The same memory in another shape; a copy of images and filters, which lie channels last as a rule.

    Math    out.flat[i] = input.flat[i]
    Grads   dinput = reshape(g, input.shape)
    Shapes  any with as many elements; one size may be -1 and follows from the others
    Errors  as the file, and RuntimeError if the order of the elements in memory would ask for a copy
    """
    size = _filled("view", "size", size, tensor_of("view", "input", input).numel())
    own_order = input.ndim == 4 and (is_dense(input.array, CHANNELS_LAST) or is_dense(input.array, FILTER))
    if not own_order and not _can_be_seen(input.array, size):
        raise StateError(
            f"view: size is {size}, but the memory of input (shape {input.shape}, strides {input.array.strides}) "
            "cannot be seen so without a copy; use reshape"
        )
    return reshape(input, size)


def flatten(input, start_dim=0, end_dim=-1):
    """The dimensions from start_dim to end_dim made into one.

    Math    out.flat[i] = input.flat[i]
    Grads   dinput = reshape(g, input.shape)
    Shapes  (n_0, ..., n_d) -> (..., n_start * ... * n_end, ...); () -> (1,)
    """
    ndim = tensor_of("flatten", "input", input).ndim
    start, end = axis_of("flatten", start_dim, ndim), axis_of("flatten", end_dim, ndim)
    if start > end:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    shape = (*input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :])
    return input if shape == input.shape else _reshape(input, shape)


def unflatten(input, dim, sizes):
    """One dimension made into several.

    Math    out.flat[i] = input.flat[i]
    Grads   dinput = reshape(g, input.shape)
    Shapes  (..., n_dim, ...) -> (..., *sizes, ...); the product of sizes is n_dim, and one of them may be -1
    """
    axis, size = sized_axis("unflatten", "input", input, dim)
    sizes = _filled("unflatten", "sizes", sizes, size)
    return reshape(input, (*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))


def squeeze(input, dim=None):
    """Without the dimensions of size 1, or without those of dim that have size 1.

    Math    out.flat[i] = input.flat[i]
    Grads   dinput = reshape(g, input.shape)
    Shapes  sizes of 1 disappear
    """
    axes = axes_of("squeeze", dim, tensor_of("squeeze", "input", input).ndim)
    return reshape(input, tuple(n for i, n in enumerate(input.shape) if n != 1 or i not in axes))


def unsqueeze(input, dim):
    """With a new dimension of size 1 before position dim.

    Math    out.flat[i] = input.flat[i]
    Grads   dinput = reshape(g, input.shape)
    Shapes  (..., n_dim, ...) -> (..., 1, n_dim, ...)
    """
    axis = axis_of("unsqueeze", dim, tensor_of("unsqueeze", "input", input).ndim + 1)
    return reshape(input, (*input.shape[:axis], 1, *input.shape[axis:]))


# ---- another order of dimensions -------------------------------------------------------------------------------------


@primitive(view="input")
def _permute(input, dims):
    """The axes in another order."""
    return input.transpose(dims)


_permute.grads(input=lambda g, dims: _permute(g, tuple(sorted(range(len(dims)), key=dims.__getitem__))))


def permute(input, dims):
    """The dimensions in another order.

    Math    out[i_dims[0], i_dims[1], ...] = input[i_0, i_1, ...]
    Grads   dinput = g with the dimensions put back
    Shapes  out.shape[k] = input.shape[dims[k]]
    """
    ndim, dims = tensor_of("permute", "input", input).ndim, integers_of("permute", "dims", (dims,))
    if len(dims) != ndim:
        raise ShapeError(f"permute: dims {dims} name {len(dims)} dimensions, input has {ndim} (shape {input.shape})")
    axes = axes_of("permute", dims, ndim)
    return input if axes == tuple(range(ndim)) else _permute(input, axes)


def transpose(input, dim0, dim1):
    """Two dimensions exchanged.

    Math    out[..., j, ..., i, ...] = input[..., i, ..., j, ...]
    Grads   dinput = transpose(g, dim0, dim1)
    Shapes  sizes dim0 and dim1 exchanged
    """
    ndim = tensor_of("transpose", "input", input).ndim
    dims, first, second = list(range(ndim)), axis_of("transpose", dim0, ndim), axis_of("transpose", dim1, ndim)
    if dims:
        dims[first], dims[second] = second, first
    return permute(input, dims)


def movedim(input, source, destination):
    """Dimensions brought to other places; the rest keep their order.

    Math    out[..., i_source at destination, ...] = input[i_0, i_1, ...]
    Grads   dinput = movedim(g, destination, source)
    Shapes  out.shape[destination[k]] = input.shape[source[k]]
    """
    ndim, places = tensor_of("movedim", "input", input).ndim, []
    for name, dims in (("source", source), ("destination", destination)):
        places.append(axes_of("movedim", integers_of("movedim", name, (dims,)), ndim))
    if len(places[0]) != len(places[1]):
        raise ShapeError(f"movedim: source is {source}, destination {destination}; wanted as many of both")
    dims = [axis for axis in range(ndim) if axis not in places[0]]
    for to, axis in sorted(zip(places[1], places[0], strict=True)):
        dims.insert(to, axis)
    return permute(input, dims)


# ---- repeated, copied ------------------------------------------------------------------------------------------------


@primitive(view="input")
def _expand(input, shape):
    """input repeated along axes of size 1, without copying."""
    return array_module(input).broadcast_to(input, shape)


_expand.grads(input=lambda g: g)  # the engine sums over what was repeated


def expand(input, size):
    """input repeated along dimensions of size 1 and along new leading ones, without copying.

    Math    out[i] = input[i, with 0 along the repeated dimensions]
    Grads   dinput = g, summed over the repeated dimensions
    Shapes  input broadcasts to size; a size of -1 keeps that of input
    """
    ndim, wanted = tensor_of("expand", "input", input).ndim, integers_of("expand", "size", (size,))
    extra = len(wanted) - ndim
    shape = tuple(input.shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(wanted))
    fits = extra >= 0 and all(m in (1, n) for m, n in zip(input.shape, shape[extra:], strict=True))
    if not fits or any(n < 0 for n in shape):
        raise ShapeError(f"expand: input has shape {input.shape}, which does not broadcast to {wanted}")
    return input if shape == input.shape else _expand(input, shape)


def broadcast_to(input, size):
    """expand under its other name.

    Math    out[i] = input[i, with 0 along the repeated dimensions]
    Grads   dinput = g, summed over the repeated dimensions
    Shapes  input broadcasts to size; a size of -1 keeps that of input
    """
    return expand(tensor_of("broadcast_to", "input", input), size)


@primitive
def _copy(input, order):
    """The same elements in memory of their own, the axes in this order."""
    return device.copy(input, order)


_copy.grads(input=lambda g: g)


def clone(input):
    """The same elements in memory of their own.

    Math    out = input
    Grads   dinput = g
    Shapes  out as input; the dimensions keep their order in memory
    """
    return _copy(tensor_of("clone", "input", input), device.order_of(input.array))


def contiguous(input):
    """input itself if its elements lie in C order without gaps, else a copy in which they do.

    Math    out = input
    Grads   dinput = g
    Shapes  out as input
    """
    return input if tensor_of("contiguous", "input", input).array.flags.c_contiguous else _copy(input, None)
