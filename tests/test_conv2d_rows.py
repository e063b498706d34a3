"""Filters that are read with rows of whole vectors, and partial sums of their gradients."""

import numpy as np
import pytest

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.conv2d import cpu, filter_plan, pixel_plan, reference
from minigrad_kernels.toolchain import set_threads, threads

from .test_conv2d_neighbours import computed, defined, forget, geometry_of, last, no_change_of_threads, problem

__all__ = ["no_change_of_threads"]

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


@pytest.fixture(params=[0, 1 << 60], ids=["whole", "as stored"])
def whole(request, monkeypatch):
    """Whether rows are whole vectors wherever they can be, or nowhere."""
    forget_all()
    monkeypatch.setattr(pixel_plan, "REPAYS", request.param)
    yield not request.param
    forget_all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("direction", ["forward", "input_grad"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_exact(case, direction, dtype, whole):
    inputs = problem(case, dtype)
    geometry = geometry_of(inputs[0], inputs[1], inputs[2], inputs[4])
    columns = case[1 if direction == "input_grad" else 2]
    lanes = pixel_plan.VECTOR_BYTES // geometry.itemsize
    wanted = -(-columns // lanes) * lanes if whole else columns
    assert pixel_plan.filter_step(geometry, columns) == wanted
    assert cpu._setup(direction, geometry).step == (wanted if wanted != columns else 0)
    assert np.array_equal(computed(direction, *inputs), defined(direction, *inputs))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pooled_sums_are_exact(case, whole):
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
    assert pixel_plan.filter_step(geometry, 40) % (pixel_plan.VECTOR_BYTES // 4) == 0
    assert pixel_plan.filter_step(geometry, 1001) == 1001
    assert pixel_plan.filter_step(geometry._replace(groups=2), 41) == 41
    assert pixel_plan.filter_step(geometry._replace(x_shape=(1, 24, 30, 30)), 41) == 41


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("size", [1, 37, 5000])
def test_partial_sums_are_added_in_pairs(count, size):
    partials = np.random.default_rng(count).standard_normal((count, size), dtype=np.float32)
    rows = list(partials.copy())
    while len(rows) > 1:
        half = (len(rows) + 1) // 2
        rows = [row + rows[half + k] if half + k < len(rows) else row for k, row in enumerate(rows[:half])]
    for n in range(1, threads() + 1):
        set_threads(n)
        for shares in (filter_plan.add_pairwise, filter_plan.add_pairwise.alone):
            total = np.empty(size, np.float32)
            shares(partials.copy(), total)
            assert np.array_equal(total, rows[0])


@pytest.mark.parametrize("made", [33, 37])
def test_packed_rows_of_few_vectors_are_summed_exactly(made):
    """Of a filter with enough rows that B, whose vectors lie across lines, goes into a panel."""
    inputs = problem((2, 12, made, (13, 9), (6, 6), (1, 1), (0, 0), (2, 1)), np.float32)
    plan = filter_plan.weight_grad_plan(geometry_of(inputs[0], inputs[1], inputs[2], inputs[4]))
    assert plan.panel > 0
    assert np.array_equal(computed("weight_grad", *inputs), defined("weight_grad", *inputs))
