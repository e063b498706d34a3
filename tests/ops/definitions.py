"""Definitions in NumPy of the ops whose docstrings state them in words, or that NumPy takes with other arguments.

Each has the name of its op, with "_" behind that of a function of Python's. It takes the arguments of its op, with
arrays of float64 in the place of Tensors. Losses, activations and others are defined by their docstrings, which
tests/ops/test_formulas.py evaluates.
"""

import numpy as np

from minigrad_kernels.conv2d import reference as trio

# ---- reductions, scans, orders ---------------------------------------------------------------------------------------


def _axes(x, dim):
    """dim as NumPy takes it: all where none is named; a scalar has one dimension to name."""
    if dim is None or isinstance(dim, tuple | list) and not dim:
        return None
    return () if not x.ndim else tuple(dim) if isinstance(dim, list) else dim


def _over(function):
    def reduced(x, dim=None, keepdim=False, dtype=None):
        return function(x if dtype is None else x.astype(dtype), axis=_axes(x, dim), keepdims=keepdim)

    return reduced


def _truth(function):
    """any and all, which over no dimensions keep every element."""
    return lambda x, dim=None, keepdim=False: x != 0 if dim == () else _over(function)(x, dim, keepdim)


def _place(function):
    return lambda x, dim=None, keepdim=False: function(x, dim if x.ndim else None, keepdims=keepdim and x.ndim > 0)


def _extreme(function, places, of_two):
    """max and min: with the places where a dimension is named, or of two Tensors."""

    def extreme(x, dim=None, keepdim=False, other=None):
        if other is not None or isinstance(dim, np.ndarray):
            return of_two(x, dim if other is None else other)
        if dim is None:
            return function(x)
        return (function(x, dim, keepdims=keepdim), places(x, dim, keepdims=keepdim)) if x.ndim else (x, np.array(0))

    return extreme


def _scan(function):
    return lambda x, dim, dtype=None: function(x if dtype is None else x.astype(dtype), dim) if x.ndim else x


def argsort(x, dim=-1, descending=False, stable=False):
    return np.argsort(-x if descending else x, dim if x.ndim else None, kind="stable").reshape(x.shape)


def sort(x, dim=-1, descending=False, stable=False):
    places = argsort(x, dim, descending)
    return (np.take_along_axis(x, places, dim) if x.ndim else x), places


def topk(x, k, dim=-1, largest=True, sorted=True):
    places = np.take(np.argsort(-x if largest else x, dim, kind="stable"), range(k), dim)
    return np.take_along_axis(x, places, dim), places


# ---- views and copies ------------------------------------------------------------------------------------------------


def flatten(x, start_dim=0, end_dim=-1):
    shape = x.shape or (1,)
    start, end = start_dim % len(shape), end_dim % len(shape)
    return x.reshape(*shape[:start], int(np.prod(shape[start : end + 1])), *shape[end + 1 :])


def unflatten(x, dim, sizes):
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def squeeze(x, dim=None):
    dims = range(x.ndim) if dim is None else [d % x.ndim for d in np.atleast_1d(dim).astype(int)] if x.ndim else []
    return np.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def expand(x, size):
    lead = len(size) - x.ndim
    return np.broadcast_to(x, tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)))


def diagonal(x, offset=0, dim1=0, dim2=1):
    if offset >= x.shape[dim2] or -offset >= x.shape[dim1]:
        rest = [size for axis, size in enumerate(x.shape) if axis not in (dim1 % x.ndim, dim2 % x.ndim)]
        return np.zeros((*rest, 0), x.dtype)
    return np.diagonal(x, offset, dim1, dim2)


def split(x, sizes, dim=0):
    whole = isinstance(sizes, int)
    return np.split(x, list(range(sizes, max(x.shape[dim], 1), sizes) if whole else np.cumsum(sizes)[:-1]), dim)


def pad(x, pad, mode="constant", value=0):
    how = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    settings = {"constant_values": value or 0} if mode == "constant" else {}
    for axis, before, after in zip(range(x.ndim - 1, -1, -1), pad[::2], pad[1::2], strict=False):
        x = x[(slice(None),) * axis + (slice(max(-before, 0), x.shape[axis] - max(-after, 0)),)]
        widths = [(max(before, 0), max(after, 0)) if d == axis else (0, 0) for d in range(x.ndim)]
        x = np.pad(x, widths, how, **settings)
    return x


# ---- picks by index ------------------------------------------------------------------------------------------------


def _places(dim, index):
    places = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    return tuple(places)


def _scattered(put):
    def scattered(x, dim, index, src=None, value=None):
        x, src = x.copy(), src if value is None else value
        put(x, _places(dim, index), src[tuple(map(slice, index.shape))] if isinstance(src, np.ndarray) else src)
        return x

    return scattered


