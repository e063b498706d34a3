"""e^x and ln x of a float32, over its whole range."""

import numpy as np
import pytest

from minigrad_kernels.softmax.cpu_parts import exps, logs

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 88.72, 88.73, -87.4, -103.9, -104.1, -1, 3.4e38]


@pytest.mark.parametrize("function, exact_function", [(exps, np.exp), (logs, np.log)], ids=["exp", "log"])
def test_functions_are_within_two_units_of_the_last_place(function, exact_function):
    """All kinds of float32: every 4099th of the 2^32, more of them near 0, and the edges."""
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-110, 100, 1 << 17, dtype=np.float32)])
    x = np.concatenate([x, np.linspace(-1.5, 3, 1 << 17, dtype=np.float32), np.array(EDGES, np.float32)])
    out = x.copy()
    function(out)
    with np.errstate(all="ignore"):
        exact = exact_function(x.astype(float))
        want = exact.astype(np.float32)
        error = np.abs(out - exact) / np.spacing(np.abs(want))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.signbit(out[finite]), np.signbit(want[finite]))
    assert error[finite].max() <= 2 + 1e-3
