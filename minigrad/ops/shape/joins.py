"""Ops that put Tensors together along a dimension and take them apart.

Types   any; those of several Tensors promote
Errors  ValueError if a shape or size does not fit, IndexError for a dimension out of range, TypeError for other kinds
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import itertools

from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import at_least, integer_of, shape_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensors_of
from ..axes import axis_of, sized_axis
from .select import getitem
from .views import unsqueeze

__all__ = ["cat", "chunk", "split", "stack", "unbind"]


def _is_nothing(shape, ndim):
    """Whether a Tensor is skipped: (0,) stands for nothing beside Tensors of any number of dimensions."""
    return shape == (0,) and ndim != 1


@primitive
def _cat(*tensors, dim):
    """Arrays one after the other along an axis."""
    ndim = max(x.ndim for x in tensors)
    joined = [x for x in tensors if not _is_nothing(x.shape, ndim)]
    shape = list(joined[0].shape)
    shape[dim] = sum(x.shape[dim] for x in joined)
    out = device.empty(tuple(shape), device.result_dtype(*tensors, op="cat"), device.order_of(joined[0]), joined[0])
    device.array_module(out).concatenate(joined, axis=dim, out=out)
    return out


def _dx_of_cat(g, tensors_shape, index, dim):
    shape = tensors_shape[index]
    if _is_nothing(shape, g.ndim):
        return Tensor.made(device.zeros(shape, g.dtype, like=g.array))
    start = sum(one[dim] for one in tensors_shape[:index] if not _is_nothing(one, g.ndim))
    return _part(g, dim, start, shape[dim])


def _part(input, axis, start, size):
    return getitem(input, (slice(None),) * axis + (slice(start, start + size),))


_cat.grads(tensors=_dx_of_cat)


def cat(tensors, dim=0):
    """Tensors one after the other along a dimension; those of shape (0,) are skipped beside others.

    Math    out = [x_0, x_1, ...]
    Grads   dx_k = the part of g that came from x_k
    Shapes  equal but for dim, where the sizes add up
    """
    tensors = tensors_of("cat", tensors)
    ndim = max(x.ndim for x in tensors)
    if any(not x.ndim for x in tensors):
        raise ShapeError(f"cat: tensors have shapes {[x.shape for x in tensors]}, wanted dimensions; use stack")
    axis = axis_of("cat", dim, ndim)
    shapes = {k: x.shape for k, x in enumerate(tensors) if not _is_nothing(x.shape, ndim)}
    first = next(iter(shapes))
    for k, shape in shapes.items():
        if len(shape) != ndim or shape[:axis] != shapes[first][:axis] or shape[axis + 1 :] != shapes[first][axis + 1 :]:
            raise ShapeError(
                f"cat: tensors[{k}] has shape {shape}, tensors[{first}] {shapes[first]}; "
                f"they may differ in dim {dim} only"
            )
    return _cat(*tensors, dim=axis)


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
    return tuple([_part(input, axis, start, size) for start, size in zip(starts, sizes, strict=False)])


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
    chunks = at_least("chunk", "chunks", chunks, 1)
    return split(input, -(-size // chunks), axis) if size else _parts(input, axis, [0] * chunks)


def unbind(input, dim=0):
    """The elements along a dimension, each without it.

    Math    out_k = input[k] along dim
    Grads   dinput[k] = g_k
    Shapes  (..., n, ...) -> a tuple of n times (..., ...)
    """
    axis, size = sized_axis("unbind", "input", input, dim)
    return tuple([getitem(input, (slice(None),) * axis + (k,)) for k in range(size)])
