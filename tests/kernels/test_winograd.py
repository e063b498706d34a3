"""Winograd convolution of 3x3 filters against the reference and the direct way, forced wherever it can be computed."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

import minigrad
from minigrad_kernels.conv2d import cpu
from minigrad_kernels.conv2d.winograd_mode import mode, winograd
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.toolchain import set_threads, threads

from .cases.conv2d import rows
from .kernel_runs import PROCESSORS, make_inputs, run, same_bits, wanted

TOLERANCE = 2e-5  # of the largest value


def geometry(images, channels, filters, height, width, padding, **options):
    return rows((images, channels, height, width), (filters, channels, 3, 3), padding=padding, **options)


SMALL = [
    *geometry(1, 1, 1, 3, 3, (0, 0)),
    *geometry(2, 3, 5, 7, 9, (2, 2), bias=True),
    *geometry(1, 20, 33, 13, 6, (0, 1), bias=True, relu=True),
    *geometry(1, 2, 3, 6, 5, (3, 4)),  # the input gradient begins inside its source
    *geometry(65, 6, 8, 5, 5, (1, 2), bias=True),  # partial sums over blocks of images
    *rows((2, 4, 9, 8), (6, 4, 3, 3), stride=(2, 1), padding=(1, 1)),  # cannot go this way
]
LARGE = [
    *geometry(1, 130, 70, 14, 14, (1, 1), bias=True),  # two chunks of channels, two sections of filters
    *geometry(17, 32, 64, 26, 26, (0, 0)),  # several blocks of tiles
    *geometry(2, 512, 48, 8, 8, (1, 1)),
]
each_case = pytest.mark.parametrize("case", [*SMALL, *LARGE], ids=str)


def forced(case, inputs, way="always", dtype=np.float32):
    with winograd(way):
        return run(case, dtype, inputs)


def close(got, want):
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


@each_case
def test_it_is_close_exact_on_small_integers_and_the_same_for_one_and_two_threads(case):
    """Multiples of 576 lose all denominators of the filter's transform, squared. Positive images, as behind a ReLU,
    cancel nothing; errors are relative to the largest value."""
    inputs, before = make_inputs(case, np.float32), threads()
    try:
        results = [set_threads(count) or forced(case, inputs) for count in (1, 2)]
    finally:
        set_threads(before)
    same_bits(*results)
    close(results[0][0], wanted(case, inputs)[0])
    inputs[0] = np.abs(inputs[0])
    close(forced(case, inputs)[0], wanted(case, inputs)[0])
    if case in SMALL:
        inputs = [x if x is None else np.sign(x) for x in make_inputs(case, np.float32, integers=True)]
        inputs[0 if case.function == "weight_grad" else 1] *= 576
        same_bits(forced(case, inputs), wanted(case, inputs))


@pytest.mark.parametrize("case", SMALL[3:12], ids=str)
def test_nan_and_infinity_are_where_the_direct_way_has_them(case):
    for position in (0, 1):
        for value in (np.nan, np.inf, -np.inf, 3e38):
            inputs = make_inputs(case, np.float32)
            inputs[position][tuple(size // 2 for size in inputs[position].shape)] = value
            with np.errstate(all="ignore"):
                same_bits(forced(case, inputs), forced(case, inputs, False))


# ---- the choice ------------------------------------------------------------------------------------------------------


def used(direction, x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, itemsize=4):
    ways = cpu._ways(direction, x, w, stride, padding, dilation, groups, itemsize, threads(), mode())
    return ways.winograd is not None


def test_it_is_chosen_by_shape():
    x, w = (64, 64, 32, 32), (64, 64, 3, 3)
    for direction in ("forward", "input_grad", "weight_grad"):
        for images, c, o, side in ((64, 64, 64, 32), (64, 512, 512, 4), (1, 64, 64, 16), (64, 16, 16, 16)):
            assert used(direction, (images, c, side, side), (o, c, 3, 3))
        for images, c, o, side in ((64, 3, 64, 32), (1, 64, 64, 8), (64, 16, 16, 9), (64, 64, 2, 16), (64, 2, 64, 16)):
            assert not used(direction, (images, c, side, side), (o, c, 3, 3)), "few channels or tiles, or beyond edges"
        with winograd("always"):
            assert used(direction, (1, 3, 8, 8), (4, 3, 3, 3)) and not used(direction, (0, 3, 8, 8), (4, 3, 3, 3))
            for other in (dict(stride=(1, 2)), dict(dilation=(1, 2)), dict(itemsize=8)):
                assert not used(direction, x, w, **other)
            assert not used(direction, x, (64, 64, 5, 5)) and not used(direction, x, (64, 32, 3, 3), groups=2)
        with winograd(False):
            assert not used(direction, x, w)


def test_the_engine_has_the_switch():
    assert minigrad.winograd is winograd
    x, w = (minigrad.randn(*shape) for shape in ((2, 32, 26, 26), (32, 32, 3, 3)))
    one = minigrad.nn.functional.conv2d(x, w, padding=1).numpy()
    with minigrad.winograd(False):
        two = minigrad.nn.functional.conv2d(x, w, padding=1).numpy()
    assert not np.array_equal(one, two)
    close(one, two)
    with pytest.raises(ShapeError, match="mode is 'sometimes'"), winograd("sometimes"):
        pass


@pytest.mark.deep
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instruction sets of x86-64")
@pytest.mark.parametrize("settings", PROCESSORS.values(), ids=PROCESSORS)
def test_other_instruction_sets(settings):
    """The comparisons above in a process whose tiles are those of a lesser processor, or of an unknown one."""
    options = ["-q", "-x", "-p", "no:cacheprovider", __file__, "-k", "close or infinity"]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
