"""Images for the loader: the bits of the transforms on every device, data sets beyond 2 GB, traffic."""

import re

import numpy as np
import pytest

from minigrad.data.transforms import Compose, Flip, Normalize, PadCrop
from minigrad_kernels import augment, interpreter
from minigrad_kernels.augment import cuda
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.cuda.memory import View
from tests.kernels.kernel_runs import DEVICE, moved, on_host

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
SCALE = (1 / (255 * np.array(STD))).astype(np.float32)
SHIFT = (-np.array(MEAN) / np.array(STD)).astype(np.float32)
each_device = pytest.mark.parametrize("device", ["cpu", DEVICE])


def pixels(*shape):
    """(N, C, H, W) images of random bytes."""
    n, c, h, w = shape
    return np.random.default_rng(sum(shape)).integers(0, 256, (n, h, w, c), np.uint8).transpose(0, 3, 1, 2)


def empty(like, batch, device):
    n, c, h, w = like.shape
    return moved(np.full((batch, h, w, c), np.nan, np.float32).transpose(0, 3, 1, 2), device)


# ---- the transforms ----------------------------------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("size", [(5, 7), (32, 32)])
def test_gather_has_the_bits_of_normalize(device, size):
    images, picks = pixels(6, 3, *size), np.array([5, 0, 0, 3])
    images.flags.writeable = False  # as those that a file holds, read through memory
    out = empty(images, 4, device)
    augment.gather_normalize(*(moved(array, device) for array in (images, picks, SCALE, SHIFT)), out)
    np.testing.assert_array_equal(on_host(out), Normalize(MEAN, STD)(images[picks]))


@each_device
@pytest.mark.parametrize("mode", ["constant", "edge"])
@pytest.mark.parametrize("size, padding", [((5, 7), 1), ((4, 3), 6), ((32, 32), 4)])
def test_cuts_have_the_bits_of_the_transforms(device, mode, size, padding):
    images, batch = pixels(6, 3, *size), 9
    picks = np.random.default_rng(1).integers(0, 6, batch)
    compose = Compose((PadCrop(padding, mode), Flip(), Normalize(MEAN, STD)))
    want = compose(images[picks].transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), np.random.default_rng(7))
    rng = np.random.default_rng(7)  # draws as the transforms do
    cuts = np.ascontiguousarray(rng.integers(0, 2 * padding + 1, (2, batch)).T)
    flips = rng.random(batch) < 0.5
    assert flips.any() and not flips.all()
    out, numbers = empty(images, batch, device), (moved(SCALE, device), moved(SHIFT, device))
    arrays = (moved(array, device) for array in (images, picks, cuts, flips))
    augment.pad_crop_normalize(*arrays, padding, mode == "edge", *numbers, out)
    np.testing.assert_array_equal(on_host(out), want)


# ---- CUDA --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [None, np.ones((2, 2), np.int64)], ids=["gather", "cut"])
def test_images_beyond_32_bits_of_bytes(cuts):
    """Where the first image of a data set would lie, if this were the part of it that is in use."""
    images, far = pixels(4, 1, 8, 8), 2**27
    there, picks = interpreter.array(images.transpose(0, 2, 3, 1).copy()), interpreter.array(np.array([3, 1]) + far)
    first, out = interpreter.address(there) - far * 64, interpreter.empty((2, 8, 8, 1))
    numbers = (interpreter.array(array[:1]) for array in (SCALE, SHIFT))
    data, flips = View(first, (far + 4, 8, 8, 1), (64, 8, 1, 1)), interpreter.array(np.zeros(2, np.uint8))
    offsets, padding = (None, 0) if cuts is None else (interpreter.array(cuts), 1)
    report = interpreter.interpret(cuda.cut, (1,), (256,), (data, picks, offsets, flips, *numbers, out, padding, 0))
    assert not report.faults
    np.testing.assert_array_equal(np.asarray(out)[..., 0], Normalize(MEAN[:1], STD[:1])(images[[3, 1]])[:, 0])


def test_traffic():
    """A byte is read and four are written for each number, in whole sectors."""
    images, out = moved(pixels(4, 4, 8, 16), "interpreter"), interpreter.empty((4, 8, 16, 4)).transpose(0, 3, 1, 2)
    others = (interpreter.array(array) for array in (np.arange(4), np.ones(4, "f4"), np.zeros(4, "f4")))
    with interpreter.recording() as launches:
        augment.gather_normalize(images, *others, out)
    ((name, report),) = launches
    counts = report.counts
    assert name == "augment_cut"
    assert counts.bytes_loaded["images"] == images.size and counts.bytes_stored == {"out": 4 * images.size}
    assert counts.sector_bytes_stored == counts.bytes_stored


def test_refusals_of_sizes_and_kinds():
    out = interpreter.empty((1, 2, 2, 1))
    arrays = pixels(1, 1, 2, 2), np.zeros(1, np.int64), np.ones(1, np.float32), np.ones(1, np.float32)
    there = [interpreter.array(array) for array in arrays]
    far = np.broadcast_to(interpreter.empty(1), (1 << 16, 1, 1 << 15, 1)).view(interpreter.Array)
    words = "gather_normalize: out has shape (65536, 1, 32768, 1), wants less than 2147482624 elements; split it"
    with pytest.raises(ShapeError, match="^" + re.escape(words)):
        images, indices = (
            interpreter.array(array) for array in (pixels(1, 1, 1 << 15, 1), np.zeros(1 << 16, np.int64))
        )
        augment.gather_normalize(images, indices, *there[2:], far)
    with pytest.raises(KindError, match="^gather_normalize: indices is numpy.ndarray, wants minigrad_kernels"):
        augment.gather_normalize(there[0], arrays[1], *there[2:], out.transpose(0, 3, 1, 2))
