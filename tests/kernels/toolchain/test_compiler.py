"""Kernels compiled by linking: they do what Python does, each part is compiled once, and others see nothing of it."""

import numpy as np
import pytest
from numba.core.registry import cpu_target

from minigrad_kernels.toolchain import compiler, jit


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
            for line in x[:stop]:
                out[0, -1] += line[1]
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

    def computed(x, out):
        out[:] = x + x

    for function in (computed, called):
        with pytest.raises(Exception, match=": kernels allocate no arrays; wanted one that the caller gives"):
            jit(function)(np.zeros(2), np.zeros(2))


def test_what_numba_compiles_for_itself_is_not_shared():
    """It counts no references here; functions of others need those."""

    def raised(x, out):
        out[0] = x.size**x.size

    table = cpu_target.target_context.cached_internal_func
    before = dict(table)
    jit(raised)(np.arange(3.0), np.zeros(1))
    assert table == before and compiler._internal