def one_hot(index, num_classes=-1):
    return np.eye(index.max() + 1 if num_classes == -1 else num_classes, dtype=np.int64)[index]


# ---- images ----------------------------------------------------------------------------------------------------------


def _pair(value, ndim, alone=1):
    """A setting of height and width; of one dimension it is the width's, and alone the height's."""
    numbers = np.atleast_1d(value).tolist()
    return (alone, numbers[0]) if ndim == 1 else tuple(numbers * (2 // len(numbers)))


def _lifted(x, ndim):
    """(N, C, H, W) of an input with so many dimensions of pixels."""
    x = x if x.ndim == ndim + 2 else x[None]
    return x if ndim == 2 else x[:, :, None]


def _lowered(out, x, ndim):
    """A result (N, C, H, W) with as many dimensions as the input."""
    out = out if ndim == 2 else out[:, :, 0]
    return out if x.ndim == ndim + 2 else out[0]


def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    ndim, images, filters = weight.ndim - 2, _lifted(x, weight.ndim - 2), _lifted(weight, weight.ndim - 2)
    stride, dilation = _pair(stride, ndim), _pair(dilation, ndim)
    reach = [d * (k - 1) for d, k in zip(dilation, filters.shape[2:], strict=True)]
    if isinstance(padding, str):
        widths = [(n // 2, n - n // 2) if padding == "same" else (0, 0) for n in reach]
    else:
        widths = [(n, n) for n in _pair(padding, ndim, 0)]
    images = np.pad(images, [(0, 0), (0, 0), *widths])
    return _lowered(trio.forward(images, filters, bias, False, stride, (0, 0), dilation, groups), x, ndim)


def conv_transpose2d(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    ndim, images, filters = weight.ndim - 2, _lifted(x, weight.ndim - 2), _lifted(weight, weight.ndim - 2)
    settings = [_pair(stride, ndim), _pair(padding, ndim, 0), _pair(dilation, ndim)]
    rows = zip(images.shape[2:], filters.shape[2:], *settings, _pair(output_padding, ndim, 0), strict=True)
    size = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 + more for n, k, s, p, d, more in rows)
    out = trio.input_grad(images, filters, *settings, groups, size)
    return _lowered(out if bias is None else out + bias[:, None, None], x, ndim)


def _trio(function):
    def gradient(g, other, shape, stride=1, padding=0, dilation=1, groups=1):
        return function(g, other, *(_pair(one, 2) for one in (stride, padding, dilation)), groups, shape[2:])

    return gradient


def _pooled(ndim, *names):
    """A pool; names: its options behind the padding. Each window by itself."""

    def pooled(x, kernel_size, stride=None, padding=0, *rest, **options):
        options = {**dict(zip(names, rest, strict=False)), **options}
        kernel, images = _pair(kernel_size, ndim), _lifted(x, ndim)
        stride = kernel if stride is None else _pair(stride, ndim)
        padding, dilation = _pair(padding, ndim, 0), _pair(options.get("dilation", 1), ndim)
        settings = list(zip(images.shape[2:], kernel, stride, padding, dilation, strict=True))
        out = np.empty((*images.shape[:2], *(_count(*one, options.get("ceil_mode", False)) for one in settings)))
        for place in np.ndindex(out.shape[2:]):
            window, area = images, 1
            for axis, (at, (size, k, s, p, d)) in enumerate(zip(place, settings, strict=True), 2):
                taps = [at * s - p + d * i for i in range(k)]
                area *= sum(tap < size + p for tap in taps)  # within the padded image
                window = window.take([tap for tap in taps if 0 <= tap < size], axis)
            whole = area if options.get("count_include_pad", True) else np.prod(window.shape[2:])
            out[(..., *place)] = window.max((2, 3)) if "dilation" in names else window.sum((2, 3)) / whole
        return _lowered(out, x, ndim)

    return pooled


def _count(size, kernel, stride, padding, dilation, ceil):
    """The number of windows; the last must begin inside the image or its padding before."""
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-free // stride) if ceil else free // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def adaptive_avg_pool2d(x, output_size):
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    pairs = [(n, n if count is None else count) for n, count in zip(x.shape[-2:], sizes, strict=True)]
    bounds = [[slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)] for n, count in pairs]
    rows = [[x[..., rows, columns].mean((-2, -1)) for columns in bounds[1]] for rows in bounds[0]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def interpolate(x, size=None, scale_factor=None, mode="nearest", align_corners=None):
    axes = range(2, x.ndim)
    sizes, scales = ([one] * len(axes) if np.ndim(one) == 0 else one for one in (size, scale_factor))
    for axis, count, scale in zip(axes, sizes, scales, strict=True):
        n = x.shape[axis]
        count = int(n * scale) if count is None else count
        step, out = n / count if scale is None else 1 / scale, np.arange(count)
        if mode == "nearest":
            x = x.take(np.minimum((out * step).astype(int), n - 1), axis)
            continue
        at = out * ((n - 1) / max(count - 1, 1)) if align_corners else np.maximum((out + 0.5) * step - 0.5, 0)
        low = np.minimum(np.floor(at).astype(int), n - 1)
        share = (at - low).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        x = x.take(low, axis) * (1 - share) + x.take(np.minimum(low + 1, n - 1), axis) * share
    return x


# ---- norms and losses ------------------------------------------------------------------------------------------------


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    rows, shape = x.reshape(len(x), groups, -1), [-1 if d == 1 else 1 for d in range(x.ndim)]
    out = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + eps)
    out = out.reshape(x.shape) * (1 if weight is None else weight.reshape(shape))
    return out + (0 if bias is None else bias.reshape(shape))


def instance_norm(x, weight=None, bias=None, eps=1e-5):
    return group_norm(x, x.shape[1], weight, bias, eps)


def dropout(x, p=0.5, training=True, inplace=False):
    return x * (1 - p) if training else x


def _of_classes(logs, target, weight, ignore_index, reduction, smoothing=0.0):
    """Of classes by number, which are a distribution too, or of distributions, which are never ignored."""
    axis = min(1, logs.ndim - 1)
    weight = 1.0 if weight is None else weight.reshape([-1 if d == axis else 1 for d in range(logs.ndim)])
    counts, parts = 1, None
    if target.dtype.kind != "f":
        counts = target != ignore_index
        target = np.moveaxis(np.eye(logs.shape[axis])[np.where(counts, target, 0)], -1, axis)
        parts = ((target * weight).sum(axis) * counts).sum()
    target = (1 - smoothing) * target + smoothing / logs.shape[axis]
    values = -(target * weight * logs).sum(axis) * counts
    return {"none": values, "sum": values.sum(), "mean": values.sum() / (parts or values.size)}[reduction]


def nll_loss(x, target, weight=None, ignore_index=-100, reduction="mean"):
    return _of_classes(x, target, weight, ignore_index, reduction)


def cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    logs = x - np.log(np.exp(x).sum(min(1, x.ndim - 1), keepdims=True))
    return _of_classes(logs, target, weight, ignore_index, reduction, label_smoothing)


# ---- those of one line -----------------------------------------------------------------------------------------------

prod, amax, amin = map(_over, (np.prod, np.max, np.min))
any_, all_ = map(_truth, (np.any, np.all))
argmax, argmin = map(_place, (np.argmax, np.argmin))
cumsum, cumprod = map(_scan, (np.cumsum, np.cumprod))
max_, min_ = _extreme(np.max, np.argmax, np.maximum), _extreme(np.min, np.argmin, np.minimum)
tril, triu, t, movedim, repeat, broadcast_to = np.tril, np.triu, np.transpose, np.moveaxis, np.tile, expand
clamp = lambda x, min=None, max=None, inplace=False: np.clip(x, min, max)
chunk = lambda x, chunks, dim=0: split(x, -(-x.shape[dim] // chunks), dim)
unbind = lambda x, dim=0: list(np.moveaxis(x, dim, 0))
roll = lambda x, shifts, dims=None: np.roll(x, shifts, dims)
cat = lambda tensors, dim=0: np.concatenate(tensors, dim)
stack = lambda tensors, dim=0: np.stack(tensors, dim)
masked_select = lambda x, mask: np.broadcast_arrays(x, mask)[0][np.broadcast_arrays(x, mask)[1]]
gather = lambda x, dim, index: x[_places(dim, index)]
scatter_add, scatter = _scattered(np.add.at), _scattered(lambda x, places, values: x.__setitem__(places, values))
index_select = lambda x, dim, index: x.take(index, dim)
embedding = lambda index, weight, padding_idx=None: weight[index]
nonzero = lambda x, as_tuple=False: np.nonzero(x) if as_tuple else np.argwhere(x)
conv1d, conv_transpose1d, dropout1d, dropout2d = conv2d, conv_transpose2d, dropout, dropout
conv2d_input_grad, conv2d_weight_grad = map(_trio, (trio.input_grad, trio.weight_grad))
max_pool2d, max_pool1d = (_pooled(ndim, "dilation", "ceil_mode") for ndim in (2, 1))
avg_pool2d, avg_pool1d = (_pooled(ndim, "ceil_mode", "count_include_pad") for ndim in (2, 1))
