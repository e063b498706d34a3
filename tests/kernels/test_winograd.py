"""Winograd convolution of 3x3 filters against the reference and the direct way, forced wherever it can be computed."""

import hashlib
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

import minigrad
from minigrad_kernels import conv2d
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


def test_an_infinite_bias_spoils_one_channel():
    case = SMALL[3]
    inputs = make_inputs(case, np.float32)
    clean = forced(case, inputs)[0]
    inputs[2][1] = np.inf
    got = forced(case, inputs)[0]
    assert np.isposinf(got[:, 1]).all()
    np.testing.assert_array_equal(np.delete(got, 1, 1), np.delete(clean, 1, 1))


def digest():
    """Of the results of all large cases."""
    total = hashlib.sha256()
    for case in LARGE:
        total.update(forced(case, make_inputs(case, np.float32))[0].tobytes())
    return total.hexdigest()


@pytest.mark.deep
def test_same_bits_for_four_threads():
    code = (
        "import sys; from minigrad_kernels.toolchain import set_threads; set_threads(int(sys.argv[1]));"
        "from tests.kernels.test_winograd import digest; print(digest())"
    )
    found = set()
    for count in ("1", "3", "4"):
        command = [sys.executable, "-c", code, count]
        done = subprocess.run(command, env=os.environ | {"NUMBA_NUM_THREADS": "4"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


# ---- the choice ------------------------------------------------------------------------------------------------------


def used(direction, x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, itemsize=4):
    ways = cpu._ways(direction, x, w, stride, padding, dilation, groups, itemsize, threads(), mode())
    return ways.winograd is not None


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_it_is_chosen_by_shape(direction):
    x, w = (64, 64, 32, 32), (64, 64, 3, 3)
    for images, c, o, side in ((64, 64, 64, 32), (64, 512, 512, 4), (1, 64, 64, 16), (64, 16, 16, 16)):
        assert used(direction, (images, c, side, side), (o, c, 3, 3))
    for images, c, o, side in ((64, 3, 64, 32), (1, 64, 64, 8), (64, 16, 16, 9), (64, 64, 2, 16), (64, 2, 64, 16)):
        assert not used(direction, (images, c, side, side), (o, c, 3, 3))  # few channels, few tiles, or beyond the edge
    with winograd("always"):
        assert used(direction, (1, 3, 8, 8), (4, 3, 3, 3)) and not used(direction, (0, 3, 8, 8), (4, 3, 3, 3))
        for other in (dict(stride=(1, 2)), dict(dilation=(1, 2)), dict(itemsize=8)):
            assert not used(direction, x, w, **other)
        assert not used(direction, x, (64, 64, 5, 5)) and not used(direction, x, (64, 32, 3, 3), groups=2)
    with winograd(False):
        assert not used(direction, x, w)


def test_the_engine_has_the_switch():
    assert minigrad.winograd is winograd
    x = minigrad.randn(2, 32, 26, 26, requires_grad=True)
    w = minigrad.randn(32, 32, 3, 3, requires_grad=True)
    results = []
    for way in (True, False):
        with minigrad.winograd(way):
            out = minigrad.nn.functional.conv2d(x, w, padding=1)
            results.append([value.array for value in (out.detach(), *minigrad.grad(out.sum(), (x, w)))])
    for one, two in zip(*results, strict=True):
        assert not np.array_equal(one, two)
        close(one, two)


def test_refuses_a_workspace_that_is_too_small_and_unknown_modes():
    images = [np.ones((1, 7, 7, 4), "f").transpose(0, 3, 1, 2) for _ in range(2)]
    w = np.ones((3, 3, 4, 4), "f").transpose(3, 2, 0, 1)
    settings = (1, 1), (1, 1), (1, 1), 1
    with winograd("always"):
        size = conv2d.workspace("forward", images[0].shape, w.shape, *settings, np.float32)
        with pytest.raises(ShapeError, match=f"wants {size} contiguous bytes"):
            conv2d.forward(images[0], w, None, False, *settings, images[1], np.empty(size - 1, np.uint8))
    with pytest.raises(ShapeError, match="mode is 'sometimes'"), winograd("sometimes"):
        pass


@pytest.mark.deep
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instruction sets of x86-64")
@pytest.mark.parametrize("settings", PROCESSORS.values(), ids=PROCESSORS)
def test_other_instruction_sets(settings):
    """The comparisons above in a process whose tiles are those of a lesser processor, or of an unknown one."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "close or infinity",
    ]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
