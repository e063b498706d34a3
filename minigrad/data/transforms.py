"""What is done to a batch of images on its way to the network.

A transform is called as transform(images, generator), with images (N, C, H, W) of uint8 or a floating type
and a numpy.random.Generator, and returns a new batch, lying channels last in memory; the batch given is left
as it was. All randomness comes from the generator, so equal generators give equal bits.
"""

import inspect
from dataclasses import dataclass

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from ..core.check import float_of, function_of, integer_of, number_of


@dataclass
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
        self.mean = per_channel("Normalize", "mean", self.mean)
        self.std = per_channel("Normalize", "std", self.std, len(self.mean))
        if min(self.std, default=1) <= 0:
            raise ShapeError(f"Normalize: std is {self.std}, wanted numbers above 0")

    def factors(self, level, dtype=np.float32):
        """(scale, shift) of each channel, for pixels of which `level` is the brightest."""
        mean, std = np.array(self.mean), np.array(self.std)
        return (1 / (level * std)).astype(dtype), (-mean / std).astype(dtype)

    def __call__(self, images, generator=None):
        rows = rows_of("Normalize", images)
        n, h, w, c = rows.shape
        if c != len(self.mean):
            raise ShapeError(f"Normalize: images have {c} channels (shape {images.shape}), mean has {len(self.mean)}")
        dtype = np.result_type(rows.dtype, np.float32)
        # One long inner loop instead of one over the channels of each pixel.
        scale, shift = (np.tile(v, h * w) for v in self.factors(255 if rows.dtype == np.uint8 else 1, dtype))
        out = np.multiply(rows.reshape(n, h * w * c), scale, dtype=dtype)
        out += shift
        return out.reshape(rows.shape).transpose(0, 3, 1, 2)


@dataclass
class PadCrop:
    """Pad each side, then cut the old size out at a random place, another for each image.

    Math    out[n, c, i, j] = padded[n, c, i + a[n], j + b[n]], a and b uniform in 0 .. 2 padding
            padded with zeros
    Shapes  as given
    """

    padding: int

    def __post_init__(self):
        self.padding = integer_of("PadCrop", "padding", self.padding, 0)

    def draw(self, count, generator):
        """The places (a, b) of so many images: integers (2, count)."""
        return generator.integers(0, 2 * self.padding + 1, size=(2, count))

    def __call__(self, images, generator):
        rows = rows_of("PadCrop", images)
        n, h, w, c = rows.shape
        p = self.padding
        a, b = self.draw(n, generator)
        padded = np.pad(rows, ((0, 0), (p, p), (p, p), (0, 0)))
        # Rows of whole pixels, so that picking [image, a, b] of all possible cuts copies runs of memory.
        padded = padded.reshape(n, h + 2 * p, (w + 2 * p) * c)
        cuts = np.lib.stride_tricks.sliding_window_view(padded, (h, w * c), (1, 2))
        return cuts[np.arange(n), a, b * c].reshape(rows.shape).transpose(0, 3, 1, 2)


@dataclass
class Flip:
    """Mirror each image left to right with probability p.

    Math    out[n, c, i, j] = x[n, c, i, W - 1 - j] where a number drawn uniformly from 0..1 is below p, else
            x
    Shapes  as given
    """

    p: float = 0.5

    def __post_init__(self):
        self.p = number_of("Flip", "p", self.p, 0, 1)

    def draw(self, count, generator):
        """Which of so many images are mirrored: booleans (count,)."""
        return generator.random(count) < self.p

    def __call__(self, images, generator):
        rows = rows_of("Flip", images)
        mirrored = self.draw(len(rows), generator)
        out = rows.copy()
        out[mirrored] = rows[mirrored, :, ::-1]
        return out.transpose(0, 3, 1, 2)


