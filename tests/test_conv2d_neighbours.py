"""Neighbouring pixels that share a vector, where a convolution makes few channels."""

import numpy as np
import pytest

from minigrad_kernels import conv2d
from minigrad_kernels.conv2d import cpu, filter_plan, reference, scatter_plan, window_plan
from minigrad_kernels.conv2d.geometry import Geometry
from minigrad_kernels.conv2d.neighbours import finite, neighbours
from minigrad_kernels.conv2d.winograd_mode import winograd
from minigrad_kernels.toolchain import set_threads, threads
from minigrad_kernels.toolchain.product import VECTOR_BYTES

# Images, channels read and made, size, kernel, stride, padding, dilation
CASES = [
    (7, 1, 6, (28, 28), (5, 5), (1, 1), (2, 2), (1, 1)),
    (5, 6, 6, (14, 15), (5, 4), (1, 1), (0, 0), (1, 1)),
    (5, 3, 3, (17, 16), (3, 7), (2, 1), (1, 3), (1, 1)),
    (6, 4, 2, (16, 16), (5, 5), (2, 2), (2, 2), (1, 1)),
    (6, 2, 4, (13, 18), (3, 4), (1, 2), (3, 2), (2, 1)),
    (6, 3, 1, (12, 14), (3, 3), (1, 1), (1, 2), (1, 2)),
]
# The same, for the input gradient alone, with as few or more channels in x
SCATTERED = [
    *CASES,
    (25, 6, 16, (14, 14), (5, 5), (1, 1), (0, 0), (1, 1)),
    (7, 20, 5, (11, 12), (4, 3), (2, 2), (1, 1), (1, 1)),
    (3, 5, 7, (9, 8), (2, 3), (3, 4), (0, 1), (1, 1)),
    (4, 40, 3, (6, 7), (3, 2), (1, 1), (2, 1), (2, 1)),
    (2, 3, 2, (5, 5), (5, 5), (1, 1), (2, 2), (1, 1)),
    (1, 70, 4, (5, 6), (3, 3), (1, 2), (1, 0), (1, 1)),
]
DIRECTIONS = ["forward", "input_grad", "weight_grad"]


@pytest.fixture(autouse=True)
def no_change_of_threads():
    before = threads()
    yield
    set_threads(before)


@pytest.fixture(autouse=True)
def direct():
    """No plan of Winograd's."""
    with winograd(False):
        yield


def forget():
    """All plans."""
    cpu._ways.cache_clear()
    window_plan.weight_grad_plan.cache_clear()
    for known in (conv2d._calls, conv2d._spaces):
        known._kept.clear()


@pytest.fixture
def always_scattered(monkeypatch):
    forget()
    monkeypatch.setattr(scatter_plan, "WORTH", float("inf"))
    yield
    forget()


def last(rng, n, c, h, w, dtype):
    """Small integers, channels last: all sums are exact."""
    return rng.integers(-3, 4, (n, h, w, c)).astype(dtype).transpose(0, 3, 1, 2)


def problem(case, dtype, seed=0):
    n, depth, made, size, kernel, *settings = case
    rng = np.random.default_rng(seed)
    x = last(rng, n, depth, *size, dtype)
    w = rng.integers(-3, 4, (*kernel, depth, made)).astype(dtype).transpose(3, 2, 0, 1)
    settings = (*settings, 1)
    out_shape = conv2d.output_shape(x.shape, w.shape, None, *settings)
    g = last(rng, n, made, *out_shape[2:], dtype)
    return x, w, g, rng.integers(-3, 4, made).astype(dtype), settings


def geometry_of(x, w, g, settings):
    return Geometry(x.shape, w.shape, g.shape[2:], *settings, x.itemsize, 1)


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


