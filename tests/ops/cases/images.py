"""Rows of convolutions, pools and resizing."""

import numpy as np

from minigrad_kernels.conv2d import reference as conv2d

from . import Op, away, given, real, refusal, sample, ties

NAN, INF = float("nan"), float("inf")


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


# ---- convolutions ----------------------------------------------------------------------------------------------------


def _convolved(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    ndim, images, filters = weight.ndim - 2, _lifted(x, weight.ndim - 2), _lifted(weight, weight.ndim - 2)
    stride, dilation = _pair(stride, ndim), _pair(dilation, ndim)
    reach = [d * (k - 1) for d, k in zip(dilation, filters.shape[2:], strict=True)]
    if isinstance(padding, str):
        widths = [(n // 2, n - n // 2) if padding == "same" else (0, 0) for n in reach]
    else:
        widths = [(n, n) for n in _pair(padding, ndim, 0)]
    images = np.pad(images, [(0, 0), (0, 0), *widths])
    return _lowered(conv2d.forward(images, filters, bias, False, stride, (0, 0), dilation, groups), x, ndim)


def _transposed(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    ndim, images, filters = weight.ndim - 2, _lifted(x, weight.ndim - 2), _lifted(weight, weight.ndim - 2)
    settings = [_pair(stride, ndim), _pair(padding, ndim, 0), _pair(dilation, ndim)]
    rows = zip(images.shape[2:], filters.shape[2:], *settings, _pair(output_padding, ndim, 0), strict=True)
    size = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 + more for n, k, s, p, d, more in rows)
    out = conv2d.input_grad(images, filters, *settings, groups, size)
    return _lowered(out if bias is None else out + bias[:, None, None], x, ndim)


def _input_grad(g, weight, shape, stride=1, padding=0, dilation=1, groups=1):
    return conv2d.input_grad(g, weight, *(_pair(one, 2) for one in (stride, padding, dilation)), groups, shape[2:])


def _weight_grad(g, x, shape, stride=1, padding=0, dilation=1, groups=1):
    return conv2d.weight_grad(g, x, *(_pair(one, 2) for one in (stride, padding, dilation)), groups, shape[2:])


GEOMETRIES = (  # x, w, out, keywords
    ((2, 3, 7, 6), (4, 3, 3, 2), (2, 4, 4, 4), dict(stride=(2, 1), padding=(1, 0), dilation=(1, 2))),
    ((1, 4, 6, 6), (6, 2, 3, 3), (1, 6, 6, 6), dict(padding=1, groups=2)),
    ((2, 4, 5, 5), (4, 1, 3, 3), (2, 4, 3, 3), dict(groups=4, padding=1, stride=2)),
    ((3, 5, 4, 4), (2, 5, 1, 1), (3, 2, 4, 4), {}),
    ((2, 2, 9, 9), (3, 2, 3, 3), (2, 3, 3, 3), dict(stride=3, padding=1, dilation=2)),
)


def _refused(op, x, w):
    """What every form refuses: x and w are the shapes of operands that fit, of one group."""
    images, filters = real(*x), real(*w)
    return (
        refusal(ValueError, " has 5 channels", real(x[0], 5, *x[2:]), filters),
        refusal(ValueError, f"{op}: weight has shape {w[1:]}", images, real(*w[1:])),
        refusal(ValueError, "bias has shape (9,)", images, filters, real(9)),
        refusal(ValueError, "groups=3", images, filters, groups=3),
        refusal(ValueError, f"{op}: stride is 0", images, filters, stride=0),
        refusal(TypeError, f"{op}: stride is 1.0", images, filters, stride=1.0),
    )


CONVOLUTIONS = [
    Op(
        "conv2d",
        (
            *(sample(real(*x), real(*w), **kw) for x, w, _, kw in GEOMETRIES),
            sample(real(2, 16, 5, 5), real(20, 16, 3, 3), real(20), 1, 2),
            sample(real(2, 2, 5, 6), real(3, 2, 2, 4), real(3), padding="same"),
            sample(real(2, 4, 4, 5), real(4, 2, 2, 3), None, (1, 1), "same", (3, 2), 2),
            sample(real(3, 5, 4), real(2, 3, 3, 3), real(2), 2, 1),
            sample(real(0, 3, 4, 4), real(2, 3, 2, 2), real(2)),
        ),
        (
            *_refused("conv2d", (2, 3, 5, 5), (4, 3, 3, 3)),
            refusal(ValueError, "but x with its padding is only", real(2, 3, 5, 5), real(4, 3, 6, 6)),
        ),
        _convolved,
    ),
    Op(
        "conv1d",
        (
            sample(real(2, 4, 9), real(6, 2, 3), real(6), (2,), [1], (2,), 2),
            sample(real(2, 3, 7), real(4, 3, 3)),
            sample(real(2, 3, 6), real(4, 3, 4), real(4), padding="same"),
            sample(real(3, 6), real(4, 3, 2), real(4)),
        ),
        _refused("conv1d", (2, 3, 7), (4, 3, 3)),
        _convolved,
    ),
    Op(
        "conv_transpose2d",
        (
            sample(real(2, 4, 3, 3), real(4, 3, 2, 3), real(6), (2, 3), (0, 1), (1, 2), 2, (2, 1)),
            *(sample(real(*out), real(*w), **kw) for _, w, out, kw in GEOMETRIES),
            sample(real(3, 4, 3), real(3, 2, 3, 3), real(2), 2, 1, 1),
        ),
        (
            *_refused("conv_transpose2d", (2, 4, 5, 5), (4, 4, 3, 3)),
            refusal(TypeError, "padding is 'same'", real(2, 4, 5, 5), real(4, 4, 3, 3), padding="same"),
        ),
        _transposed,
    ),
    Op(
        "conv_transpose1d",
        (
            sample(real(2, 4, 5), real(4, 2, 3), real(4), (2,), [1], (1,), 2, (3,)),
            sample(real(2, 3, 5), real(3, 4, 3)),
            sample(real(3, 5), real(3, 4, 2), real(4), 2),
        ),
        _refused("conv_transpose1d", (2, 4, 7), (4, 4, 3)),
        _transposed,
    ),
    Op(
        "conv2d_input_grad",
        tuple(sample(real(*out), real(*w), x, **kw) for x, w, out, kw in GEOMETRIES),
        (refusal(ValueError, "input_grad", real(2, 3, 4, 4), real(3, 2, 3, 3), (2, 2, 9, 9)),),
        _input_grad,
    ),
    Op(
        "conv2d_weight_grad",
        tuple(sample(real(*out), real(*x), w, **kw) for x, w, out, kw in GEOMETRIES),
        (refusal(ValueError, "weight_grad", real(2, 3, 4, 4), real(2, 2, 9, 9), (3, 2, 3, 3)),),
        _weight_grad,
    ),
]

# ---- pools -----------------------------------------------------------------------------------------------------------


def _count(size, kernel, stride, padding, dilation, ceil):
    """The number of windows; the last must begin inside the image or its padding before."""
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-free // stride) if ceil else free // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def _pooled(ndim, window):
    """A pool by a function of (elements of the window, its axes, its area within the padded image, options)."""

    def reference(x, kernel_size, stride=None, padding=0, *rest, **options):
        names = ("dilation", "ceil_mode") if window is _largest else ("ceil_mode", "count_include_pad")
        options = {**dict(zip(names, rest, strict=False)), **options}
        ceil, dilation = options.pop("ceil_mode", False), _pair(options.pop("dilation", 1), ndim)
        kernel, stride = _pair(kernel_size, ndim), _pair(kernel_size if stride is None else stride, ndim)
        padding, images = _pair(padding, ndim, 0), _lifted(x, ndim)
        settings = list(zip(images.shape[2:], kernel, stride, padding, dilation, strict=True))
        out = np.empty((*images.shape[:2], *(_count(*one, ceil) for one in settings)))
        for place in np.ndindex(out.shape[2:]):
            picked, area = images, 1
            for axis, (at, (size, k, s, p, d)) in enumerate(zip(place, settings, strict=True), 2):
                taps = [at * s - p + d * i for i in range(k)]
                area *= sum(tap < size + p for tap in taps)
                picked = picked.take([tap for tap in taps if 0 <= tap < size], axis)
            out[(..., *place)] = window(picked, area, **options)
        return _lowered(out, x, ndim)

    return reference


def _largest(window, area):
    return window.max((2, 3))


def _mean(window, area, count_include_pad=True):
    return window.sum((2, 3)) / (area if count_include_pad else np.prod(window.shape[2:]))


def _adapted(x, output_size):
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    pairs = [(n, n if count is None else count) for n, count in zip(x.shape[-2:], sizes, strict=True)]
    bounds = [[slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)] for n, count in pairs]
    rows = [[x[..., rows, columns].mean((-2, -1)) for columns in bounds[1]] for rows in bounds[0]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def _pool(name, shape, reference, *samples):
    few, ceil = shape[2:], {"ceil_mode": True}
    drawn = (
        sample(away(*shape), 3, 2, 1, **ceil),
        sample(away(*shape), 2),
        sample(away(3, *few), 3, 1, 1),
        sample(away(0, 3, *few), 2),
    )
    refusals = (
        refusal(ValueError, f"{name}: input has shape {few}", away(*few), 2),
        refusal(ValueError, f"{name}:", away(*shape), 9),
        refusal(ValueError, f"{name}: kernel_size is 0", away(*shape), 0),
        refusal(ValueError, f"{name}: padding is 2", away(*shape), 2, 2, 2),
    )
    return Op(name, (*drawn, *samples), refusals, reference)


PLANE, LINE = (2, 3, 7, 6), (2, 3, 7)
HOLES = given([[[NAN, 1.0, 2.0, 0.0], [1.0, INF, -INF, -INF], [3.0, -INF, -INF, -INF], [0.0, 1.0, NAN, 2.0]]])
POOLS = [
    _pool(
        "max_pool2d",
        PLANE,
        _pooled(2, _largest),
        sample(away(2, 3, 9, 9), (3, 2), (2, 1), (1, 0), (1, 2), True),
        sample(ties(2, 3, 6, 7), 3, 1, 1, 1, False, smooth=False),
        sample(HOLES, 2, smooth=False),
    ),
    _pool(
        "max_pool1d",
        LINE,
        _pooled(1, _largest),
        sample(away(2, 3, 9), 3, 2, 1, (2,), True),
        sample(ties(2, 3, 9), 3, 1, 1, smooth=False),
    ),
    _pool(
        "avg_pool2d",
        PLANE,
        _pooled(2, _mean),
        sample(real(2, 3, 7, 7), (3, 2), (2, 1), (1, 0), True, False),
        sample(real(2, 3, 7, 7), 3, 2, 1, count_include_pad=False),
    ),
    _pool("avg_pool1d", LINE, _pooled(1, _mean), sample(real(2, 3, 7), 3, 2, 1, True, False)),
    Op(
        "adaptive_avg_pool2d",
        (
            sample(real(2, 3, 7, 5), (3, 2)),
            sample(real(2, 3, 6, 6), 1),
            sample(real(2, 3, 4, 5), [3, None]),
            sample(real(3, 4, 5), (None, 2)),
        ),
        (
            refusal(ValueError, "adaptive_avg_pool2d: input has shape (3, 3)", real(3, 3), 1),
            refusal(ValueError, "adaptive_avg_pool2d: output_size is -1", real(1, 1, 3, 3), -1),
        ),
        _adapted,
    ),
]

# ---- resizing --------------------------------------------------------------------------------------------------------


def _resized(x, size=None, scale_factor=None, mode="nearest", align_corners=None):
    ndim = x.ndim - 2
    scales = np.atleast_1d(scale_factor).tolist() * (ndim if np.ndim(scale_factor) == 0 else 1)
    sizes = np.atleast_1d(size).tolist() * (ndim if np.ndim(size) == 0 else 1)
    for axis, count, scale in zip(range(2, x.ndim), sizes, scales, strict=True):
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


IMAGES, SEQUENCES = (1, 2, 4, 5), (2, 3, 5)
RESIZE = Op(
    "interpolate",
    (
        sample(real(*IMAGES), (8, 3), mode="bilinear"),
        sample(real(*IMAGES), (8, 3), mode="bilinear", align_corners=True),
        sample(real(*IMAGES), None, (1.7, 0.6), "bilinear"),
        sample(real(*IMAGES), (3, 7)),
        sample(real(*SEQUENCES), 9, mode="linear"),
        sample(real(*SEQUENCES), None, 1.7, "linear", True),
        sample(real(0, 3, 4, 5), 2),
    ),
    (
        refusal(ValueError, "interpolate: size is None and scale_factor None, wanted one", real(*IMAGES)),
        refusal(ValueError, "wanted (N, C, L) for mode 'linear'", real(*IMAGES), 2, mode="linear"),
        refusal(TypeError, "interpolate: size is (2,), wanted an integer or 2", real(*IMAGES), (2,)),
        refusal(ValueError, "align_corners is True, wanted None", real(*IMAGES), 2, align_corners=True),
    ),
    _resized,
)

OPS = [*CONVOLUTIONS, *POOLS, RESIZE]
