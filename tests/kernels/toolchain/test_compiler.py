"""Kernels compiled by linking: what they refuse, that others see nothing of it; and e^x."""

import numpy as np
import pytest
from numba.core.registry import cpu_target

from minigrad_kernels.toolchain import cache, compiler, jit
from minigrad_kernels.toolchain.lines import line
from minigrad_kernels.toolchain.maths import exp


def test_kernels_allocate_nothing():
    def moved(x, out):
        out[:] = x  # between arrays that may overlap

    part = jit(moved)

    def called(x, out):
        part(x, out)

    with pytest.raises(Exception, match=": kernels allocate no arrays; wanted one that the caller gives"):
        jit(called)(np.zeros(2), np.zeros(2))


def test_what_numba_compiles_for_itself_is_not_shared(monkeypatch, tmp_path):
    """It counts no references here; functions of others need those."""
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)  # where no run before has kept the kernel

    def raised(x, out):
        out[0] = x.size**x.size

    table = cpu_target.target_context.cached_internal_func
    before = dict(table)
    jit(raised)(np.arange(3.0), out := np.zeros(1))
    assert out[0] == 27 and table == before and compiler._internal


EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 88.72, 88.73, -87.4, -103.9, -104.1, -1, 3.4e38]


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
