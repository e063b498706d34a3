"""Convolution on the CPU: what the columns of its products mean, Winograd's way, pooling and residuals behind it."""

from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.conv2d import cpu, plan
from minigrad_kernels.conv2d.geometry import Geometry
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.modes import winograd, winograd_mode

from .cases.conv2d import POOLED, pooled, rows
from .kernel_runs import DEVICE, make_inputs, on_threads, run, same_bits, scratch, spoil, told, wanted
from .rungs import DIRECTIONS, TYPES, exact

GEOMETRIES = [  # x, w, stride, padding, dilation
    ((7, 1, 28, 28), (6, 1, 5, 5), (1, 1), (2, 2), (1, 1)),
    ((5, 3, 17, 16), (3, 3, 3, 7), (2, 1), (1, 3), (1, 1)),
    ((6, 2, 13, 18), (4, 2, 3, 4), (1, 2), (3, 2), (2, 1)),
    ((6, 3, 12, 14), (1, 3, 3, 3), (1, 1), (1, 2), (1, 2)),
    ((3, 5, 9, 8), (7, 5, 2, 3), (3, 4), (0, 1), (1, 1)),
    ((4, 40, 6, 7), (3, 40, 3, 2), (1, 1), (2, 1), (2, 1)),
    ((40, 2, 3, 4), (3, 2, 2, 2), (1, 1), (0, 1), (1, 1)),
    ((1, 1, 7, 40), (2, 1, 1, 9), (3, 1), (0, 4), (1, 1)),
    ((17, 4, 5, 1), (4, 4, 3, 1), (1, 1), (1, 0), (1, 1)),
    ((2, 35, 11, 9), (21, 35, 5, 4), (2, 1), (2, 2), (1, 1)),
    ((2, 130, 7, 7), (150, 130, 3, 3), (1, 1), (1, 1), (1, 1)),
]
PACKED = [  # rows of B lie far apart
    *rows((5, 260, 4, 4), (260, 260, 3, 3), padding=(1, 1), bias=True, relu=True),
    *rows((3, 130, 7, 6), (270, 130, 3, 3), stride=(2, 1), padding=(0, 1)),
    *rows((4, 520, 5, 5), (300, 260, 1, 1), groups=2),
]


def forget():
    """All plans."""
    cpu._ways.cache_clear()
    for launch in (conv2d.forward, conv2d.forward_pooled, conv2d.input_grad, conv2d.weight_grad):
        launch.contract.plans.clear()


@pytest.fixture(params=[None, 1, 2, 5])
def pixels(request, monkeypatch):
    """So many pixels in a group, or what shapes say (None); 1: columns are channels. Nothing by Winograd's way."""
    if count := request.param:
        several = lambda geometry: min(count, geometry.out_size[1]) if count > 1 and plan._plain(geometry) else 0
        monkeypatch.setattr(plan, "_pixels", lambda geometry: max(1, several(geometry)))
        monkeypatch.setattr(plan, "_scatters", lambda geometry: several(geometry) > 0)
        monkeypatch.setattr(plan, "_windows", lambda geometry: several(geometry) * (geometry.dilation[0] == 1))
    forget()
    with winograd(False):
        yield count
    forget()


def on_one_and_two(case, inputs):
    """The results, the same bits for any number of threads."""
    found = []
    for count in (1, 2):
        with on_threads(count):
            found.append(run(case, np.float32, inputs))
    same_bits(*found)
    return found[0]


