"""Ops that pick by index Tensors, put back by them, and put in order.

Types   any; out as input; indices integers
Errors  ValueError if a shape or size does not fit, IndexError for a dimension or an index out of range, TypeError for
        other kinds
Source  Knuth 1998, "The Art of Computer Programming", volume 3, section 5.2.4, merging, which keeps equals in order;
        each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import math
from collections import namedtuple

from numpy import ndarray

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.check import axis_of, flag_of, integer_of, number_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ...device import array_module
from ..elementwise.choices import where
from .arrange import stack
from .select import getitem, pick, put, within
from .views import flatten, reshape, sized_axis

__all__ = ["argsort", "embedding", "gather", "index_select", "nonzero", "one_hot", "scatter", "scatter_add", "sort"]
__all__ += ["topk"]

# ---- one index for each element --------------------------------------------------------------------------------------


@device.there
def _places(op, input, dim, index):
    """Flat places for an index that is nowhere larger than input but along dim; one without elements always fits."""
    axis = axis_of(op, dim, tensor_of(op, "input", input).ndim)
    shape, sizes = (input.shape or (1,)), (tensor_of(op, "index", index).shape or (1,))
    device.common_place(op, {"input": input.array, "index": index.array})
    if not index.numel():
        return within(op, index, 0)
    if len(sizes) != len(shape) or any(i != axis and m > n for i, (m, n) in enumerate(zip(sizes, shape, strict=True))):
        raise ShapeError(
            f"{op}: index has shape {index.shape}, input {input.shape}; wanted no more but along dim {dim}"
        )
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]  # from one element to the next, in C order
    places = within(op, index, shape[axis]).array.reshape(sizes) * steps[axis]
    for i, m in enumerate(sizes):
        if i != axis and m > 1:
            places += device.arange(m, input.array).reshape(-1, *(1,) * (len(sizes) - i - 1)) * steps[i]
    return Tensor.made(places.reshape(index.shape), version=index.version)


def gather(input, dim, index):
    """One element along a dimension for each index.

    Math    out[..., k, ...] = input[..., index[..., k, ...], ...]
    Grads   dinput = g added at the picked places
    Shapes  index no larger than input but along dim; out as index
    """
    places = _places("gather", input, dim, index)
    return pick(flatten(input), places, 0)


def _source(op, index, src, dtype):
    """The part of src that the indices name a place for."""
    if src.dtype != dtype:
        raise KindError(f"{op}: src has elements {src.dtype}, input {dtype}; wanted one type")
    if src.ndim != index.ndim or any(m > n for m, n in zip(index.shape, src.shape, strict=True)):
        raise ShapeError(f"{op}: index has shape {index.shape}, src {src.shape}; wanted no more than src")
    return src if src.shape == index.shape else getitem(src, tuple([slice(n) for n in index.shape]))


def scatter_add(input, dim, index, src):
    """input with elements of src added at the index of each along a dimension.

    Math    out is input, but out[..., index[..., k, ...], ...] += src[..., k, ...]
    Grads   dinput = g        dsrc[..., k, ...] = g[..., index[..., k, ...], ...]
    Shapes  index no larger than src, nor than input but along dim; out as input
    """
    places = _places("scatter_add", input, dim, index)
    tensor_of("scatter_add", "src", src)
    added = put(_source("scatter_add", index, src, input.dtype), places, 0, (input.numel(),))
    return input + reshape(added, input.shape)


@primitive(fixed=("places",))
def _scatter(input, src, places):
    """input, a vector, with src at these places."""
    out = device.copy(input)
    out[places] = src
    return out


_scatter.grads(
    input=lambda g, places: _scatter(g, Tensor.made(device.zeros(places.shape, g.dtype, like=g.array)), places),
    src=lambda g, places: pick(g, places, 0),
)


def scatter(input, dim, index, src=None, *, value=None):
    """input with elements of src, or one number, at the index of each along a dimension; the last one stays.

    Math    out is input, but out[..., index[..., k, ...], ...] = src[..., k, ...]
    Grads   dinput is g, but 0 at the written places        dsrc[..., k, ...] = g[..., index[..., k, ...], ...]
    Shapes  index no larger than src, nor than input but along dim; out as input
    """
    places = _places("scatter", input, dim, index)
    if (src is None) == (value is None):
        raise KindError(f"scatter: src is {src!r}, value {value!r}; wanted one of them")
    if not isinstance(src, Tensor):
        number = number_of("scatter", "src", src) if value is None else number_of("scatter", "value", value)
        src = Tensor.made(device.full(index.shape, number, input.dtype, like=input.array))
    return reshape(_scatter(flatten(input), _source("scatter", index, src, input.dtype), places), input.shape)


def index_select(input, dim, index):
    """The slices along a dimension with these indices.

    Math    out[..., k, ...] = input[..., index[k], ...]
    Grads   dinput = g added at the picked places
    Shapes  index (K,); out as input, but K along dim
    """
    axis, size = sized_axis("index_select", "input", input, dim)
    if tensor_of("index_select", "index", index).ndim > 1:
        raise ShapeError(f"index_select: index has shape {index.shape}, wanted a vector")
    return pick(input, within("index_select", flatten(index), size), axis)


# ---- classes and words -----------------------------------------------------------------------------------------------


@device.there
def one_hot(input, num_classes=-1):
    """Class numbers as rows with a single 1.

    Math    out[..., c] = 1 if input[...] = c, else 0
    Grads   none
    Shapes  (...) -> (..., C); C is num_classes, for -1 one more than the largest number
    Types   input integers; out int64
    """
    count = integer_of("one_hot", "num_classes", num_classes)
    if count < -1 or (count < 1 and not tensor_of("one_hot", "input", input).numel()):
        raise ShapeError(f"one_hot: num_classes is {count}, wanted -1 or as many as there are; at least 1 for no input")
    classes = within("one_hot", tensor_of("one_hot", "input", input), 1 << 63 if count == -1 else count).array
    count = int(classes.max()) + 1 if count == -1 else count
    with device.naming("one_hot"):
        device.check_room((*classes.shape, count), "int64")
        return Tensor.made((classes[..., None] == device.arange(count, classes)).astype("int64"))


@device.there
def embedding(input, weight, padding_idx=None):
    """Rows of a table.

    padding_idx     a row that gets no gradient

    Math    out[..., :] = weight[input[...], :]
    Grads   dweight[v, :] = sum of g[..., :] where input[...] = v
    Shapes  input (...) of integers, weight (V, D) -> (..., D)
    """
    if tensor_of("embedding", "weight", weight).ndim != 2:
        raise ShapeError(f"embedding: weight has shape {weight.shape}, wanted (V, D)")
    count = weight.shape[0]
    if padding_idx is not None and not -count <= integer_of("embedding", "padding_idx", padding_idx) < count:
        raise ShapeError(f"embedding: padding_idx is {padding_idx}, wanted {-count} to {count - 1}")
    places = within("embedding", tensor_of("embedding", "input", input), count)
    out = pick(weight, places, 0)
    if padding_idx is None or not out.requires_grad:
        return out
    return where(Tensor.made((places.array == padding_idx % count)[..., None]), out.detach(), out)


def nonzero(input, *, as_tuple=False):
    """Where the elements are not 0: a row of subscripts for each, in C order, or the columns of that as a tuple.

    Math    out[k, :] = the subscripts of the k-th element that is not 0
    Grads   none
    Shapes  (n_0, ..., n_d) -> (K, d + 1), or a tuple of d + 1 times (K,)
    Types   out int64
    """
    found = where(tensor_of("nonzero", "input", input))
    if flag_of("nonzero", "as_tuple", as_tuple):
        return found
    return stack(found, 1)[:, : input.ndim]


# ---- order of size; NaN counts as larger than any number -------------------------------------------------------------

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
    values = device.cast(x, "float32") if device.is_half(x.dtype) else x  # NaN comes last, but in bfloat16
    rows = values.swapaxes(axis, -1)
    rows = rows[..., ::-1] if descending else rows
    indices = _order_of_unequals(rows) if type(rows) is ndarray and rows.dtype.kind == "f" else None
    indices = rows.argsort(-1, kind="stable") if indices is None else indices
    indices = x.shape[axis] - 1 - indices[..., ::-1] if descending else indices
    return device.contiguous(indices[..., :count].swapaxes(axis, -1))


def _order_of_unequals(rows):
    """The indices by a faster sort, which does not keep the order of equals; None if there are equals or NaN."""
    indices = rows.argsort(-1)
    ordered = array_module(rows).take_along_axis(rows, indices, -1)
    return indices if (ordered[..., :-1] < ordered[..., 1:]).all() else None


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
