"""A vector under a mask, and e^x; formulas over runs of neighbouring elements are what kernels on the CPU are of."""

import numpy as np

from minigrad_kernels.toolchain import jit
from minigrad_kernels.toolchain.emit import TILE, emitted
from minigrad_kernels.toolchain.lines import line
from minigrad_kernels.toolchain.maths import exp

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 88.72, 88.73, -87.4, -103.9, -104.1, -1, 3.4e38]


@emitted
def scale(emit, x, at, factor, out, count):
    """The example at the head of emit.py."""
    emit.under_mask(count, lambda mask: out.store(x.load(at, mask) * factor, at, mask))


@jit
def scaled_vector(x, at, factor, out, count):
    scale(x, at, factor, out, count)


def test_a_vector_under_a_mask():
    for count in (0, 1, 3, 100):
        used = min(count, TILE.vector_bytes // 4)
        x, out = np.arange(120, dtype="f4"), np.zeros(120, "f4")
        scaled_vector(x, 7, np.float32(3), out, count)
        np.testing.assert_array_equal(out, np.where((x >= 7) & (x < 7 + used), 3 * x, 0))


@line(moving="x out")
def exponential(here):
    here.out = exp(here.x)


@jit
def exps(x, out):
    exponential(0, x.size, x, out)


def test_exp_is_within_two_units_of_the_last_place():
    """All kinds of float32: every 4099th of the 2^32, more of them near 0, and the edges."""
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-110, 100, 1 << 17, dtype=np.float32)])
    x = np.concatenate([x, np.linspace(-1.5, 3, 1 << 17, dtype=np.float32), np.array(EDGES, np.float32)])
    exps(x, out := np.empty_like(x))
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(float))
        want = exact.astype(np.float32)
        error = np.abs(out - exact) / np.spacing(np.abs(want))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))
    finite = np.isfinite(want)
    assert not np.signbit(out[finite]).any() and error[finite].max() <= 2 + 1e-3
