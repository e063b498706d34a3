"""A picture made into what a network was trained on, with a note of every change."""

import numpy as np
from PIL import Image

from .settings import UsageError

__all__ = ["prepared", "read_picture"]

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601: how bright red, green and blue look
INK = 0.2  # of the range from background to ink; above it a pixel belongs to the digit
MNIST_MARGIN = 4 / 28  # of the side of an image, free on each side of a digit


def read_picture(path):
    """The picture as floats 0..1, (H, W, channels): grey or colour, on white where it is transparent.

    Errors  UsageError if it is no picture that Pillow can read
    """
    try:
        with Image.open(path) as picture:
            grey, deep = picture.mode in ("1", "L", "LA"), picture.mode.startswith("I")
            pixels = np.asarray(picture if deep else picture.convert("RGBA"), np.float64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # SyntaxError: a broken chunk
        raise UsageError(f"{path} cannot be read as a picture: {error}") from error
    if deep:  # grey of 16 bits
        return pixels[..., None] / 65535
    image, opaque = pixels[..., : 1 if grey else 3] / 255, pixels[..., 3:] / 255
    return image * opaque + 1 - opaque


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
        image = np.stack([_resized(plane, (width, height)) for plane in np.moveaxis(image, 2, 0)], axis=2)
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


def _resized(plane, size):
    """Enlarging, linear interpolation; shrinking, every old pixel counts."""
    return np.asarray(Image.fromarray(plane.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))
