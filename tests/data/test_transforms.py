"""Transforms against loops over pixels. What they refuse is in tests/refusals/training.py."""

import numpy as np
import pytest

from minigrad.data import Compose, Flip, Normalize, PadCrop
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

SHAPES = [(1, 1, 1, 1), (5, 1, 4, 6), (7, 3, 5, 4), (0, 2, 3, 3)]


def samples():
    """Random images of each shape, type and layout."""
    for shape in SHAPES:
        for dtype in (np.uint8, np.float32, np.float64):
            wide = np.random.default_rng(1).integers(0, 256, (*shape[:3], 2 * shape[3])).astype(dtype)
            planes = np.ascontiguousarray(wide[..., : shape[3]])
            last = np.ascontiguousarray(planes.transpose(CHANNELS_LAST)).transpose(0, 3, 1, 2)
            yield from (planes, last, planes[:, :, ::-1, ::-1], wide[..., ::2])


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


@pytest.mark.parametrize("padding, mode", [(0, "edge"), (1, "constant"), (3, "edge")])
def test_pad_crop(padding, mode):
    for images in samples():
        out, (height, width) = checked(PadCrop(padding, mode), images), images.shape[2:]
        a, b = generator().integers(0, 2 * padding + 1, size=(2, len(images)))
        assert out.dtype == images.dtype
        for n, c, i, j in np.ndindex(*images.shape):
            h, w = i + a[n] - padding, j + b[n] - padding
            near = images[n, c, min(max(h, 0), height - 1), min(max(w, 0), width - 1)]
            assert out[n, c, i, j] == (near if mode == "edge" or 0 <= h < height and 0 <= w < width else 0)


def test_flip():
    for images in samples():
        for p in (0, 0.5, 1):
            mirrored, out = (generator().random(len(images)) < p)[:, None, None, None], checked(Flip(p), images)
            np.testing.assert_array_equal(out, np.where(mirrored, images[..., ::-1], images))
            assert out.dtype == images.dtype


def test_draws_are_spread():
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 1, 3, 3)
    out = PadCrop(1)(np.repeat(image, 500, 0), generator())
    assert len(np.unique(out.reshape(500, 9), axis=0)) == 9
    flipped = Flip(0.25)(np.repeat(image, 4000, 0), generator())[:, 0, 0, 0] == 3
    assert abs(flipped.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)


def test_compose_applies_in_order_with_one_generator():
    images = generator().integers(0, 256, (6, 3, 5, 5), np.uint8)
    steps = (PadCrop(2), Flip(), Normalize([0.5] * 3, [0.25] * 3))
    draws, want = generator(), images
    for step in steps:
        want = step(want, draws)
    out = Compose(steps)(images, generator())
    np.testing.assert_array_equal(out, want)
    assert Compose([])(images, generator()) is images and (Compose(steps)(images, generator(1)) != out).any()
    assert repr(Compose([Flip(0.5)])) == "Compose(transforms=(Flip(p=0.5),))"


def test_refused_images():
    for transform in (Normalize([0.5], [1]), PadCrop(1), Flip()):
        for error, images in ((KindError, np.zeros((2, 1, 3, 3), int)), (ShapeError, np.zeros((2, 3, 3), np.uint8))):
            with pytest.raises(error, match=type(transform).__name__):
                transform(images, generator())
    with pytest.raises(ShapeError, match="Normalize: images have 1 channels .* mean has 3"):
        Normalize([0] * 3, [1] * 3)(np.zeros((2, 1, 3, 3), np.uint8))
