"""Formulas over runs of neighbouring elements: what is read, stored and totalled, and nothing outside of it."""

import numpy as np
import pytest

from minigrad_kernels.toolchain import jit
from minigrad_kernels.toolchain.emit import TILE, emitted
from minigrad_kernels.toolchain.lines import LANES, lane_total, line

WIDTHS = [0, 1, LANES - 1, LANES, LANES + 1, 2 * LANES, 100]
each_width = pytest.mark.parametrize("width", WIDTHS)
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


@line(moving="x out", fixed="scale", totals="sums", numbers="shift")
def formula(here):
    here.out = here.x * here.scale + here.shift
    here.sums += here.out


@jit
def scaled(at, width, x, out, scale, sums, shift):
    formula(at, width, x, out, scale, sums, shift)
    return lane_total(sums)


@each_width
@each_type
@pytest.mark.parametrize("sum_type", [np.float32, np.float64])
def test_a_line_is_its_formula_and_touches_nothing_else(width, dtype, sum_type):
    at, size = 5, 128
    x = np.arange(size, dtype=dtype)
    out, scale, sums = np.full(size, -1, dtype), np.arange(size, dtype=dtype)[::-1].copy(), np.ones(LANES, sum_type)
    total = scaled(at, width, x, out, scale, sums, dtype(2))
    wanted = x[at : at + width] * scale[:width] + 2
    np.testing.assert_array_equal(out[at : at + width], wanted)
    assert (out[:at] == -1).all() and (out[at + width :] == -1).all()
    lanes = [1 + wanted[k::LANES].sum() for k in range(LANES)]
    np.testing.assert_array_equal(sums, lanes)
    assert total == sum(lanes)


@each_width
def test_totals_of_float64_lose_nothing(width):
    """Sums that float32 could not hold."""
    x = np.full(128, 1 + 2**-20, np.float32)
    sums = np.full(LANES, 2.0**20)
    total = scaled(0, width, x, x.copy(), np.ones(128, np.float32), sums, np.float32(0))
    assert total == LANES * 2.0**20 + width * (1 + 2**-20)


@emitted
def scale(emit, x, at, factor, out, count):
    """The example at the head of emit.py."""
    emit.under_mask(count, lambda mask: out.store(x.load(at, mask) * factor, at, mask))


@jit
def scaled_vector(x, at, factor, out, count):
    scale(x, at, factor, out, count)


@each_type
@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_vector_under_a_mask(count, dtype):
    x, out, used = np.arange(120, dtype=dtype), np.zeros(120, dtype), min(count, TILE.vector_bytes // dtype().itemsize)
    scaled_vector(x, 7, dtype(3), out, count)
    np.testing.assert_array_equal(out[7 : 7 + used], 3 * x[7 : 7 + used])
    assert not out[:7].any() and not out[7 + used :].any()
