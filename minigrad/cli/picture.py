"""A picture made into what a network was trained on, with a note of every change."""

import numpy as np
from PIL import Image, ImageOps

from .settings import UsageError

INK = 0.2  # of the range from background to ink; above it a pixel belongs to the digit
MNIST_MARGIN = 4 / 28  # of the side of an image, free on each side of a digit


def prepared(picture, data, shape):
    """(pixels uint8 (1, C, H, W), the changes made, in words) for a network of images of shape (C, H, W)."""
    notes, size, mode = [], (shape[2], shape[1]), "L" if shape[0] == 1 else "RGB"
    if picture.mode != mode:
        picture = picture.convert(mode)
        notes.append("colour made grey" if mode == "L" else "grey made into three equal colours")
    if data in ("digits", "mnist"):
        pixels = np.asarray(picture)
        if np.median(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])) > 127:  # the border
            picture = ImageOps.invert(picture)
            notes.append("dark on light, so inverted")
        if picture.size != size:
            picture = _centred(picture, data == "mnist", notes)
    if picture.size != size:
        notes.append(f"resized from {picture.height} x {picture.width} to {size[1]} x {size[0]}")
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    return np.moveaxis(np.atleast_3d(np.array(picture)), 2, 0)[None], notes


def save_pixels(pixels, path):
    """Write pixels (1, C, H, W) as a picture in which each is a square that one can see."""
    rows = pixels[0].transpose(1, 2, 0)
    rows = rows.repeat(big := max(1, 224 // max(rows.shape[:2])), 0).repeat(big, 1)
    Image.fromarray(rows[..., 0] if rows.shape[2] == 1 else rows).save(path)


def _centred(picture, as_mnist, notes):
    """The ink on a square, as the training images are: MNIST's have a margin, and their centre of mass is central.

    Source  LeCun, Cortes and Burges, The MNIST database of handwritten digits
    """
    low, high = picture.getextrema()
    if low == high:
        raise UsageError("the picture is empty: all its pixels are alike")
    threshold = low + INK * (high - low)
    picture = picture.crop(picture.point(lambda value: 255 * (value > threshold)).getbbox())
    notes.append(f"cut to the ink ({picture.height} x {picture.width}) and centred")
    side = max(1, round(max(picture.size) / (1 - 2 * MNIST_MARGIN * as_mnist)))
    ink = np.asarray(picture, np.float64) - low if as_mnist else np.ones((picture.height, picture.width))
    middles = [(ink.sum(axis) * (np.arange(size) + 0.5)).sum() / ink.sum() for axis, size in enumerate(picture.size)]
    place = [min(max(0, round(side / 2 - m)), side - size) for m, size in zip(middles, picture.size, strict=True)]
    square = Image.new("L", (side, side), low)
    square.paste(picture, tuple(place))
    return square