def together(direction, x, w, g, settings):
    geometry = geometry_of(x, w, g, settings)
    if direction == "weight_grad":
        return filter_plan.neighbours(geometry)
    found = neighbours(direction, geometry)
    return found.pixels if found else 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_exact(case, direction, dtype):
    inputs = problem(case, dtype)
    assert np.array_equal(computed(direction, *inputs), defined(direction, *inputs))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_not_finite_goes_no_further(case, value, direction):
    x, w, g, bias, settings = problem(case, np.float32)
    x[1, 0, 5, 6] = g[1, 0, 3, 4] = value
    with np.errstate(invalid="ignore"):
        expected = defined(direction, x, w, g, bias, settings)
    assert np.array_equal(computed(direction, x, w, g, bias, settings), expected, equal_nan=True)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_do_not_depend_on_the_threads(case, direction):
    n, depth, made, *rest = case
    x, w, g, bias, settings = problem((4 * n, depth, made, *rest), np.float32)
    rng, results = np.random.default_rng(1), []
    for array in (x, w, g, bias):
        array[...] = rng.standard_normal(array.shape)
    for count in range(1, threads() + 1):
        set_threads(count)
        results.append(computed(direction, x, w, g, bias, settings).tobytes())
    assert len(set(results)) == 1


def test_few_channels_share_a_vector():
    x, w, g, _, settings = problem(CASES[2], np.float32)
    lanes = VECTOR_BYTES // 4
    for direction in DIRECTIONS:
        assert (together(direction, x, w, g, settings) > 1) == (lanes > 4)
    many = Geometry((8, 64, 12, 12), (64, 64, 3, 3), (12, 12), (1, 1), (1, 1), (1, 1), 1, 4, 1)
    grouped = Geometry((8, 4, 12, 12), (4, 2, 3, 3), (12, 12), (1, 1), (1, 1), (1, 1), 2, 4, 1)
    for geometry in (many, grouped):
        assert neighbours("forward", geometry) is neighbours("input_grad", geometry) is None
        assert filter_plan.neighbours(geometry) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite(dtype):
    x = np.linspace(-np.finfo(dtype).max / 2, np.finfo(dtype).max / 2, 999, dtype=dtype)
    assert finite(x) and finite(x[:0])
    for place in (0, 500, 998):
        for value in (np.nan, -np.nan, np.inf, -np.inf):
            y = x.copy()
            y[place] = value
            assert not finite(y)


# ---- scattered ---------------------------------------------------------------------------------------------------


def is_scattered(x, w, settings):
    setup = cpu._ways("input_grad", x.shape, w.shape, *settings, x.itemsize, threads(), cpu.mode()).near
    return setup.picks is not None and setup.exact


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", SCATTERED, ids=str)
def test_scattered_sums_are_exact(case, dtype, always_scattered):
    inputs = problem(case, dtype)
    fills_vectors = case[1] * np.dtype(dtype).itemsize % (2 * VECTOR_BYTES) == 0
    assert is_scattered(inputs[0], inputs[1], inputs[4]) == (case[-1][1] == 1 and not fills_vectors)
    assert np.array_equal(computed("input_grad", *inputs), defined("input_grad", *inputs))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", SCATTERED, ids=str)
def test_scattered_what_is_not_finite_goes_no_further(case, value, always_scattered):
    inputs = problem(case, np.float32)
    inputs[2][-1, 0, 1, 1] = value
    with np.errstate(invalid="ignore"):
        expected = defined("input_grad", *inputs)
    assert np.array_equal(computed("input_grad", *inputs), expected, equal_nan=True)


@pytest.mark.parametrize("case", SCATTERED, ids=str)
def test_scattered_bits_do_not_depend_on_the_threads(case, always_scattered):
    n, depth, made, *rest = case
    x, w, g, bias, settings = problem((4 * n, depth, made, *rest), np.float32)
    rng, results = np.random.default_rng(1), []
    for array in (w, g):
        array[...] = rng.standard_normal(array.shape)
    for count in range(1, threads() + 1):
        set_threads(count)
        results.append(computed("input_grad", x, w, g, bias, settings).tobytes())
    assert len(set(results)) == 1


def test_few_channels_under_a_wide_filter_are_scattered():
    settings = (1, 1), (0, 0), (1, 1), 1
    few, many = problem(SCATTERED[6], np.float32), problem((8, 64, 64, (9, 9), (3, 3), *settings[:3]), np.float32)
    assert is_scattered(few[0], few[1], settings) or VECTOR_BYTES == 16
    assert not is_scattered(many[0], many[1], settings)


# ---- windows side by side ----------------------------------------------------------------------------------------

