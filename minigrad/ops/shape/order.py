"""Ops that put elements in order of size; NaN counts as larger than any number.

Types   values as input, indices int64
Errors  ValueError if a size does not fit, IndexError for a dimension out of range, TypeError for other kinds
Source  Knuth 1998, "The Art of Computer Programming", volume 3, section 5.2.4, merging, which keeps equals in order
"""

from collections import namedtuple

from minigrad_kernels.errors import ShapeError

from ... import device
from ...tensor import Tensor
from ..arguments import flag_of, integer_of, tensor_of
from ..axes import axis_of
from .pick import gather
from .select import getitem

__all__ = ["argsort", "sort", "topk"]

Ordered = namedtuple("Ordered", "values indices")


@device.there
def _order(op, input, dim, descending):
    """(the dimension, indices that put the elements along it in order); equal elements keep theirs."""
    axis, descending = axis_of(op, dim, tensor_of(op, "input", input).ndim), flag_of(op, "descending", descending)
    with device.naming(op):
        return axis, _indices(input, axis, descending)


def _indices(input, axis, descending):
    if not input.ndim:
        return Tensor.made(device.zeros((), "int64", like=input.data))
    backwards = (slice(None),) * axis + (slice(None, None, -1),)
    values = input.data  # NaN comes last, but in bfloat16
    values = device.cast(values, "float32") if device.is_half(values.dtype) else values
    array = values[backwards] if descending else values
    indices = array.argsort(axis, kind="stable")
    return Tensor.made(array.shape[axis] - 1 - indices[backwards] if descending else indices)


def argsort(input, dim=-1, descending=False, *, stable=False):
    """The indices that sort along a dimension; equal elements keep their order, stable or not.

    Math    input[out_0] <= input[out_1] <= ... along dim, or >= if descending
    Grads   none
    Shapes  out as input
    """
    flag_of("argsort", "stable", stable)
    return _order("argsort", input, dim, descending)[1]


def sort(input, dim=-1, descending=False, *, stable=False):
    """The elements in order along a dimension, and where they were; equal ones keep their order, stable or not.

    Math    values_k = input[indices_k], values_0 <= values_1 <= ... along dim, or >= if descending
    Grads   dinput[indices_k] = g_k
    Shapes  values and indices as input
    """
    flag_of("sort", "stable", stable)
    axis, indices = _order("sort", input, dim, descending)
    return Ordered(gather(input, axis, indices), indices)


def topk(input, k, dim=-1, largest=True, sorted=True):
    """The k largest elements along a dimension, or the smallest, in order of size, and where they were.

    Math    values_0 >= ... >= values_(k-1) >= all others along dim, or <= if not largest
    Grads   dinput[indices_k] = g_k
    Shapes  values and indices as input, but k along dim
    """
    axis, indices = _order("topk", input, dim, flag_of("topk", "largest", largest))
    flag_of("topk", "sorted", sorted)
    count = integer_of("topk", "k", k)
    if not 0 <= count <= (input.shape or (1,))[axis]:
        raise ShapeError(f"topk: k is {count}, wanted 0 to {(input.shape or (1,))[axis]} for shape {input.shape}")
    indices = getitem(indices, (slice(None),) * axis + (slice(count),)) if input.ndim else indices
    return Ordered(gather(input, axis, indices), indices)
