"""What is done to a batch of images on its way to the network.

A transform is called as transform(images, generator), with images (N, C, H, W) of uint8 or a floating type
and a numpy.random.Generator, and returns a new batch, lying channels last in memory; the batch given is left
as it was. All randomness comes from the generator, so equal generators give equal bits.
"""

from dataclasses import dataclass

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from .seeds import checked_integer, checked_numbers

__all__ = ["Compose", "Flip", "Normalize", "PadCrop"]

MODES = ("constant", "edge")


@dataclass(frozen=True)
class Normalize:
    """Shift and scale each channel to about zero mean and unit deviation.

    Math    out = (x / 255 - mean) / std for uint8, (x - mean) / std for floats, computed as x * scale + shift
    Shapes  mean and std: one number a channel, in units of pixels scaled to 0..1
    Types   uint8 and float32 give float32, float64 gives float64
    Errors  ShapeError if mean and std differ in length, std is not above 0, or the channels do not fit
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self):
        for field in ("mean", "std"):
            object.__setattr__(self, field, checked_numbers("Normalize", field, getattr(self, field)))
        if len(self.mean) != len(self.std):
            raise ShapeError(f"Normalize: mean has {len(self.mean)} numbers, std has {len(self.std)}")
        if min(self.std, default=1) <= 0:
            raise ShapeError(f"Normalize: std is {self.std}, want numbers above 0")

    def __call__(self, images, generator=None):
        rows = rows_of("Normalize", images)
        n, h, w, c = rows.shape
        if c != len(self.mean):
            raise ShapeError(f"Normalize: images have {c} channels (shape {images.shape}), mean has {len(self.mean)}")
        dtype = np.float64 if rows.dtype == np.float64 else np.float32
        levels = 255 if rows.dtype == np.uint8 else 1
        scale = 1 / (levels * np.array(self.std))
        shift = -np.array(self.mean) / np.array(self.std)
        # One long inner loop instead of one over the channels of each pixel.
        scale, shift = (np.tile(v.astype(dtype), h * w) for v in (scale, shift))
        out = np.multiply(rows.reshape(n, h * w * c), scale, dtype=dtype)
        out += shift
        return out.reshape(rows.shape).transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class PadCrop:
    """Pad each side, then cut the old size out at a random place, another for each image.

    Math    out[n, c, i, j] = padded[n, c, i + a[n], j + b[n]], a and b uniform in 0 .. 2 padding
    Shapes  as given; mode "constant" pads with zeros, "edge" with the nearest pixel
    """

    padding: int
    mode: str = "constant"

    def __post_init__(self):
        object.__setattr__(self, "padding", checked_integer("PadCrop", "padding", self.padding, 0))
        if self.mode not in MODES:
            raise ShapeError(f"PadCrop: mode is {self.mode!r}, want one of {MODES}")

    def __call__(self, images, generator):
        rows = rows_of("PadCrop", images)
        n, h, w, c = rows.shape
        p = self.padding
        a, b = generator.integers(0, 2 * p + 1, size=(2, n))
        padded = np.pad(rows, ((0, 0), (p, p), (p, p), (0, 0)), mode=self.mode)
        padded = padded.reshape(n, h + 2 * p, (w + 2 * p) * c)
        # All cuts as one strided view, [image, a, b] -> rows of whole pixels: picking copies runs of memory.
        image, row, item = padded.strides
        cuts = np.lib.stride_tricks.as_strided(
            padded, (n, 2 * p + 1, 2 * p + 1, h, w * c), (image, row, c * item, row, item), writeable=False
        )
        return cuts[np.arange(n), a, b].reshape(rows.shape).transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class Flip:
    """Mirror each image left to right with probability p.

    Math    out[n, c, i, j] = x[n, c, i, W - 1 - j] where a number drawn uniformly from 0..1 is below p, else
            x
    Shapes  as given
    """

    p: float = 0.5

    def __post_init__(self):
        if not 0 <= self.p <= 1:
            raise ShapeError(f"Flip: p is {self.p}, want 0 to 1")

    def __call__(self, images, generator):
        rows = rows_of("Flip", images)
        mirrored = generator.random(len(rows)) < self.p
        out = rows.copy()
        out[mirrored] = rows[mirrored, :, ::-1]
        return out.transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class Compose:
    """Several transforms, one after the other, drawing from one generator."""

    transforms: tuple

    def __post_init__(self):
        object.__setattr__(self, "transforms", tuple(self.transforms))
        for transform in self.transforms:
            if not callable(transform):
                raise KindError(f"Compose: {transform!r} is not a transform: it cannot be called")

    def __call__(self, images, generator):
        for transform in self.transforms:
            images = transform(images, generator)
        return images


def rows_of(op, images):
    """The images as a dense array (N, H, W, C); a view where they lie channels last already."""
    if not isinstance(images, np.ndarray) or images.dtype not in (np.uint8, np.float32, np.float64):
        got = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise KindError(f"{op}: images are {got}, want a NumPy array of uint8, float32 or float64")
    if images.ndim != 4:
        raise ShapeError(f"{op}: images have shape {images.shape}, want (N, C, H, W)")
    return np.ascontiguousarray(images.transpose(CHANNELS_LAST))