@pytest.mark.parametrize("x, w, stride, padding, dilation", GEOMETRIES, ids=str)
def test_all_meanings_give_what_is_defined(x, w, stride, padding, dilation, pixels):
    """Exact sums in both types; NaN and infinity go no further."""
    for case in rows(x, w, stride, padding, dilation, bias=True):
        function = getattr(conv2d, case.function)
        for kind in ("float32", "float64"):
            exact(function, kind, case, device="cpu")
        for value in (np.nan, np.inf):
            inputs = make_inputs(case, np.float32, integers=True)
            for array in inputs[: 1 + (case.function == "weight_grad")]:
                array[-1, 0, 0, -1] = array[0, 0, array.shape[2] // 2, array.shape[3] // 2] = value
            with np.errstate(invalid="ignore"):
                same_bits(run(case, np.float32, inputs), wanted(case, inputs))
    for case in rows((4 * x[0], *x[1:]), w, stride, padding, dilation):
        on_one_and_two(case, make_inputs(case, np.float32))


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_packed_products_are_exact(case):
    with winograd(False):
        for kind in ("float32", "float64"):
            exact(getattr(conv2d, case.function), kind, case, device="cpu")


def test_a_residual_is_added_and_all_is_rounded_once():
    """1 + 2^-11 + 2^-20: rounded after the product it would be 1, rounded at the end it is the next number above."""
    for case in (
        rows((2, 8, 5, 6), (12, 8, 3, 3), bias=True, relu=True, padding=(1, 1))[0],
        rows((2, 8, 5, 6), (8, 1, 3, 3), groups=8, relu=True)[0],
        rows((3, 5, 6, 7), (6, 5, 1, 1), bias=True, relu=True)[0],
    ):
        single = replace(case, outputs=(replace(case.outputs[0], kind="float32"),))
        for device, kind in (*product(["cpu"], TYPES), (DEVICE, "float32"), (DEVICE, "float16")):
            exact(conv2d.forward, kind, case, residual=True, device=device)
            if TYPES[kind].itemsize == 2:
                exact(conv2d.forward, kind, single, residual=True, device=device)


# ---- with pooling ----------------------------------------------------------------------------------------------------


def one_by_one(case, dtype, inputs):
    """The results of the two ops, one after the other."""
    relu, *rest = case.params.values()
    settings, windows = rest[:4], rest[4:]
    n, o, i, j = conv2d.output_shape(inputs[0].shape, inputs[1].shape, None, *settings)
    convolved = np.empty((n, i, j, o), dtype).transpose(0, 3, 1, 2)
    conv2d.forward(*inputs, relu, *settings, convolved, scratch("cpu", []))
    pool = replace(case, family="pool2d", function="max_forward", params={}, workspace=False)
    return run(pool, dtype, [convolved], function=lambda x, *made: pool2d.max_forward(x, *windows, *made))


def test_pooling_has_the_bits_of_the_two_ops():
    """Also where values are not finite; of 16 bits, where sums that differ may be equal once rounded."""
    for case in POOLED:
        for dtype in (np.float32, np.float64):
            inputs = make_inputs(case, dtype)
            same_bits(run(case, dtype, inputs), one_by_one(case, dtype, inputs))
        for value in (np.nan, np.inf, -np.inf):
            inputs[0][:, :, 3, 4] = inputs[0][:1, :1, 5, 5] = value
            with told(case, value):
                same_bits(run(case, dtype, inputs), one_by_one(case, dtype, inputs))
    case = pooled((4, 8, 34, 34), (8, 8, 3, 3), (8, 8), (8, 8))
    for dtype in (np.float16, ml_dtypes.bfloat16):
        inputs = [array if array is None else array.astype(dtype) for array in make_inputs(case, np.float32)]
        same_bits(run(case, dtype, inputs), one_by_one(case, dtype, inputs))
    windows = (2, 2), (2, 2), (0, 0), (1, 1)
    in_one_pass = lambda x, w: cpu.pooling(x, w, ((1, 1), (0, 0), (1, 1), 1), 4, windows, (2, 2)) is not None
    assert in_one_pass((64, 1, 28, 28), (32, 1, 3, 3)) and in_one_pass((64, 6, 14, 14), (16, 6, 5, 5))
    assert not in_one_pass((4, 8, 300, 300), (64, 8, 3, 3)), "images that do not fit the cache"


# ---- Winograd's way --------------------------------------------------------------------------------------------------


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


def close(got, want):
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("case", [*SMALL, *LARGE], ids=str)
def test_winograd_is_close_exact_on_small_integers_and_passes_nan(case):
    """Multiples of 576 lose all denominators of the filter's transform, squared. Positive images, as behind a ReLU,
    cancel nothing; errors are relative to the largest value. What is not finite, or is too large, is where the direct
    way has it."""
    with winograd("always"):
        inputs = make_inputs(case, np.float32)
        close(on_one_and_two(case, inputs)[0], wanted(case, inputs)[0])
        inputs[0] = np.abs(inputs[0])
        close(run(case, np.float32, inputs)[0], wanted(case, inputs)[0])
        if case in LARGE:
            return
        inputs = [x if x is None else np.sign(x) for x in make_inputs(case, np.float32, integers=True)]
        inputs[0 if case.function == "weight_grad" else 1] *= 576
        same_bits(run(case, np.float32, inputs), wanted(case, inputs))
    for position, value in product((0, 1), (np.nan, np.inf, -np.inf, 3e38)):
        inputs, found = make_inputs(case, np.float32), []
        spoil(inputs[position], value)
        for way in ("always", False):
            with winograd(way), np.errstate(all="ignore"):
                found.append(run(case, np.float32, inputs))
        same_bits(*found)


# ---- the choice ------------------------------------------------------------------------------------------------------


def used(direction, x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, itemsize=4):
    ways = cpu._ways(direction, x, w, stride, padding, dilation, groups, itemsize, threads(), winograd_mode())
    return ways.winograd is not None


def test_winograd_is_chosen_by_shape():
    x, w = (64, 64, 32, 32), (64, 64, 3, 3)
    for direction in DIRECTIONS:
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


AVX2 = dict(VECTOR_BYTES=32, ROWS=6, LOW_ROWS=4)  # of tiles
LAYERS = {  # x, w, stride
    ((64, 1, 28, 28), (6, 1, 5, 5), (1, 1)): (1, True, 2),
    ((64, 6, 14, 14), (16, 6, 5, 5), (1, 1)): (1, True, 0),
    ((64, 16, 32, 32), (32, 16, 3, 3), (2, 2)): (1, False, 0),
    ((64, 1, 28, 28), (4, 1, 3, 3), (1, 1)): (2, True, 3),
    ((16, 3, 20, 20), (2, 3, 4, 4), (2, 2)): (4, True, 2),
    ((16, 1, 9, 60), (3, 1, 1, 9), (1, 3)): (2, True, 2),
    ((1, 1, 8, 8), (2, 1, 3, 3), (1, 1)): (1, False, 3),
    ((4, 3, 6, 6), (9, 3, 3, 3), (1, 1)): (1, True, 1),
    ((16, 8, 16, 16), (3, 8, 5, 5), (1, 1)): (2, False, 2),
    ((16, 5, 16, 16), (7, 5, 3, 3), (2, 1)): (1, False, 0),
}


def test_few_channels_share_vectors(monkeypatch):
    """Pixels in a group of forward, whether the input gradient scatters, pixels in a window of the weight gradient."""
    for name, value in AVX2.items():
        monkeypatch.setattr(plan.plans, name, value)
    for (x, w, stride), want in LAYERS.items():
        padding = (w[2] // 2, w[3] // 2)
        for dilation in ((1, 1), (2, 2)):
            out = conv2d.output_shape(x, w, None, stride, padding, dilation, 1)[2:]
            layer = Geometry(x, w, out, stride, padding, dilation, 1, 4, 1)
            chosen = plan._pixels(layer), plan._scatters(layer), plan._windows(layer)
            assert chosen == (want if dilation == (1, 1) else (1, False, 0)), (x, w)
