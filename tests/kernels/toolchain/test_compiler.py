"""Kernels compiled by linking: they do what Python does, each part is compiled once, and others see nothing of it."""

import numpy as np
import pytest
from numba.core.registry import cpu_target

from minigrad_kernels.toolchain import compiler, jit


def iterators(x, y, out):
    for i, k in enumerate(range(1, out.shape[1])):
        out[0, k] += 10 * i + k
    for k, value in zip(range(out.shape[1] + 3), y[: out.shape[1]]):  # noqa: B905 (Numba knows no strict)
        out[1, k] += value
    for _ in range(2):
        for k in range(-2, 0):
            out[k, k] += k
    numbers, total = range(3), 0
    for k in numbers:
        total += k
    for k in numbers:
        total += 5 * k
    out[np.int32(1), np.uint8(1)] += total + len(numbers)


def views(x, y, out):
    rows = 0
    for i in range(-x.shape[0], x.shape[0]):
        for start in range(-6, 7):
            for stop in range(-6, 7):
                row = y[start:stop]
                rows += row.size + x[start:stop].size + x[start:].shape[0] * x[i].shape[0]
                if row.size > 0:
                    out[i, 1] += row[0] + row[-1] + x[i][start:stop].size
                for line in x[:stop]:
                    out[0, -1] += line[1]
    out[1:][0][1] += out[:1][0][2]
    out[-1][2] += x[:].size + x[:, 1:][0, 0] + x[0, :2][1] + y[3:0:-1][0] + rows


FUNCTIONS = iterators, views
LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "reversed": lambda array: np.ascontiguousarray(array[::-1])[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_compiled_function_does_what_python_does(function, layout):
    x = LAYOUTS[layout](np.array([[2.0, 9, 4, 1], [3, 5, 7, 0]]))
    y = LAYOUTS[layout](np.array([1.0, 5, 2, 8]))
    expected, got = LAYOUTS[layout](np.zeros((2, 3))), LAYOUTS[layout](np.zeros((2, 3)))
    function(x, y, expected)
    jit(function)(x, y, got)
    assert expected.any() and (got == expected).all()


@jit
def twice(x):
    return x + x


@jit
def stepped(out, step):
    for k in range(0, out.size, step):
        out[k] = twice(step)


def test_a_part_is_compiled_once_for_each_type():
    """A number that is written in the caller is of no type of its own."""

    def called(x, out):
        out[0] = twice(2) + twice(3) + twice(x.size)
        out[1] = twice(x[0]) + twice(0.5)

    out = np.zeros(2)
    jit(called)(np.array([7.0]), out)
    assert out.tolist() == [12, 15]
    assert {str(*kinds) for kinds in twice.part.overloads} == {"int64", "float64"}


def test_an_error_in_a_part_reaches_python():
    @jit
    def called(x, out):
        stepped(out, int(x[0]))

    out = np.zeros(4)
    called(np.array([3.0]), out)
    assert out.tolist() == [6, 0, 0, 6]
    with pytest.raises(ValueError, match="must not be zero"):
        called(np.array([0.0]), out)


def made(x, out):
    held = np.zeros(x.size)
    out[0] = held[0]


def computed(x, out):
    out[:] = x + x


def moved(x, out):
    out[:] = x


@pytest.mark.parametrize("function", [made, computed, moved], ids=lambda function: function.__name__)
def test_kernels_allocate_nothing(function):
    part = jit(function)

    def called(x, out):
        part(x, out)

    for kernel in function, called:
        with pytest.raises(Exception, match=": kernels allocate no arrays; wanted one that the caller gives"):
            jit(kernel)(np.zeros(2), np.zeros(2))


def test_what_numba_compiles_for_itself_is_not_shared():
    """It counts no references here; functions of others need those."""

    def raised(x, out):
        out[0] = x.size**x.size

    table = cpu_target.target_context.cached_internal_func
    before = dict(table)
    jit(raised)(np.arange(3.0), np.zeros(1))
    assert table == before and compiler._internal
