"""A PNG picture made into what a network was trained on, with a note of every change."""

from pathlib import Path

import numpy as np

from .settings import UsageError

__all__ = ["prepared", "read_png"]

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601: how bright red, green and blue look
INK = 0.2  # of the range from background to ink; above it a pixel belongs to the digit
MNIST_MARGIN = 4 / 28  # of the side of an image, free on each side of a digit
MAX_PIXELS = 1 << 25


def read_png(path):
    """The picture as floats 0..1, (H, W, channels): grey or colour, on white where it is transparent.

    Errors  UsageError if it is no PNG picture that can be read
    """
    import matplotlib.image

    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
    try:
        with open(path, "rb") as file:
            header = file.read(24)
            width, height = (int.from_bytes(header[i : i + 4], "big") for i in (16, 20))
            if header[:8] != b"\x89PNG\r\n\x1a\n":
                raise ValueError("it is not in the PNG format")
            if not 0 < width * height <= MAX_PIXELS:
                raise ValueError(f"it has {height} x {width} pixels, want 1 to {MAX_PIXELS}")
            file.seek(0)
            image = matplotlib.image.imread(file, format="png")
    except (OSError, ValueError, SyntaxError, MemoryError) as error:  # SyntaxError: a broken chunk
        raise UsageError(f"{path} cannot be read as a picture: {error}") from error
    image = np.asarray(image, np.float64) / (1 if image.dtype.kind == "f" else np.iinfo(image.dtype).max)
    image = image[..., None] if image.ndim == 2 else image
    if image.shape[2] in (2, 4):
        opaque = image[..., -1:]
        image = image[..., :-1] * opaque + 1 - opaque
    return image


def prepared(image, data, shape):
    """(pixels uint8 (1, C, H, W), the changes made, in words) for a network of images of shape (C, H, W)."""
    notes = []
    channels, height, width = shape
    if channels == 1:
        image = _grey(image, notes)
        if data in ("digits", "mnist"):
            image = _light_on_dark(image, notes)
            if image.shape[:2] != (height, width):
                image = _centred(image, data == "mnist", notes)
    elif image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
        notes.append("grey made into three equal colours")
    if image.shape[:2] != (height, width):
        notes.append(f"resized from {image.shape[0]} x {image.shape[1]} to {height} x {width}")
        rows, columns = _weights(image.shape[0], height), _weights(image.shape[1], width)
        image = _along(rows, _along(columns, image.transpose(1, 0, 2)).transpose(1, 0, 2))
    pixels = np.clip(np.round(image * 255), 0, 255).astype(np.uint8)
    return pixels.transpose(2, 0, 1)[None], notes


def _grey(image, notes):
    if image.shape[2] == 1:
        return image
    notes.append("colour made grey")
    return (image * LUMA).sum(axis=2, keepdims=True)


def _light_on_dark(image, notes):
    """The networks know light digits on a dark ground; the border shows which this is."""
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    if np.median(border) <= 0.5:
        return image
    notes.append("dark on light, so inverted")
    return 1 - image


def _centred(image, as_mnist, notes):
    """The ink on a square, as the training images are: MNIST's have a margin, and their centre of mass is central.

    Source  LeCun, Cortes and Burges, The MNIST database of handwritten digits
    """
    low, high = image.min(), image.max()
    if high - low < 1e-3:
        raise UsageError("the picture is empty: all its pixels are alike")
    ink = image[..., 0] > low + INK * (high - low)
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    image = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    margin = MNIST_MARGIN if as_mnist else 0
    side = max(1, round(max(image.shape[:2]) / (1 - 2 * margin)))
    middles = [
        _centre_of_mass(image[..., 0] - low, axis) if as_mnist else size / 2
        for axis, size in enumerate(image.shape[:2])
    ]
    before = [
        min(max(0, round(side / 2 - middle)), side - size)
        for middle, size in zip(middles, image.shape[:2], strict=True)
    ]
    after = [side - size - start for size, start in zip(image.shape[:2], before, strict=True)]
    notes.append(f"cut to the ink ({image.shape[0]} x {image.shape[1]}) and centred")
    return np.pad(image, (*zip(before, after, strict=True), (0, 0)), constant_values=low)


def _centre_of_mass(ink, axis):
    """Along one axis of (H, W), in pixels from its edge."""
    weights = ink.sum(axis=1 - axis)
    return (weights * (np.arange(len(weights)) + 0.5)).sum() / weights.sum()


def _along(weights, image):
    """The weighted sums of rows: (H, W, C) -> (I, W, C)."""
    return np.tensordot(weights, image, 1)


def _weights(old, new):
    """The share of each old pixel in each new one, (new, old): a triangle as wide as the pixels are apart.

    Enlarging, that is linear interpolation; shrinking, every old pixel counts.
    """
    scale = old / new
    centres = (np.arange(new) + 0.5) * scale - 0.5
    distance = np.abs(centres[:, None] - np.arange(old)) / max(scale, 1)
    shares = np.maximum(0, 1 - distance)
    return shares / shares.sum(axis=1, keepdims=True)
