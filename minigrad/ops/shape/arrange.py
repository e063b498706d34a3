"""Ops that join, split, repeat, turn and mask what is there.

Types   any; out as input; those of several Tensors promote
Errors  ValueError if a shape or size does not fit, IndexError for a dimension out of range, TypeError for other kinds
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import itertools

from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import axes_of, axis_of, integer_of, integers_of, shape_of
from ...core.primitive import primitive
from ...core.tensor import tensor_of, tensors_of
from ...device import array_module
from .select import getitem
from .views import copy_op, expand, flatten, movedim, reshape, sized_axis, transpose, unsqueeze

__all__ = ["cat", "chunk", "diagonal", "flip", "repeat", "roll", "split", "stack", "t", "tile", "tril", "triu"]
__all__ += ["unbind"]

# ---- joined and split ------------------------------------------------------------------------------------------------


@primitive
def cat_op(*tensors, dim):
    """Arrays one after the other along an axis."""
    first, size = tensors[0], sum(x.shape[dim] for x in tensors)
    shape = (*first.shape[:dim], size, *first.shape[dim + 1 :])
    out = device.empty(shape, device.result_dtype(*tensors, op="cat"), device.order_of(first), first)
    device.array_module(out).concatenate(tensors, axis=dim, out=out)
    return out


def _dx_of_cat(g, tensors_shape, index, dim):
    start = sum(shape[dim] for shape in tensors_shape[:index])
    return part(g, dim, start, tensors_shape[index][dim])


cat_op.grads(tensors=_dx_of_cat)


def part(input, axis, start, size):
    """So many elements along an axis, from `start` on."""
    return getitem(input, (slice(None),) * axis + (slice(start, start + size),))


def cat(tensors, dim=0):
    """Tensors one after the other along a dimension; those of shape (0,) add nothing beside others.

    Math    out = [x_0, x_1, ...]
    Grads   dx_k = the part of g that came from x_k
    Shapes  equal but for dim, where the sizes add up
    """
    tensors = tensors_of("cat", tensors)
    ndim = max(x.ndim for x in tensors)
    if any(not x.ndim for x in tensors):
        raise ShapeError(f"cat: tensors have shapes {[x.shape for x in tensors]}, wanted dimensions; use stack")
    axis = axis_of("cat", dim, ndim)
    at, first = next((k, x.shape) for k, x in enumerate(tensors) if x.ndim == ndim)
    nothing = (*first[:axis], 0, *first[axis + 1 :])
    tensors = [reshape(x, nothing) if x.shape == (0,) else x for x in tensors]
    for k, x in enumerate(tensors):
        if x.ndim != ndim or x.shape[:axis] != first[:axis] or x.shape[axis + 1 :] != first[axis + 1 :]:
            raise ShapeError(f"cat: tensors[{k}] has shape {x.shape}, tensors[{at}] {first}; only dim {dim} may differ")
    return cat_op(*tensors, dim=axis)


def stack(tensors, dim=0):
    """Tensors of one shape along a new dimension.

    Math    out[k] = x_k
    Grads   dx_k = g[k]
    Shapes  K times (n_0, ...) -> (..., K, ...)
    """
    tensors = tensors_of("stack", tensors)
    dim = axis_of("stack", dim, tensors[0].ndim + 1)
    if len({x.shape for x in tensors}) > 1:
        raise ShapeError(f"stack: tensors have shapes {[x.shape for x in tensors]}, wanted equal ones")
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def _parts(input, axis, sizes):
    starts = itertools.accumulate(sizes, initial=0)
    return tuple([part(input, axis, start, size) for start, size in zip(starts, sizes, strict=False)])


def split(tensor, split_size_or_sections, dim=0):
    """Parts of a given size, the last one perhaps smaller, or of given sizes.

    Math    out_k = tensor[s_k : s_k + n_k] along dim, with s_k = n_0 + ... + n_(k-1)
    Grads   dtensor = g_k at the places of part k
    Shapes  (..., n, ...) -> a tuple of (..., n_k, ...)
    """
    axis, size = sized_axis("split", "tensor", tensor, dim)
    if isinstance(split_size_or_sections, tuple | list):
        sizes = shape_of("split", "split_size_or_sections", (split_size_or_sections,))
        if sum(sizes) != size:
            raise ShapeError(f"split: split_size_or_sections is {sizes}, wanted sizes that add up to {size}")
        return _parts(tensor, axis, sizes)
    step = integer_of("split", "split_size_or_sections", split_size_or_sections)
    if step < 0 or (not step and size):
        raise ShapeError(f"split: split_size_or_sections is {step}, wanted a size of parts of {size} elements")
    return _parts(tensor, axis, [min(step, size - start) for start in range(0, size, step or 1)] or [0])


def chunk(input, chunks, dim=0):
    """At most this many parts of one size, the last one perhaps smaller.

    Math    out_k = input[k s : (k + 1) s] along dim, with s = ceil(n / chunks)
    Grads   dinput = g_k at the places of part k
    Shapes  (..., n, ...) -> a tuple of (..., s, ...)
    """
    axis, size = sized_axis("chunk", "input", input, dim)
    chunks = integer_of("chunk", "chunks", chunks, 1)
    return split(input, -(-size // chunks), axis) if size else _parts(input, axis, [0] * chunks)


def unbind(input, dim=0):
    """The elements along a dimension, each without it.

    Math    out_k = input[k] along dim
    Grads   dinput[k] = g_k
    Shapes  (..., n, ...) -> a tuple of n times (..., ...)
    """
    axis, size = sized_axis("unbind", "input", input, dim)
    return tuple([getitem(input, (slice(None),) * axis + (k,)) for k in range(size)])


# ---- repeated, turned, masked ----------------------------------------------------------------------------------------


def tile(input, dims):
    """input side by side, dims[k] times along dimension k.

    Math    out[i_0, ...] = input[i_0 mod n_0, ...]
    Grads   dinput = sum of g over the copies
    Shapes  (n_0, ...) -> (dims[0] n_0, ...); the shorter of dims and the shape gets ones in front
    """
    dims = shape_of("tile", "dims", (dims,))
    ndim = max(tensor_of("tile", "input", input).ndim, len(dims))
    dims, shape = ((1,) * (ndim - len(sizes)) + sizes for sizes in (dims, input.shape))
    pairs = list(zip(dims, shape, strict=True))
    apart = reshape(input, [n for size in shape for n in (1, size)])  # copies stand along axes of their own
    copies = copy_op(expand(apart, [n for pair in pairs for n in pair]), None)
    return reshape(copies, [count * size for count, size in pairs])


def repeat(input, repeats):
    """input side by side, repeats[k] times along dimension k, counted from new leading dimensions.

    Math    out[i_0, ...] = input[i_0 mod n_0, ...]
    Grads   dinput = sum of g over the copies
    Shapes  (n_0, ...) -> (repeats[0] n_0, ...); repeats has at least as many entries as input dimensions
    """
    repeats = shape_of("repeat", "repeats", (repeats,))
    if len(repeats) < tensor_of("repeat", "input", input).ndim:
        raise ShapeError(f"repeat: repeats is {repeats}, wanted at least {input.ndim} numbers (shape {input.shape})")
    return tile(input, repeats)


def flip(input, dims):
    """Backwards along dims: a view of the same memory.

    Math    out[..., i, ...] = input[..., n - 1 - i, ...]
    Grads   dinput = flip(g, dims)
    Shapes  out as input
    """
    ndim, dims = tensor_of("flip", "input", input).ndim, integers_of("flip", "dims", (dims,))
    axes = axes_of("flip", dims, ndim)
    return getitem(input, tuple([slice(None, None, -1 if axis in axes else None) for axis in range(ndim)]))


@primitive
def _roll(input, shifts, dims):
    return array_module(input).roll(input, shifts, dims)


_roll.grads(input=lambda g, shifts, dims: _roll(g, tuple([-shift for shift in shifts]), dims))


def roll(input, shifts, dims=None):
    """Moved by shifts along dims; what leaves at one end comes in at the other. Without dims, in C order.

    Math    out[..., (i + shift) mod n, ...] = input[..., i, ...]
    Grads   dinput = g moved back
    Shapes  out as input
    """
    tensor_of("roll", "input", input)
    shifts = integers_of("roll", "shifts", (shifts,))
    axes = () if dims is None else integers_of("roll", "dims", (dims,))
    axes = tuple([axis_of("roll", dim, input.ndim) for dim in axes])
    if not axes and len(shifts) == 1:
        return reshape(roll(flatten(input), shifts, 0), input.shape)
    if not shifts or len(shifts) != len(axes):
        raise ShapeError(f"roll: shifts is {shifts}, dims {dims}; wanted as many of both for shape {input.shape}")
    return _roll(input, shifts, axes)


def t(input):
    """The rows of a matrix as columns: a view of the same memory.

    Math    out[j, i] = input[i, j]
    Grads   dinput = g^T
    Shapes  (m, n) -> (n, m); a vector or a scalar stays as it is
    """
    if tensor_of("t", "input", input).ndim > 2:
        raise ShapeError(f"t: input has shape {input.shape}, wanted at most 2 dimensions; use transpose")
    return transpose(input, 0, 1) if input.ndim == 2 else input


@primitive
def _triangle(input, name, diagonal):
    return getattr(array_module(input), name)(input, diagonal)


_triangle.grads(input=lambda g, name, diagonal: _triangle(g, name, diagonal))


def tril(input, diagonal=0):
    """The lower triangle of matrices; 0 above the diagonal with this number.

    Math    out[..., i, j] = input[..., i, j] if j - i <= diagonal, else 0
    Grads   dinput = tril(g, diagonal)
    Shapes  (..., m, n) -> (..., m, n)
    """
    return _triangular("tril", input, diagonal)


def triu(input, diagonal=0):
    """The upper triangle of matrices; 0 below the diagonal with this number.

    Math    out[..., i, j] = input[..., i, j] if j - i >= diagonal, else 0
    Grads   dinput = triu(g, diagonal)
    Shapes  (..., m, n) -> (..., m, n)
    """
    return _triangular("triu", input, diagonal)


def _triangular(op, input, diagonal):
    if tensor_of(op, "input", input).ndim < 2:
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted matrices (..., m, n)")
    diagonal = integer_of(op, "diagonal", diagonal)
    return _triangle(input, op, max(-input.shape[-2], min(diagonal, input.shape[-1])))  # farther away is the same


def diagonal(input, offset=0, dim1=0, dim2=1):
    """The elements (i, i + offset) of matrices that lie along two dimensions.

    Math    out[..., i] = input[..., i, i + offset], or input[..., i - offset, i] for offset < 0
    Grads   dinput = g on the diagonal, 0 elsewhere
    Shapes  (..., m, ..., n, ...) -> (..., min(m, n)) for offset 0: without dim1 and dim2, the diagonal last
    """
    ndim, offset = tensor_of("diagonal", "input", input).ndim, integer_of("diagonal", "offset", offset)
    first, second = axis_of("diagonal", dim1, ndim), axis_of("diagonal", dim2, ndim)
    rows, columns = input.shape[first], input.shape[second]
    start = offset if offset >= 0 else -offset * columns
    stop = start + max(0, min(rows + min(offset, 0), columns - max(offset, 0))) * (columns + 1)
    square = flatten(movedim(input, (first, second), (-2, -1)), -2)
    return getitem(square, (..., slice(start, stop, columns + 1)))
