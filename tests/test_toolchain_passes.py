"""The short way of kernels through Numba: compiled functions do what Python does with the same arrays."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from minigrad_kernels.toolchain import cache, jit, passes
from minigrad_kernels.toolchain.compiler import Entry


def elements(x, y, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[i, -1 - j] + y[-1 - j]
    out[-1, 0] = 2 * x[0, 0]
    out[0, -1] += x.size + x.shape[1]


def unsigned(x, y, out):
    for i in range(np.uint64(out.shape[0])):
        out[i, 0] = x[i, np.uint64(1)]
        out[i, 1] = y[1]


def ranges(x, y, out):
    start, stop = int(x[0, 0]), int(x[0, 1])
    for k in range(start, stop):
        out[0, 0] += k
    for k in range(start, stop, 3):
        out[0, 1] += k
    for k in range(stop, start, -2):
        out[0, 2] += k
    for k in range(start, stop, y.size):
        out[1, 0] += 10 * k
    for _ in range(start - stop):
        out[1, 1] += 1
    for k in range(stop):
        if k == 3:
            break
        out[1, 2] += k


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


def branches(x, y, out):
    last, found = 0.0, -1
    for i in range(x.shape[0]):
        if x[i, 0] > 1:
            found = i
            seen = x[i, 1]
            last = seen
        elif i:
            last = seen + 1
        j = 0
        while j < out.shape[1]:
            before = last
            last, j = last + j, j + 1
            out[i, j - 1] = before - last
    out[0, 0] = last + found


def whole_arrays(x, y, out):
    out[:, :] = x[:, :3] * 2 - y[:3]


def integers(x, y, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a, b = int(x[i, j]) - 4, int(y[j]) - 6
            out[0, 0] += a // b + 3 * (a % b)
            out[0, 1] += a // 8 + 3 * (a % 8) + a // 6 - a % 6
            out[0, 2] += a // -4 + 3 * (a % -4)
            a //= b
            out[1, 0] += min(a, b) + 5 * max(a, j)
            a %= b
            out[1, 1] += a + min(a, 1) - max(3, b) + min(-2, 2)
            out[1, 2] += min(x[i, j], y[j]) + max(int(y[j]), j, a)


def views(x, y, out):
    rows = 0
    for i in range(-x.shape[0], x.shape[0]):
        for start in range(-6, 7):
            for stop in range(-6, 7):
                row = y[start:stop]
                rows += row.size + x[start:stop].size + x[start:].shape[0] * x[i].shape[0]
                if row.size > 0:
                    out[i] += row[0] + row[-1] + x[i][start:stop].size
                for line in x[:stop]:
                    out[0, -1] += line[1]
    out[1:][0] += out[:1][0]
    out[-1][2] += x[:].size + x[:, 1:][0, 0] + x[0, :2][1] + y[3:0:-1][0] + rows


FUNCTIONS = elements, unsigned, ranges, iterators, integers, views, branches, whole_arrays
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


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.int64, np.float32])
def test_elements_of_each_type(dtype):
    def mirrored(x, out):
        for k in range(x.size):
            out[k] = x[-1 - k]

    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    x.flags.writeable = False
    out = np.zeros(5, dtype)
    jit(mirrored)(x, out)
    assert (out == x[::-1]).all()


def test_a_number_is_converted_to_the_type_of_the_elements():
    def written(out):
        out[0] = 2.75
        out[1] = True
        out[2] = out.size

    out = np.zeros(3, np.int32)
    jit(written)(out)
    assert out.tolist() == [2, 1, 3]


def test_a_function_that_needs_more_passes_goes_numbas_own_way():
    def closed(x, out):
        def twice(number):
            return 2 * number

        for k in range(x.size):
            out[k] = twice(x[k])

    x, out = np.arange(3.0), np.zeros(3)
    jit(closed)(x, out)
    assert out.tolist() == [0, 2, 4]


def test_memory_of_numbas_own_is_counted():
    """Arrays that a kernel makes need references to be counted."""

    def made(x, out):
        for k in range(x.size):
            held = np.zeros(x.size)
            held[k] = x[k]
            copied = held + 1
            out[k] = copied.sum()

    x, out = np.arange(4.0), np.zeros(4)
    jit(made)(x, out)
    assert out.tolist() == [4, 5, 6, 7]


def test_what_min_cannot_do_is_refused():
    def least(x, out):
        out[0] = min(int(x[0]), int(x[1]), key=abs)

    with pytest.raises(TypingError):
        jit(least)(np.array([-3.0, 2]), np.zeros(1))


def test_what_no_processor_divides():
    """By 0 gives 0 in kernels, as in Numba; the least number by -1 does not end the process."""

    def divided(x, by, out):
        for k in range(x.size):
            out[0, k], out[1, k] = x[k] // by[k], x[k] % by[k]

    least = np.iinfo(np.int64).min
    x, out = np.array([7, -7, 0, 7, least]), np.ones((2, 5), np.int64)
    jit(divided)(x, np.array([0, 0, 0, -1, -1]), out)
    assert out[:, :4].tolist() == [[0, 0, 0, -7], [0, 0, 0, 0]] and out[1, 4] == 0


@pytest.mark.parametrize("bounds", [(0, 5), (5, 0), (-4, 4), (4, -4), (3, 3)])
@pytest.mark.parametrize("step", [1, 2, 3, 7, -1, -2, -7])
def test_a_range_given_to_another_function(bounds, step):
    def made(start, stop, step):
        return range(start, stop, step)

    made_there = jit(made)

    def listed(start, stop, step, out):
        count = 0
        for k in made_there(start, stop, step):
            out[count] = k
            count += 1
        for k in range(start, stop, 3):
            out[count] = k
            count += 1
        out[-1] = count

    expected = [*range(*bounds, step), *range(*bounds, 3)]
    out = np.zeros(20, np.int64)
    jit(listed)(*bounds, step, out)
    assert out[: len(expected)].tolist() == expected and out[-1] == len(expected)


def test_a_step_of_zero_is_refused():
    def stepped(x, out):
        for k in range(0, x.size, int(x[0])):
            out[k] = 1

    with pytest.raises(ValueError, match="must not be zero"):
        jit(stepped)(np.zeros(2), np.zeros(2))


def test_kernels_need_no_more_than_the_short_way(monkeypatch):
    """Else a version of Numba has changed, and compilation takes longer than it has to."""

    def refused(state, lowering):
        raise AssertionError(f"{state.func_id.func_name} takes the long way")

    monkeypatch.setattr(passes, "_long", refused)
    monkeypatch.setattr(cache, "load", lambda *arguments: None)
    entry = Entry(elements)
    x, out = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    entry(x, x[0], out)
    assert entry.compiled == 1 and out.tolist() == [[2, 2, 11], [2, 2, 2]]
