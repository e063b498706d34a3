"""Batches of images from a data set of bytes: picked, cut at random places, mirrored, and normalised in one pass.

For devices alone: on the CPU the transforms of minigrad.data do this. Images lie channels last. Products are rounded
before the sum is, as there, so that all devices give the same bits. The random numbers are the caller's. Indices and
offsets are not looked at before the launch: they must be right.

Types   images uint8; indices and offsets int64; flips uint8 or bool; scale, shift and out float32
Errors  ValueError for a shape or layout, TypeError for an element type or a kind of array
"""

import numpy as np

from ..launcher import flag, launcher, reads, whole, writes
from ..toolchain import implementation

__all__ = ["gather_normalize", "pad_crop_normalize"]

BATCH = (
    reads("images", "N C H W", "uint8"),
    reads("indices", "B", "int64"),
    reads("scale shift", "C", "float32"),
    writes("out", "B C H W", "float32", counted=True),
)


@launcher(*BATCH)
def gather_normalize(images, indices, scale, shift, out):
    """Some images of a data set, each channel scaled and shifted.

    Math    out[n, c, h, w] = images[indices[n], c, h, w] * scale[c] + shift[c]
    Grads   none: images are bytes
    Shapes  images (N, C, H, W), indices (B,) of 0..N-1, scale and shift (C,), out (B, C, H, W)
    """
    return implementation(__name__, "gather_normalize", images)


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
    run = implementation(__name__, "pad_crop_normalize", images)
    return lambda images, indices, offsets, flips, *others: run(images, indices, offsets, flips.view(np.uint8), *others)
