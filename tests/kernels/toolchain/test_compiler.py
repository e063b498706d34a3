"""Kernels compiled by linking: they do what Python does, others see nothing of it; and vectors, e^x."""

import numpy as np
import pytest
from numba.core.registry import cpu_target

from minigrad_kernels.toolchain import compiler, jit
from minigrad_kernels.toolchain.emit import TILE, emitted
from minigrad_kernels.toolchain.lines import line
from minigrad_kernels.toolchain.maths import exp


def iterators_and_views(x, y, out):
    for i, k in enumerate(range(1, out.shape[1])):
        out[0, k] += 10 * i + k
    for k, value in zip(range(out.shape[1] + 3), y[: out.shape[1]]):  # noqa: B905 (Numba knows no strict)
        out[np.int32(1), k] += value
    numbers, total = range(-2, 3), 0
    for k in numbers:
        total += k * len(numbers)
    for start in range(-6, 7, 3):
        for stop in range(-6, 7, 2):
            row = y[start:stop]
            total += row.size + x[start:stop].size
            if row.size > 0:
                out[-1, 1] += row[0] + row[-1] + x[-1][start:stop].size
            for part in x[:stop]:
                out[0, -1] += part[1]
    out[-1][2] += x[:].size + x[:, 1:][0, 0] + x[0, :2][1] + y[3:0:-1][0] + total


def test_a_compiled_function_does_what_python_does():
    for change in (np.ascontiguousarray, np.asfortranarray, lambda array: np.flip(np.flip(array).copy())):
        x = change(np.array([[2.0, 9, 4, 1], [3, 5, 7, 0]]))
        y = change(np.array([1.0, 5, 2, 8]))
        expected, got = change(np.zeros((2, 3))), change(np.zeros((2, 3)))
        iterators_and_views(x, y, expected)
        jit(iterators_and_views)(x, y, got)
        assert expected.any() and (got == expected).all()


@jit
def twice(x):
    return x + x


def test_an_error_in_a_part_reaches_python():
    @jit
    def stepped(out, step):
        for k in range(0, out.size, step):
            out[k] = twice(step)

    @jit
    def called(x, out):
        stepped(out, int(x[0]))

    out = np.zeros(4)
    called(np.array([3.0]), out)
    assert out.tolist() == [6, 0, 0, 6]
    with pytest.raises(ValueError, match="must not be zero"):
        called(np.array([0.0]), out)


def test_kernels_allocate_nothing():
    def moved(x, out):
        out[:] = x  # between arrays that may overlap

    part = jit(moved)

    def called(x, out):
        part(x, out)

    with pytest.raises(Exception, match=": kernels allocate no arrays; wanted one that the caller gives"):
        jit(called)(np.zeros(2), np.zeros(2))


def test_what_numba_compiles_for_itself_is_not_shared():
    """It counts no references here; functions of others need those."""

    def raised(x, out):
        out[0] = x.size**x.size

    table = cpu_target.target_context.cached_internal_func
    before = dict(table)
    jit(raised)(np.arange(3.0), np.zeros(1))
    assert table == before and compiler._internal


# ---- vectors ---------------------------------------------------------------------------------------------------------

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
