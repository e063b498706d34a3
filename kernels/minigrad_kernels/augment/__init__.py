"""Batches of images from a data set of bytes: picked, cut at random places, mirrored, and normalised in one pass.

Images lie channels last. Products are rounded before the sum is, on every device, so that all give the same bits.
The random numbers are the caller's. Indices and offsets that lie on a GPU are not looked at before the launch: they
must be right.

Types   images uint8; indices and offsets int64; flips uint8 or bool; scale and shift float32; out float32, float16
        or bfloat16
Errors  ValueError for a shape, layout or index, TypeError for an element type or a kind of array
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_one_kind, check_output, nhwc
from ..toolchain.widening import widened

__all__ = ["gather_normalize", "pad_crop_normalize"]


def _vector(op, name, array, shape, dtype):
    check_array(op, name, array, shape, dtype)
    if not array.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} has strides {array.strides}, wants C order")
    return alias(array)


def _check_range(op, name, array, count):
    """Refuse numbers outside 0..count-1, where they can be looked at at no cost."""
    if type(array) is np.ndarray and array.size and not (array.min() >= 0 and array.max() < count):
        raise ShapeError(f"{op}: {name} has numbers from {array.min()} to {array.max()}, wants 0 to {count - 1}")


def _views(op, arrays):
    """(images, indices, scale, shift, out) as kernels see them; arrays: by name, in the order of the launcher."""
    images, indices, scale, shift, out = (arrays[name] for name in ("images", "indices", "scale", "shift", "out"))
    kind = type(images)
    for array in arrays.values():
        if type(array) is not kind:
            check_one_kind(op, arrays)
    check_array(op, "images", images, None, np.uint8)
    if images.ndim != 4:
        raise ShapeError(f"{op}: images have shape {images.shape}, wants (N, C, H, W)")
    count, channels, height, width = images.shape
    picks = _vector(op, "indices", indices, (indices.size,), np.int64)
    _check_range(op, "indices", indices, count)
    check_output(op, "out", out, (len(indices), channels, height, width), np.float32)
    numbers = (_vector(op, name, arrays[name], (channels,), np.float32) for name in ("scale", "shift"))
    return nhwc(op, "images", images), picks, *numbers, nhwc(op, "out", out)


@widened(outputs="out")
def gather_normalize(images, indices, scale, shift, out):
    """Some images of a data set, each channel scaled and shifted.

    Math    out[n, c, h, w] = images[indices[n], c, h, w] * scale[c] + shift[c]
    Grads   none: images are bytes
    Shapes  images (N, C, H, W), indices (B,) of 0..N-1, scale and shift (C,), out (B, C, H, W)
    """
    op = "gather_normalize"
    kernel = implementation(__name__, op, images)
    arrays = dict(images=images, indices=indices, scale=scale, shift=shift, out=out)
    kernel(*_views(op, arrays))


@widened(outputs="out")
def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out):
    """Some images of a data set, padded, cut to their old size, perhaps mirrored left to right, scaled and shifted.

    Math    out[n, c, i, j] = padded[n, c, a + i, b + j'] * scale[c] + shift[c], (a, b) = offsets[n],
            j' = W - 1 - j where flips[n], else j; padded is images[indices[n]] with `padding` pixels more on each
            side, of 0 before they are normalised, or equal to the nearest pixel if `edge`
    Grads   none: images are bytes
    Shapes  images (N, C, H, W), indices (B,) of 0..N-1, offsets (B, 2) of 0..2 padding, flips (B,), scale and
            shift (C,), out (B, C, H, W)
    """
    op = "pad_crop_normalize"
    kernel = implementation(__name__, op, images)
    arrays = dict(images=images, indices=indices, offsets=offsets, flips=flips, scale=scale, shift=shift, out=out)
    images, picks, scale, shift, out = _views(op, arrays)
    if isinstance(padding, bool) or not isinstance(padding, int | np.integer):
        raise KindError(f"{op}: padding is {type(padding).__name__}, wants an integer")
    if not 0 <= padding < 1 << 30:
        raise ShapeError(f"{op}: padding is {padding}, wants 0 to {(1 << 30) - 1}")
    cuts = _vector(op, "offsets", offsets, (len(indices), 2), np.int64)
    _check_range(op, "offsets", offsets, 2 * padding + 1)
    check_array(op, "flips", flips)
    mirrored = _vector(op, "flips", flips.view(np.uint8) if flips.dtype == bool else flips, indices.shape, np.uint8)
    kernel(images, picks, cuts, mirrored, int(padding), bool(edge), scale, shift, out)
