"""Images for the loader: the bits of the transforms on every device, data sets beyond 2 GB."""

import numpy as np
import pytest

from minigrad.data.transforms import Compose, Flip, Normalize, PadCrop
from minigrad_kernels import augment, interpreter
from minigrad_kernels.augment import cuda
from minigrad_kernels.toolchain.cuda.memory import View
from tests.kernels.kernel_runs import DEVICE, moved, on_host

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
FACTORS = Normalize(MEAN, STD).factors(255)


def pixels(*shape):
    """(N, C, H, W) images of random bytes."""
    n, c, h, w = shape
    return np.random.default_rng(sum(shape)).integers(0, 256, (n, h, w, c), np.uint8).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("size, padding", [((5, 7), 0), ((4, 3), 6), ((32, 32), 4)])
def test_kernels_have_the_bits_of_the_transforms(size, padding):
    images, picks = pixels(6, 3, *size), np.array([5, 0, 0, 3, 1, 2, 4, 5, 1])
    images.flags.writeable = False  # as those that a file holds, read through memory
    compose, rng = Compose((PadCrop(padding), Flip(), Normalize(MEAN, STD))), np.random.default_rng(7)
    cuts, flips = compose.transforms[0].draw(9, rng), compose.transforms[1].draw(9, rng)
    assert flips.any() and not flips.all()
    there = lambda *arrays: [moved(array, DEVICE) for array in arrays]
    out = moved(np.full((9, *size, 3), np.nan, np.float32).transpose(0, 3, 1, 2), DEVICE)
    augment.pad_crop_normalize(*there(images, picks, cuts, flips.astype(int)), padding, *there(*FACTORS), out)
    np.testing.assert_array_equal(on_host(out), compose(images[picks], np.random.default_rng(7)))


def test_images_beyond_32_bits_of_bytes():
    """Where the first image of a data set would lie, if this were the part of it that is in use."""
    images, far = pixels(4, 1, 8, 8), 2**27
    there, picks = interpreter.array(images.transpose(0, 2, 3, 1).copy()), interpreter.array(np.array([3, 1]) + far)
    first, out = interpreter.address(there) - far * 64, interpreter.empty((2, 8, 8, 1))
    numbers = (interpreter.array(array[:1]) for array in FACTORS)
    data, flips = View(first, (far + 4, 8, 8, 1), (64, 8, 1, 1)), interpreter.array(np.zeros(2, int))
    cuts = interpreter.array(np.ones((2, 2), int))
    report = interpreter.interpret(cuda.cut, (1,), (256,), (data, picks, cuts, flips, *numbers, out, 1))
    assert not report.faults
    np.testing.assert_array_equal(np.asarray(out)[..., 0], Normalize(MEAN[:1], STD[:1])(images[[3, 1]])[:, 0])