# Images, channels read and made, size, kernel, stride, padding, dilation: of weight_grad
WINDOWS = [
    *CASES[:4],
    (25, 1, 6, (28, 28), (5, 5), (1, 1), (2, 2), (1, 1)),
    (9, 3, 5, (9, 23), (4, 3), (2, 3), (3, 2), (1, 1)),
    (40, 2, 3, (3, 4), (2, 2), (1, 1), (0, 1), (1, 1)),
    (2, 5, 1, (4, 3), (3, 3), (1, 1), (2, 5), (1, 1)),
    (1, 1, 2, (7, 40), (1, 9), (3, 1), (0, 4), (1, 1)),
    (17, 4, 4, (5, 1), (3, 1), (1, 1), (1, 0), (1, 1)),
    (17, 20, 18, (9, 8), (4, 4), (1, 1), (0, 0), (1, 1)),
    (3, 7, 37, (8, 11), (3, 5), (2, 1), (2, 1), (1, 1)),
    (2, 33, 33, (6, 5), (1, 1), (1, 2), (0, 0), (1, 1)),
]


@pytest.fixture
def always_by_windows(monkeypatch):
    forget()
    monkeypatch.setattr(window_plan, "WORTH", float("inf"))
    yield
    forget()


@pytest.fixture(params=[window_plan.IN_PLACE, 1, 2, 3, 5])
def pixels(request, monkeypatch, always_by_windows):
    """So many pixels in a group, where a row has as many; or windows in place, as where many channels are made."""
    monkeypatch.setattr(window_plan, "_cost", lambda geometry, pixels: abs(pixels - request.param))
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_sums_over_windows_are_exact(case, dtype, pixels):
    inputs = problem(case, dtype)
    x, w, g, _, settings = inputs
    layout = window_plan.weight_grad_plan(geometry_of(x, w, g, settings))[1]
    assert layout.folded and layout.pixels == max(1, min(pixels, g.shape[3], window_plan.MOST_ROWS // case[2]))
    assert np.array_equal(computed("weight_grad", *inputs), defined("weight_grad", *inputs))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_pass_on_what_is_not_finite_as_it_is_defined(case, value, always_by_windows):
    inputs = problem(case, np.float32)
    for array in inputs[0], inputs[2]:
        array[-1, 0, 0, -1] = value
    with np.errstate(invalid="ignore"):
        expected = defined("weight_grad", *inputs)
    assert np.array_equal(computed("weight_grad", *inputs), expected, equal_nan=True)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_bits_of_windows_do_not_depend_on_the_threads(case, always_by_windows):
    n, *rest = case
    x, w, g, bias, settings = problem((4 * n, *rest), np.float32)
    rng, results = np.random.default_rng(1), []
    for array in (x, g):
        array[...] = rng.standard_normal(array.shape)
    for count in range(1, threads() + 1):
        set_threads(count)
        results.append(computed("weight_grad", x, w, g, bias, settings).tobytes())
    assert len(set(results)) == 1


def test_few_channels_under_a_large_filter_go_by_windows():
    def by_windows(case):
        x, w, g, _, settings = problem(case, np.float32)
        layout = window_plan.weight_grad_plan(geometry_of(x, w, g, settings))[1]
        return layout.folded and layout.steps[2] == 1

    def in_place(case):
        x, w, g, _, settings = problem(case, np.float32)
        plan = window_plan.weight_grad_plan(geometry_of(x, w, g, settings))[0]
        return bool(plan.border[8]) and not plan.border[7]

    rest = (1, 1), (1, 1), (1, 1)
    assert in_place((8, 64, 35, (9, 9), (5, 5), *rest)) or VECTOR_BYTES == 16
    assert not in_place((8, 64, 64, (9, 9), (5, 5), *rest))
    assert not in_place((8, 1, 6, (28, 28), (5, 5), *rest))
    assert by_windows((8, 1, 6, (28, 28), (5, 5), *rest)) or VECTOR_BYTES == 16
    assert not by_windows((8, 64, 64, (9, 9), (3, 3), *rest))
    assert not by_windows((8, 1, 16, (28, 28), (3, 3), *rest))
    assert not by_windows((8, 1, 6, (28, 28), (5, 5), (1, 1), (1, 1), (2, 1)))
