"""Batches of images from a data set of bytes: picked, cut at random places, mirrored, and normalised in one pass.

For devices alone: on the CPU the transforms of minigrad.data do this. Images lie channels last. Products are rounded
before the sum is, as there, so that all devices give the same bits. The random numbers are the caller's. Indices and
offsets are not looked at before the launch: they must be right.

Types   images uint8; indices, offsets and flips int64; scale, shift and out float32
Errors  ValueError for a shape or layout, TypeError for an element type or a kind of array
"""

from ..launcher import launcher, reads, whole, writes

__all__ = ["pad_crop_normalize"]


@launcher(
    reads("images", "N C H W", "uint8"),
    reads("indices flips", "B", "int64"),
    reads("offsets", "2 B", "int64"),
    reads("scale shift", "C", "float32"),
    writes("out", "B C H W", "float32", counted=True),
    padding=whole(0, 1 << 30),
)
def pad_crop_normalize(images, indices, offsets, flips, padding, scale, shift, out):
    """Some images of a data set, padded, cut to their old size, perhaps mirrored left to right, scaled and shifted.

    Math    out[n, c, i, j] = padded[n, c, a + i, b + j'] * scale[c] + shift[c], (a, b) = offsets[:, n],
            j' = W - 1 - j where flips[n], else j; padded is images[indices[n]] with `padding` pixels of 0 more on
            each side
    Grads   none: images are bytes
    Shapes  images (N, C, H, W), indices (B,) of 0..N-1, offsets (2, B) of 0..2 padding, flips (B,), scale and
            shift (C,), out (B, C, H, W)
    """
