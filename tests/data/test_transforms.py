"""Transforms against loops over pixels. What their arguments refuse is in tests/refusals/training.py."""

import numpy as np
import pytest

from minigrad.data import Affine, Compose, Flip, Gamma, Normalize, PadCrop
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense


def samples():
    """Random images of several shapes, types and layouts."""
    for shape in ((1, 1, 1, 1), (7, 3, 5, 4), (0, 2, 3, 3)):
        for dtype in (np.uint8, np.float32, np.float64):
            wide = np.random.default_rng(1).integers(0, 256, (*shape[:3], 2 * shape[3])).astype(dtype)
            last = np.ascontiguousarray(wide[..., : shape[3]].transpose(CHANNELS_LAST)).transpose(0, 3, 1, 2)
            yield from (last, wide[:, :, ::-1, ::2])


def generator(seed=0):
    return np.random.default_rng(seed)


def checked(transform, images):
    """What a transform gives of images, which stay as they are."""
    before, out = images.copy(), transform(images, generator())
    assert is_dense(out, CHANNELS_LAST) and not np.shares_memory(out, images)
    np.testing.assert_array_equal(images, before)
    return out


def test_normalize():
    for images in samples():
        channels = images.shape[1]
        mean, std = (np.array(values)[:channels, None, None] for values in ([0.1307, 0.5, 0.25], [0.3081, 0.25, 2]))
        out = checked(Normalize(mean.ravel(), std.ravel()), images)
        scaled = images / (255 if images.dtype == np.uint8 else 1)
        assert out.dtype == (np.float64 if images.dtype == np.float64 else np.float32)
        # Three roundings each, of x * scale, shift, and their sum (and of scale, which x multiplies).
        large = np.abs(scaled) / std + np.abs(mean / std)
        assert (np.abs(out - (scaled - mean) / std) <= 2 * np.finfo(out.dtype).eps * large).all()


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_pad_crop(padding):
    for images in samples():
        out, (height, width) = checked(PadCrop(padding), images), images.shape[2:]
        a, b = generator().integers(0, 2 * padding + 1, size=(2, len(images)))
        assert out.dtype == images.dtype
        for n, c, i, j in np.ndindex(*images.shape):
            h, w = i + a[n] - padding, j + b[n] - padding
            assert out[n, c, i, j] == (images[n, c, h, w] if 0 <= h < height and 0 <= w < width else 0)


def test_flip():
    for images in samples():
        for p in (0, 0.5, 1):
            mirrored, out = (generator().random(len(images)) < p)[:, None, None, None], checked(Flip(p), images)
            np.testing.assert_array_equal(out, np.where(mirrored, images[..., ::-1], images))
            assert out.dtype == images.dtype


def test_compose_applies_in_order_with_one_generator():
    images = generator().integers(0, 256, (6, 3, 5, 5), np.uint8)
    steps = (PadCrop(2), Flip(), Normalize([0.5] * 3, [0.25] * 3))
    draws, want = generator(), images
    for step in steps:
        want = step(want, draws)
    np.testing.assert_array_equal(Compose(steps)(images, generator()), want)
    assert (Compose(steps)(images, generator(1)) != want).any()
    for error, wrong in ((KindError, np.zeros((2, 1, 3, 3), int)), (ShapeError, np.zeros((2, 3, 3), np.uint8))):
        with pytest.raises(error, match="PadCrop: images"):
            Compose(steps)(wrong, generator())
    with pytest.raises(ShapeError, match="Normalize: images have 1 channels .* mean has 3"):
        steps[2](np.zeros((2, 1, 3, 3), np.uint8))


def test_affine():
    for images in samples():
        n, c, h, w = images.shape
        still = Affine(0, (0, 0), (1, 1), 0)
        np.testing.assert_array_equal(checked(still, images), images)
        out, draw = checked(Affine(20, (0.2, 0.1), (0.5, 1.5), 30), images), generator()
        angle, slant = np.deg2rad(draw.uniform(-1, 1, (2, n, 1, 1)).reshape(2, n) * [[20], [30]])
        down, across = 1 / draw.uniform(0.5, 1.5, (2, n, 1, 1)).reshape(2, n)
        shift = draw.uniform(-1, 1, (2, n, 1, 1)).reshape(2, n) * [[0.2 * h], [0.1 * w]]
        padded = np.pad(images.astype(np.float64), ((0, 0), (0, 0), (1, 2), (1, 2)))
        for k, i, j in np.ndindex(n, h, w):
            y, x = i - (h - 1) / 2, j - (w - 1) / 2
            at_y = down[k] * (np.cos(angle[k]) * y - np.sin(angle[k]) * x)
            at_x = across[k] * (np.sin(angle[k]) * y + np.cos(angle[k]) * x) + np.tan(slant[k]) * at_y
            y = np.clip(at_y + (h - 1) / 2 + shift[0, k], -1, h)
            x = np.clip(at_x + (w - 1) / 2 + shift[1, k], -1, w)
            a, b = int(np.floor(y)), int(np.floor(x))
            four = padded[k, :, a + 1 : a + 3, b + 1 : b + 3] * np.outer((a + 1 - y, y - a), (b + 1 - x, x - b))
            assert np.abs(out[k, :, i, j] - four.sum((1, 2))).max(initial=0) <= 0.6, (k, i, j)


def test_gamma():
    images = np.arange(256, dtype=np.uint8).reshape(2, 1, 8, 16)
    out = checked(Gamma(0.7), images)
    powers = np.exp(generator().uniform(-0.7, 0.7, 2))
    for image, before, power in zip(out, images, powers, strict=True):
        np.testing.assert_array_equal(image, np.rint(255 * (before / 255) ** power))
    assert (out[0] != images[0]).any()
