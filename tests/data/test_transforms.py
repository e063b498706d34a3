"""Transforms against loops over pixels."""

import numpy as np
import pytest

from minigrad.data import Compose, Flip, Normalize, PadCrop
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

SHAPES = [(1, 1, 1, 1), (5, 1, 4, 6), (7, 3, 5, 4), (0, 2, 3, 3)]
TYPES = [np.uint8, np.float32, np.float64]
LAYOUTS = ["planes", "channels last", "reversed", "every second"]


def random_images(shape, dtype, layout="planes"):
    n, c, h, w = shape
    images = np.random.default_rng(1).integers(0, 256, (n, c, h, 2 * w)).astype(dtype)
    if layout == "every second":
        return images[..., ::2]
    images = np.ascontiguousarray(images[..., :w])
    if layout == "channels last":
        return np.ascontiguousarray(images.transpose(CHANNELS_LAST)).transpose(0, 3, 1, 2)
    return images[:, :, ::-1, ::-1] if layout == "reversed" else images


def generator(seed=0):
    return np.random.default_rng(seed)


def normalize_loop(images, mean, std):
    out = np.empty(images.shape, np.float64)
    for n, c, h, w in np.ndindex(*images.shape):
        x = images[n, c, h, w] / 255 if images.dtype == np.uint8 else float(images[n, c, h, w])
        out[n, c, h, w] = (x - mean[c]) / std[c]
    return out


def pad_crop_loop(images, p, a, b, mode):
    out = np.empty_like(images)
    height, width = images.shape[2:]
    for n, c, i, j in np.ndindex(*images.shape):
        h, w = i + a[n] - p, j + b[n] - p
        inside = 0 <= h < height and 0 <= w < width
        near = images[n, c, min(max(h, 0), height - 1), min(max(w, 0), width - 1)]
        out[n, c, i, j] = near if inside or mode == "edge" else 0
    return out


def flip_loop(images, mirrored):
    out = np.empty_like(images)
    width = images.shape[3]
    for n, c, i, j in np.ndindex(*images.shape):
        out[n, c, i, j] = images[n, c, i, width - 1 - j if mirrored[n] else j]
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_normalize(shape, dtype, layout):
    images = random_images(shape, dtype, layout)
    mean, std = [0.1307, 0.5, 0.25][: shape[1]], [0.3081, 0.25, 2][: shape[1]]
    out = Normalize(mean, std)(images)
    want = normalize_loop(images, mean, std)
    assert out.dtype == (np.float64 if dtype == np.float64 else np.float32) and is_dense(out, CHANNELS_LAST)
    # Three roundings each, of x * scale, shift, and their sum (and of scale, which x multiplies).
    large = np.abs(images / (255 if dtype == np.uint8 else 1)) / np.reshape(std, (-1, 1, 1))
    large = large + np.abs(np.reshape(mean, (-1, 1, 1)) / np.reshape(std, (-1, 1, 1)))
    assert (np.abs(out - want) <= 2 * np.finfo(out.dtype).eps * large).all()


@pytest.mark.parametrize("mode", ["constant", "edge"])
@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_pad_crop(shape, dtype, layout, padding, mode):
    images = random_images(shape, dtype, layout)
    before = images.copy()
    out = PadCrop(padding, mode)(images, generator())
    a, b = generator().integers(0, 2 * padding + 1, size=(2, len(images)))
    np.testing.assert_array_equal(out, pad_crop_loop(images, padding, a, b, mode))
    assert out.dtype == dtype and is_dense(out, CHANNELS_LAST)
    assert not np.shares_memory(out, images)
    np.testing.assert_array_equal(images, before)


def test_pad_crop_reaches_every_offset():
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 1, 3, 3)
    out = PadCrop(1)(np.repeat(image, 500, 0), generator())
    assert len(np.unique(out.reshape(500, 9), axis=0)) == 9


@pytest.mark.parametrize("p", [0, 0.5, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_flip(shape, dtype, layout, p):
    images = random_images(shape, dtype, layout)
    before = images.copy()
    out = Flip(p)(images, generator())
    np.testing.assert_array_equal(out, flip_loop(images, generator().random(len(images)) < p))
    assert out.dtype == dtype and is_dense(out, CHANNELS_LAST)
    np.testing.assert_array_equal(images, before)
    assert not np.shares_memory(out, images)


def test_flip_probability():
    image = np.array([[1, 2]], np.uint8).reshape(1, 1, 1, 2)
    flipped = Flip(0.25)(np.repeat(image, 4000, 0), generator())[:, 0, 0, 0] == 2
    assert abs(flipped.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)


def test_compose_applies_in_order_with_one_generator():
    images = random_images((6, 3, 5, 5), np.uint8)
    steps = (PadCrop(2), Flip(), Normalize([0.5] * 3, [0.25] * 3))
    draws, want = generator(), images
    for step in steps:
        want = step(want, draws)
    out = Compose(steps)(images, generator())
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(Compose([])(images, generator()), images)
    assert (Compose(steps)(images, generator(1)) != out).any()
    assert repr(Compose([Flip(0.5)])) == "Compose(transforms=(Flip(p=0.5),))"


REFUSED_SETTINGS = {
    "lengths": (ShapeError, lambda: Normalize([0.5], [1, 1])),
    "std 0": (ShapeError, lambda: Normalize([0.5], [0])),
    "std negative": (ShapeError, lambda: Normalize(0.5, -1)),
    "std nan": (ShapeError, lambda: Normalize(0.5, float("nan"))),
    "std inf": (ShapeError, lambda: Normalize(0.5, float("inf"))),
    "mean nan": (ShapeError, lambda: Normalize(float("nan"), 1)),
    "padding negative": (ShapeError, lambda: PadCrop(-1)),
    "padding float": (KindError, lambda: PadCrop(1.0)),
    "padding bool": (KindError, lambda: PadCrop(True)),
    "mode": (ShapeError, lambda: PadCrop(1, "reflect")),
    "p above 1": (ShapeError, lambda: Flip(1.5)),
    "p nan": (ShapeError, lambda: Flip(float("nan"))),
    "compose": (KindError, lambda: Compose([Flip(), 3])),
}


@pytest.mark.parametrize("case", REFUSED_SETTINGS)
def test_refused_settings(case):
    error, make = REFUSED_SETTINGS[case]
    with pytest.raises(error, match="^(Normalize|PadCrop|Flip|Compose): "):
        make()


@pytest.mark.parametrize("transform", [Normalize([0.5], [1]), PadCrop(1), Flip()], ids=repr)
@pytest.mark.parametrize(
    ("images", "error"),
    [
        (np.zeros((2, 1, 3, 3), np.int64), KindError),
        ([[1]], KindError),
        (np.zeros((2, 3, 3), np.uint8), ShapeError),
    ],
)
def test_refused_images(transform, images, error):
    with pytest.raises(error, match=type(transform).__name__):
        transform(images, generator())


def test_normalize_refuses_other_channels():
    with pytest.raises(ShapeError, match="images have 3 channels .* mean has 1"):
        Normalize(0.5, 1)(np.zeros((2, 3, 4, 4), np.uint8))
