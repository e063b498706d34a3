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
from ..launcher import flag, launcher, reads, whole, writes
from ..toolchain import implementation

__all__ = ["gather_normalize", "pad_crop_normalize"]

BATCH = (
    reads("images", "N C H W", "uint8"),
    reads("indices", "B", "int64"),
    reads("scale shift", "C", "float32"),
    writes("out", "B C H W", counted=True),
)


def _check_range(op, name, array, count):
    """Refuse numbers outside 0..count-1."""
    if array.size and not (array.min() >= 0 and array.max() < count):
        raise ShapeError(f"{op}: {name} has numbers from {array.min()} to {array.max()}, wants 0 to {count - 1}")


def _looking(op, images, out, **counts):
    """What runs calls, on the CPU after a look at numbers, the second argument and those behind, below these counts."""
    kernel = implementation(__name__, op, images)
    if out.dtype != np.float32:
        raise KindError(f"{op}: out has type {out.dtype}, wants float32")

    def run(*given):
        for (name, count), array in zip(counts.items(), given[1:], strict=False):
            _check_range(op, name, array, count)
        kernel(*given)

    return run if type(images) is np.ndarray else kernel


@launcher(*BATCH)
def gather_normalize(images, indices, scale, shift, out):
    """Some images of a data set, each channel scaled and shifted.

    Math    out[n, c, h, w] = images[indices[n], c, h, w] * scale[c] + shift[c]
    Grads   none: images are bytes
    Shapes  images (N, C, H, W), indices (B,) of 0..N-1, scale and shift (C,), out (B, C, H, W)
    """
    return _looking("gather_normalize", images, out, indices=len(images))


@launcher(
    *BATCH, reads("offsets", "B 2", "int64"), reads("flips", "B", "uint8 bool"), padding=whole(0, 1 << 30), edge=flag
)
def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out):
    """Some images of a data set, padded, cut to their old size, perhaps mirrored left to right, scaled and shifted.

    Math    out[n, c, i, j] = padded[n, c, a + i, b + j'] * scale[c] + shift[c], (a, b) = offsets[n],
            j' = W - 1 - j where flips[n], else j; padded is images[indices[n]] with `padding` pixels more on each
            side, of 0 before they are normalised, or equal to the nearest pixel if `edge`
    Grads   none: images are bytes
    Shapes  images (N, C, H, W), indices (B,) of 0..N-1, offsets (B, 2) of 0..2 padding, flips (B,), scale and
            shift (C,), out (B, C, H, W)
    """
    run = _looking("pad_crop_normalize", images, out, indices=len(images), offsets=2 * padding + 1)
    return lambda images, indices, offsets, flips, *others: run(images, indices, offsets, flips.view(np.uint8), *others)
