"""Ops that put elements in order of size; NaN counts as larger than any number.

Types   values as input, indices int64
Errors  ValueError if a size does not fit, IndexError for a dimension out of range, TypeError for other kinds
Source  Knuth 1998, "The Art of Computer Programming", volume 3, section 5.2.4, merging, which keeps equals in order
"""

from collections import namedtuple

from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import flag_of, integer_of
from ...core.tensor import Tensor, tensor_of
from ..axes import axis_of
from .pick import gather

__all__ = ["argsort", "sort", "topk"]

Ordered = namedtuple("Ordered", "values indices")


@device.there
def _order(op, input, dim, descending, count=None):
    """(the dimension, the first indices that put the elements along it in order); equal elements keep theirs."""
    axis, descending = axis_of(op, dim, tensor_of(op, "input", input).ndim), flag_of(op, "descending", descending)
    size = (input.shape or (1,))[axis]
    if count is not None and not 0 <= count <= size:
        raise ShapeError(f"{op}: k is {count}, wanted 0 to {size} for shape {input.shape}")
    with device.naming(op):
        return axis, Tensor.made(_indices(input.array, axis, descending, size if count is None else count))


def _indices(x, axis, descending, count):
    if not x.ndim:
        return device.zeros((), "int64", like=x)
    rows = x if axis == x.ndim - 1 else x.swapaxes(axis, -1)
    indices = _by_sorting(rows, descending)[..., :count]
    return device.contiguous(indices if rows is x else indices.swapaxes(axis, -1))


def _by_sorting(x, descending):
    values = device.cast(x, "float32") if device.is_half(x.dtype) else x  # NaN comes last, but in bfloat16
    array = values[..., ::-1] if descending else values
    indices = array.argsort(-1, kind="stable")
    return x.shape[-1] - 1 - indices[..., ::-1] if descending else indices


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
    largest, count = flag_of("topk", "largest", largest), integer_of("topk", "k", k)
    flag_of("topk", "sorted", sorted)
    axis, indices = _order("topk", input, dim, largest, count)
    return Ordered(gather(input, axis, indices), indices)
