"""e^x of a float32, over its whole range."""

import numpy as np

from minigrad_kernels.toolchain import jit
from minigrad_kernels.toolchain.lines import line
from minigrad_kernels.toolchain.maths import exp

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 88.72, 88.73, -87.4, -103.9, -104.1, -1, 3.4e38]


@line(moving="x out")
def formula(here):
    here.out = exp(here.x)


@jit
def exps(x, out):
    formula(0, x.size, x, out)


def test_exp_is_within_two_units_of_the_last_place():
    """All kinds of float32: every 4099th of the 2^32, more of them near 0, and the edges."""
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-110, 100, 1 << 17, dtype=np.float32)])
    x = np.concatenate([x, np.linspace(-1.5, 3, 1 << 17, dtype=np.float32), np.array(EDGES, np.float32)])
    out = np.empty_like(x)
    exps(x, out)
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(float))
        want = exact.astype(np.float32)
        error = np.abs(out - exact) / np.spacing(np.abs(want))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))
    finite = np.isfinite(want)
    assert not np.signbit(out[finite]).any() and error[finite].max() <= 2 + 1e-3
