"""Resizing of images and sequences; sequences are images of height 1.

Types   floating; out as input
Errors  ValueError for shapes, sizes and modes that do not fit, TypeError for other element types
Source  PyTorch's upsample_nearest and upsample_linear, which define where pixels lie
"""

import itertools
import math

from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..core.check import integer_of, number_of
from ..core.tensor import Tensor
from .elementwise.conversions import composed
from .images import as_given, floating_of, images_of
from .pool import average_over

__all__ = ["interpolate"]

MODES = {"nearest": (1, 2), "linear": (1,), "bilinear": (2,)}  # and for how many dimensions
LIMIT = 1 << 31  # sizes are 32-bit in kernels


def _nearest(module, old, new, scale, align_corners):
    """[(a pixel of the input for each of the output, no weight)], by PyTorch's arithmetic in float32."""
    if new in (old, 2 * old):
        scale = None
    ratio = module.float32(old / new if scale is None else 1 / scale)
    at = module.floor(module.arange(new, dtype="float32") * ratio)
    return [(module.minimum(at.astype("int64"), old - 1), None)]


def _linear(module, old, new, scale, align_corners):
    """[(a pixel of the input for each of the output, its weight)] for the pixel before it and the one behind."""
    if align_corners:
        at = module.arange(new) * ((old - 1) / max(new - 1, 1))
    else:
        at = (module.arange(new) + 0.5) * (old / new if scale is None or new == old else 1 / scale) - 0.5
    at = module.clip(at, 0, old - 1)
    before = at.astype("int64")
    return [(before, 1 - (at - before)), (module.minimum(before + 1, old - 1), at - before)]


def _pick(images, rows, columns):
    """The pixels where these rows and columns cross: averages over windows of one pixel, which are fast both ways."""
    module = device.CPU.module  # tables of windows stay on the host
    windows = [module.stack([at, at + 1, module.ones_like(at)], 1) for at in (rows, columns)]
    return average_over(images, *windows)


def _interpolated(images, taps):
    """The sum over all pairs of a tap of the rows and one of the columns: their weights times the pixels."""
    total = None
    for (rows, v), (columns, w) in itertools.product(*taps):
        part = _pick(images, rows, columns)
        if w is not None:
            weights = w if v is None else v[:, None] * w
            part = part * Tensor.made(device.constant(device.cast(weights, images.dtype), images.device))
        total = part if total is None else total + part
    return total


def _sizes(op, sizes, size, scale_factor):
    """[(the old size, the new one, the scale or None where the sizes decide)] along each dimension."""
    if (size is None) == (scale_factor is None):
        raise ShapeError(f"{op}: size is {size} and scale_factor {scale_factor}, wanted one of them")
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    each = tuple(given) if isinstance(given, tuple | list) else (given,) * len(sizes)
    if len(each) != len(sizes):
        raise ShapeError(f"{op}: {name} is {given}, wanted a number or {len(sizes)} (input has sizes {sizes})")
    if size is not None:
        new, scales = [integer_of(op, name, one) for one in each], [None] * len(sizes)
    else:
        scales = [float(number_of(op, name, one)) for one in each]
        new = [old * scale for old, scale in zip(sizes, scales, strict=True)]
    if not all(1 <= one < LIMIT for one in new):
        raise ShapeError(f"{op}: {name} is {given}, which makes sizes {new}; wanted 1 to {LIMIT - 1}")
    return [(old, math.floor(one), scale) for old, one, scale in zip(sizes, new, scales, strict=True)]


def _check(op, input, mode, align_corners):
    ndim = floating_of(op, "input", input).ndim - 2
    if not isinstance(mode, str):
        raise KindError(f"{op}: mode is {mode!r}, wanted a string")
    if mode not in MODES:
        raise ShapeError(f"{op}: mode is {mode!r}, wanted one of {', '.join(map(repr, MODES))}")
    if ndim not in MODES[mode] or 0 in input.shape[1:]:
        wanted = " or ".join(["(N, C, L)", "(N, C, H, W)"][one - 1] for one in MODES[mode])
        raise ShapeError(
            f"{op}: input has shape {input.shape}, wanted {wanted} for mode {mode!r}, with no empty dimension but N"
        )
    if align_corners is not None and mode == "nearest":
        raise ShapeError(f"{op}: align_corners is {align_corners}, wanted None for mode {mode!r}")


@composed
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """Images or sequences in another size.

    Math    pixel i of the output lies at x = r i of the input ('nearest') and is the pixel floor(x); with 'linear' and
            'bilinear' it lies at x = r (i + 1/2) - 1/2, or with align_corners at x = i (H - 1) / (I - 1), no less than
            0, and is (1 - t) pixel floor(x) + t pixel (floor(x) + 1) for the fraction t of x
            r is 1 / scale_factor; H / I where size is given, and where the size stays or doubles ('nearest')
    Grads   dinput = g spread over these pixels with the same weights
    Shapes  (N, C, H, W) -> (N, C, I, J), or (N, C, L) alike; I = size or floor(H scale_factor), one number or one for
            each dimension
    Errors  ValueError also for other modes
    """
    op = "interpolate"
    _check(op, input, mode, align_corners)
    module, ndim = device.CPU.module, input.ndim - 2
    along = _nearest if mode == "nearest" else _linear
    taps = [along(module, *axis, align_corners) for axis in _sizes(op, input.shape[2:], size, scale_factor)]
    height = [] if ndim == 2 else [_nearest(module, 1, 1, None, None)]
    return as_given(_interpolated(images_of(op, input, ndim), height + taps), input, ndim)
