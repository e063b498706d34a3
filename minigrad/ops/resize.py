"""Resizing of images and sequences; sequences are images of height 1.

Types   floating; out as input
Errors  ValueError for shapes, sizes and modes that do not fit, TypeError for other element types
Source  PyTorch's upsample_nearest and upsample_linear, which define where pixels lie
"""

import itertools
import math

import numpy as np

from minigrad_kernels.errors import ShapeError

from .. import device
from ..core.check import each, number_of, one_of
from ..core.tensor import Tensor, floating_of
from .autocast import composed
from .conv import as_given, images_of
from .pool import average_over

__all__ = ["interpolate"]

MODES = {"nearest": (1, 2), "linear": (1,), "bilinear": (2,)}  # and for how many dimensions
LIMIT = 1 << 31  # sizes are 32-bit in kernels


def _nearest(old, new, scale, align_corners):
    """[(a pixel of the input for each of the output, no weight)], by PyTorch's arithmetic in float32."""
    if new in (old, 2 * old):
        scale = None
    ratio = np.float32(old / new if scale is None else 1 / scale)
    at = np.floor(np.arange(new, dtype="float32") * ratio)
    return [(np.minimum(at.astype("int64"), old - 1), None)]


def _linear(old, new, scale, align_corners):
    """[(a pixel of the input for each of the output, its weight)] for the pixel before it and the one behind."""
    if align_corners:
        at = np.arange(new) * ((old - 1) / max(new - 1, 1))
    else:
        at = (np.arange(new) + 0.5) * (old / new if scale is None or new == old else 1 / scale) - 0.5
    at = np.maximum(at, 0)
    before = at.astype("int64")
    return [(before, 1 - (at - before)), (np.minimum(before + 1, old - 1), at - before)]


def _pick(images, rows, columns):
    """The pixels where these rows and columns cross: averages over windows of one pixel, which are fast both ways."""
    return average_over(images, *(np.stack([at, at + 1, np.ones_like(at)], 1) for at in (rows, columns)))


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


def _axes(op, sizes, size, scale_factor):
    """[(the old size, the new one, the scale or None where the sizes decide)] along each dimension."""
    if (size is None) == (scale_factor is None):
        raise ShapeError(f"{op}: size is {size} and scale_factor {scale_factor}, wanted one of them")
    if size is None:
        given = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * len(sizes)
        scales = [float(number_of(op, "scale_factor", scale)) for scale in given]
        new = [old * scale for old, scale in zip(sizes, scales, strict=True)]
    else:
        new, scales = each(op, "size", size, len(sizes), 1), (None,) * len(sizes)
    if not all(1 <= one < LIMIT for one in new):
        raise ShapeError(f"{op}: scale_factor is {scale_factor}, size {size}: {new} pixels; wanted 1 to {LIMIT - 1}")
    return [(old, math.floor(one), scale) for old, one, scale in zip(sizes, new, scales, strict=True)]


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
    ndim = floating_of(op, "input", input).ndim - 2
    if ndim not in MODES[one_of(op, "mode", mode, MODES)] or 0 in input.shape[1:]:
        wanted = " or ".join(["(N, C, L)", "(N, C, H, W)"][one - 1] for one in MODES[mode])
        raise ShapeError(
            f"{op}: input has shape {input.shape}, wanted {wanted} for mode {mode!r}, with no empty dimension but N"
        )
    if align_corners is not None and mode == "nearest":
        raise ShapeError(f"{op}: align_corners is {align_corners}, wanted None for mode {mode!r}")
    along = _nearest if mode == "nearest" else _linear
    taps = [along(*axis, align_corners) for axis in _axes(op, input.shape[2:], size, scale_factor)]
    height = [] if ndim == 2 else [_nearest(1, 1, None, None)]
    return as_given(_interpolated(images_of(op, input, ndim), height + taps), input, ndim)
