"""Filters that are read with rows of whole vectors, and partial sums of their gradients."""

import numpy as np
import pytest

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.conv2d import cpu, filter_plan, filters, pixel_plan, reference
from minigrad_kernels.toolchain import set_threads

from .test_conv2d_neighbours import computed, defined, direct, forget, geometry_of, last, no_change_of_threads, problem

__all__ = ["direct", "no_change_of_threads"]

# Images, channels read and made, size, kernel, stride, padding, dilation
CASES = [
    (3, 20, 33, (9, 8), (3, 2), (1, 1), (1, 0), (1, 1)),
    (2, 35, 21, (11, 9), (5, 4), (2, 1), (2, 2), (1, 1)),
    (5, 17, 50, (6, 7), (1, 1), (1, 2), (0, 0), (1, 1)),
    (2, 27, 18, (10, 9), (3, 3), (1, 2), (3, 2), (2, 1)),
    (2, 32, 64, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
]


def forget_all():
    forget()
    for kept in cpu._pooled, cpu._with_pooling, pixel_plan.forward_plan, pixel_plan.input_grad_plan:
        kept.cache_clear()


WAYS = {"as stored": (1 << 60, 0.0), "whole": (0, 0.0), "apart": (0, np.inf)}  # filters.REPAYS and WORTH


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Rows as they are stored, of whole vectors wherever they can be, or also with what is left over apart."""
    forget_all()
    for name, value in zip(("REPAYS", "WORTH"), WAYS[request.param], strict=True):
        monkeypatch.setattr(filters, name, value)
    yield request.param
    forget_all()


def rows_wanted(way, columns, lanes):
    whole, rest = columns - columns % lanes, columns % lanes
    if way == "apart" and rest:
        return whole, rest
    return (columns if way == "as stored" else whole + lanes * (rest > 0)), 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("direction", ["forward", "input_grad"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_exact(case, direction, dtype, way):
    inputs = problem(case, dtype)
    geometry = geometry_of(inputs[0], inputs[1], inputs[2], inputs[4])
    columns = case[1 if direction == "input_grad" else 2]
    wanted = rows_wanted(way, columns, filters.VECTOR_BYTES // geometry.itemsize)
    assert filters.filter_rows(direction, geometry) == wanted
    as_stored = direction == "forward" and wanted[0] == columns
    assert cpu._setup(direction, geometry).rows == (None if as_stored else wanted)
    assert np.array_equal(computed(direction, *inputs), defined(direction, *inputs))


@pytest.mark.parametrize("direction", ["forward", "input_grad"])
def test_same_bits_for_any_number_of_threads(direction, way):
    inputs = problem(CASES[1], np.float32)
    inputs = [x * np.float32(1.1) if isinstance(x, np.ndarray) else x for x in inputs]
    results = []
    for count in (1, 2):
        set_threads(count)
        forget_all()
        results.append(computed(direction, *inputs).tobytes())
    assert len(set(results)) == 1


def test_a_few_channels_beyond_whole_vectors_lie_apart():
    lanes = filters.VECTOR_BYTES // 4
    x, w, g, _, settings = problem((9, 91, 2 * lanes, (20, 36), (6, 6), (1, 1), (3, 3), (1, 1)), np.float32)
    geometry = geometry_of(x, w, g, settings)
    for made, wanted in ((2 * lanes, (2 * lanes, 0)), (2 * lanes + 1, (2 * lanes, 1)), (lanes // 2, (lanes, 0))):
        changed = geometry._replace(w_shape=(made, *geometry.w_shape[1:]))
        assert filters.filter_rows("forward", changed) == wanted
    short = geometry._replace(w_shape=(2 * lanes + 1, 3, 1, 1))
    assert filters.filter_rows("forward", short) == (3 * lanes, 0), "runs of three elements"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pooled_sums_are_exact(case, way):
    x, w, _, bias, settings = problem(case, np.float32)
    convolved = reference.forward(x, w, bias, True, *settings)
    windows = (2, 2), (2, 2), (0, 0), (1, 1)
    shape = pool2d.output_shape("pool", convolved.shape, *windows, False)
    out = last(np.random.default_rng(0), shape[0], shape[1], *shape[2:], np.float32)
    positions = np.zeros((shape[0], *shape[2:], shape[1]), np.uint8).transpose(0, 3, 1, 2)
    conv2d.forward_pooled(
        x, w, bias, True, *settings, *windows, out, positions, lambda size, like: np.full(size, 255, np.uint8)
    )
    i, j = shape[2:]
    blocks = convolved[:, :, : 2 * i, : 2 * j].reshape(*shape[:2], i, 2, j, 2)
    assert np.array_equal(out, blocks.max(axis=(3, 5)))


def test_grouped_filters_and_wide_ones_are_read_as_stored():
    x, w, g, _, settings = problem((9, 24, 40, (30, 30), (3, 3), (1, 1), (1, 1), (1, 1)), np.float32)
    geometry = geometry_of(x, w, g, settings)
    assert filters.filter_rows("forward", geometry)[0] % (filters.VECTOR_BYTES // 4) == 0
    for changed in (
        geometry._replace(w_shape=(1001, *geometry.w_shape[1:])),
        geometry._replace(w_shape=(41, *geometry.w_shape[1:]), groups=2),
        geometry._replace(w_shape=(41, *geometry.w_shape[1:]), x_shape=(1, 24, 30, 30)),
    ):
        assert filters.filter_rows("forward", changed) == (changed.w_shape[0], 0)


@pytest.mark.parametrize("made", [33, 37])
def test_packed_rows_of_few_vectors_are_summed_exactly(made):
    """Of a filter with enough rows that B, whose vectors lie across lines, goes into a panel."""
    inputs = problem((2, 12, made, (13, 9), (6, 6), (1, 1), (0, 0), (2, 1)), np.float32)
    plan = filter_plan.weight_grad_plan(geometry_of(inputs[0], inputs[1], inputs[2], inputs[4]))
    assert plan.panel > 0
    assert np.array_equal(computed("weight_grad", *inputs), defined("weight_grad", *inputs))