@dataclass
class Affine:
    """Turn, slant, stretch and shift each image at random; what comes from beyond its edges is 0.

    Math    out[n, c, i, j] = x[n, c, A (i, j) + t], interpolated between the four nearest pixels, positions being
            counted from the middle of an image; A = [[1, 0], [tan(s), 1]] R(a) / scale, a rotation by a
    degrees     of the angle a, drawn from -degrees .. degrees; shear: of s likewise
    scale       (least, most) of the scale, drawn for height and width apart
    translate   shares of height and width: t is at most these
    Types   uint8 is rounded
    """

    degrees: float = 8.0
    translate: tuple[float, float] = (0.08, 0.08)
    scale: tuple[float, float] = (0.85, 1.15)
    shear: float = 12.0

    def __call__(self, images, generator):
        rows = rows_of("Affine", images)
        n, h, w, _ = rows.shape
        angle, slant = np.deg2rad(generator.uniform(-1, 1, (2, n, 1, 1)) * [[[[self.degrees]]], [[[self.shear]]]])
        down, across = 1 / generator.uniform(*self.scale, (2, n, 1, 1))
        shift = generator.uniform(-1, 1, (2, n, 1, 1)) * np.reshape(self.translate, (2, 1, 1, 1))
        i, j = (np.arange(size) - (size - 1) / 2 for size in (h, w))
        i = i[:, None]
        at_i = down * (np.cos(angle) * i - np.sin(angle) * j)
        at_j = across * (np.sin(angle) * i + np.cos(angle) * j) + np.tan(slant) * at_i
        # One more pixel of 0 on each side; what lies farther out is 0 too.
        padded = np.pad(rows, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(np.float32 if rows.itemsize < 8 else rows.dtype)
        places = at_i + (h + 1) / 2 + h * shift[0], at_j + (w + 1) / 2 + w * shift[1]
        (i, fi), (j, fj) = (_between(place, size) for place, size in zip(places, (h, w), strict=True))
        image = np.arange(n)[:, None, None]
        out = (1 - fi) * ((1 - fj) * padded[image, i, j] + fj * padded[image, i, j + 1])
        out += fi * ((1 - fj) * padded[image, i + 1, j] + fj * padded[image, i + 1, j + 1])
        return (np.rint(out) if rows.dtype == np.uint8 else out).astype(rows.dtype).transpose(0, 3, 1, 2)


def _between(place, size):
    """(the pixel before, the share of the one after it) of places in an axis of size + 2 pixels."""
    place = np.clip(place, 0, size + 0.999)
    first = place.astype(np.int64)
    return first, (place - first).astype(np.float32)[..., None]


@dataclass
class Gamma:
    """Make the strokes of each image thicker or thinner at random: its grey values are raised to a power.

    Math    out = 255 (x / 255)^k, k = e^u, u drawn from -strength .. strength
    Types   uint8, rounded
    """

    strength: float = 0.7

    def __call__(self, images, generator):
        rows = rows_of("Gamma", images)
        powers = np.exp(generator.uniform(-self.strength, self.strength, (len(rows), 1, 1, 1)))
        return np.rint(255 * (rows / 255) ** powers).astype(np.uint8).transpose(0, 3, 1, 2)


@dataclass
class Compose:
    """Several transforms, one after the other, drawing from one generator."""

    transforms: tuple

    def __post_init__(self):
        self.transforms = tuple(transform_of("Compose", "a transform", one) for one in self.transforms)

    def __call__(self, images, generator):
        for transform in self.transforms:
            images = transform(images, generator)
        return images


def transform_of(op, name, value):
    """The value, which can be called as transform(images, generator)."""
    if inspect.isfunction(function_of(op, name, value)):
        try:
            inspect.signature(value).bind("images", "generator")
        except TypeError as error:
            raise KindError(f"{op}: {name} is called with (images, generator): {error}") from None
    return value


def per_channel(op, name, values, count=None):
    """A tuple of floats, one a channel, from one number or several; count: how many are wanted, None for any number."""
    found = tuple(float_of(op, name, value) for value in np.atleast_1d(values).tolist())
    if not np.isfinite(found).all():
        raise ShapeError(f"{op}: {name} is {found}, wanted finite numbers")
    if count not in (None, len(found)):
        raise ShapeError(f"{op}: {name} has {len(found)} numbers, wanted {count}, one a channel")
    return found


def rows_of(op, images):
    """The images as a dense array (N, H, W, C); a view where they lie channels last already."""
    if not isinstance(images, np.ndarray) or images.dtype not in (np.uint8, np.float32, np.float64):
        got = getattr(images, "dtype", type(images).__name__)
        raise KindError(f"{op}: images are {got}, wanted a NumPy array of uint8, float32 or float64")
    if images.ndim != 4:
        raise ShapeError(f"{op}: images have shape {images.shape}, wanted (N, C, H, W)")
    return np.ascontiguousarray(images.transpose(CHANNELS_LAST))
