"""What the columns of a convolution's products mean on the CPU: channels, pixels or taps, chosen or forced."""

import numpy as np
import pytest

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.conv2d import cpu, plan, reference
from minigrad_kernels.conv2d.filters import finite
from minigrad_kernels.conv2d.geometry import Geometry
from minigrad_kernels.conv2d.winograd_mode import winograd
from minigrad_kernels.toolchain import set_threads, threads
from minigrad_kernels.toolchain.product import VECTOR_BYTES

# Images, channels read and made, size, kernel, stride, padding, dilation
CASES = [
    (7, 1, 6, (28, 28), (5, 5), (1, 1), (2, 2), (1, 1)),
    (5, 3, 3, (17, 16), (3, 7), (2, 1), (1, 3), (1, 1)),
    (6, 4, 2, (16, 16), (5, 5), (2, 2), (2, 2), (1, 1)),
    (6, 2, 4, (13, 18), (3, 4), (1, 2), (3, 2), (2, 1)),
    (6, 3, 1, (12, 14), (3, 3), (1, 1), (1, 2), (1, 2)),
    (25, 6, 16, (14, 14), (5, 5), (1, 1), (0, 0), (1, 1)),
    (7, 20, 5, (11, 12), (4, 3), (2, 2), (1, 1), (1, 1)),
    (3, 5, 7, (9, 8), (2, 3), (3, 4), (0, 1), (1, 1)),
    (4, 40, 3, (6, 7), (3, 2), (1, 1), (2, 1), (2, 1)),
    (2, 3, 2, (5, 5), (5, 5), (1, 1), (2, 2), (1, 1)),
    (1, 70, 4, (5, 6), (3, 3), (1, 2), (1, 0), (1, 1)),
    (40, 2, 3, (3, 4), (2, 2), (1, 1), (0, 1), (1, 1)),
    (1, 1, 2, (7, 40), (1, 9), (3, 1), (0, 4), (1, 1)),
    (17, 4, 4, (5, 1), (3, 1), (1, 1), (1, 0), (1, 1)),
    (3, 7, 37, (8, 11), (3, 5), (2, 1), (2, 1), (1, 1)),
    (2, 35, 21, (11, 9), (5, 4), (2, 1), (2, 2), (1, 1)),
    (2, 130, 150, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
]
DIRECTIONS = ["forward", "input_grad", "weight_grad"]
PIXELS = [None, 1, 2, 5]  # in a group, forced; 1: columns are channels; None: as shapes say


def forget():
    """All plans."""
    cpu._ways.cache_clear()
    cpu._pooled.cache_clear()
    for launch in (conv2d.forward, conv2d.forward_pooled, conv2d.input_grad, conv2d.weight_grad):
        launch.contract.plans.clear()


@pytest.fixture(params=PIXELS)
def pixels(request, monkeypatch):
    """So many pixels in a group, or what shapes say; nothing by Winograd's way."""
    count, before = request.param, threads()
    if count:
        several = lambda geometry: min(count, geometry.out_size[1]) if count > 1 and plan._plain(geometry) else 0
        monkeypatch.setattr(plan, "_pixels", lambda geometry: max(1, several(geometry)))
        monkeypatch.setattr(plan, "_scatters", lambda geometry: several(geometry) > 0)
        monkeypatch.setattr(plan, "_windows", lambda geometry: several(geometry) * (geometry.dilation[0] == 1))
    forget()
    with winograd(False):
        yield count
    set_threads(before)
    forget()


def last(rng, n, c, h, w, dtype):
    """Small integers, channels last: all sums are exact."""
    return rng.integers(-3, 4, (n, h, w, c)).astype(dtype).transpose(0, 3, 1, 2)


def problem(case, dtype, integers=True):
    n, depth, made, size, kernel, *settings = case
    rng, settings = np.random.default_rng(0), (*settings, 1)
    x, w = last(rng, n, depth, *size, dtype), rng.integers(-3, 4, (*kernel, depth, made)).astype(dtype)
    w = w.transpose(3, 2, 0, 1)
    g = last(rng, n, made, *conv2d.output_shape(x.shape, w.shape, None, *settings)[2:], dtype)
    bias = rng.integers(-3, 4, made).astype(dtype)
    if not integers:
        for array in (x, w, g, bias):
            array[...] = rng.standard_normal(array.shape)
    return x, w, g, bias, settings


def computed(direction, x, w, g, bias, settings):
    arguments, like = {
        "forward": ((x, w, bias, False), g),
        "input_grad": ((g, w), x),
        "weight_grad": ((g, x), w),
    }[direction]
    out = np.full_like(like, np.nan)
    size = conv2d.workspace(direction, x.shape, w.shape, *settings, x.dtype)
    getattr(conv2d, direction)(*arguments, *settings, out, np.full(size, 255, np.uint8))
    return out


def defined(direction, x, w, g, bias, settings):
    if direction == "forward":
        return reference.forward(x, w, bias, False, *settings)
    if direction == "input_grad":
        return reference.input_grad(g, w, *settings, x.shape[2:])
    return reference.weight_grad(g, x, *settings, w.shape[2:])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_meanings_give_what_is_defined(case, pixels):
    """Exact sums in both types; NaN and infinity go no further; the same bits for any number of threads."""
    for direction in DIRECTIONS:
        for dtype in (np.float32, np.float64):
            inputs = problem(case, dtype)
            np.testing.assert_array_equal(computed(direction, *inputs), defined(direction, *inputs))
        x, _, g, *_ = inputs = problem(case, np.float32)
        for value in (np.nan, np.inf):
            x[-1, 0, 0, -1] = g[-1, 0, 0, -1] = value
            x[0, 0, x.shape[2] // 2, x.shape[3] // 2] = value
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(computed(direction, *inputs), defined(direction, *inputs))
        inputs, results = problem((4 * case[0], *case[1:]), np.float32, integers=False), set()
        for count in (1, 2):
            set_threads(count)
            results.add(computed(direction, *inputs).tobytes())
        assert len(results) == 1


@pytest.mark.parametrize("case", [CASES[0], CASES[7], CASES[-3]], ids=str)
def test_pooled_sums_are_exact(case, pixels):
    x, w, _, bias, settings = problem(case, np.float32)
    convolved = reference.forward(x, w, bias, True, *settings)
    windows = (2, 2), (2, 2), (0, 0), (1, 1)
    n, o, i, j = pool2d.output_shape("pool", convolved.shape, *windows, False)
    out, positions = (np.empty((n, i, j, o), kind).transpose(0, 3, 1, 2) for kind in (np.float32, np.uint8))
    space = lambda size, like: np.full(size, 255, np.uint8)
    conv2d.forward_pooled(x, w, bias, True, *settings, *windows, out, positions, space)
    blocks = convolved[:, :, : 2 * i, : 2 * j].reshape(n, o, i, 2, j, 2)
    np.testing.assert_array_equal(out, blocks.max(axis=(3, 5)))


@pytest.mark.skipif(VECTOR_BYTES < 32, reason="vectors of four lanes idle less")
def test_few_channels_share_vectors():
    def chosen(images, depth, made, side, kernel, **changed):
        size, settings = (side, side), dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1) | changed
        x, w = (images, depth, *size), (made, depth // settings["groups"], kernel, kernel)
        out = conv2d.output_shape(x, w, None, *settings.values())[2:]
        geometry = Geometry(x, w, out, *settings.values(), 4, 1)
        return [plan.ways(direction, geometry)[0].columns for direction in DIRECTIONS]

    assert chosen(64, 1, 6, 28, 5, padding=(2, 2)) == ["pixels", "taps", "taps"]
    assert chosen(64, 6, 16, 14, 5)[1] == "taps"
    for plain in (chosen(8, 64, 64, 12, 3), chosen(8, 4, 4, 12, 3, groups=2), chosen(64, 1, 6, 28, 5, dilation=(2, 2))):
        assert plain == ["channels"] * 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite(dtype):
    x = np.linspace(-np.finfo(dtype).max / 2, np.finfo(dtype).max / 2, 999, dtype=dtype)
    assert finite(x) and finite(x[:0])
    for place in (0, 500, 998):
        for value in (np.nan, -np.nan, np.inf, -np.inf):
            y = x.copy()
            y[place] = value
            assert not finite(y)
