"""Pooling on CUDA: both rungs beside the CPU's bits, ties and NaN, tables of windows, quotients, memory traffic."""

import re

import numpy as np
import pytest

from minigrad_kernels import interpreter, pool2d
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.pool2d import adaptive_windows, average_windows, cuda, output_shape, position_type
from minigrad_kernels.pool2d.cuda_vector import by
from minigrad_kernels.toolchain.cuda import memory

from .kernel_runs import DEVICE, moved, on_host, same_bits, told

RUNGS = [("plain", np.float32), ("plain", np.float64), ("vector", np.float32)]
each_rung = pytest.mark.parametrize("rung, dtype", RUNGS, ids=["plain-f4", "plain-f8", "vector-f4"])


@pytest.fixture
def choose(monkeypatch):
    """A function that lets only one rung run."""
    return lambda rung: monkeypatch.setattr(cuda, "choose", lambda op, asked, misfits: rung)


def empty(shape, dtype, device="cpu"):
    """Channels last; on a device the memory is what `moved` makes of NaN."""
    n, c, h, w = shape
    fill = np.nan if np.dtype(dtype).kind == "f" else 255
    return moved(np.full((n, h, w, c), fill, dtype).transpose(0, 3, 1, 2), device)


def images(shape, dtype=np.float32, low=-2, seed=0):
    """Small integers, so that many are alike, with NaN and infinities among them."""
    n, c, h, w = shape
    rng = np.random.default_rng(seed)
    x = rng.integers(low, 3, (n, h, w, c)).astype(dtype)
    odd = rng.choice(np.array([np.nan, np.inf, -np.inf], dtype), x.shape)
    return np.where(rng.random(x.shape) < 0.15, odd, x).transpose(0, 3, 1, 2)


# ---- greatest elements -------------------------------------------------------------------------------------------

GEOMETRIES = [  # kernel_size, stride, padding, dilation, ceil_mode
    ((2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 3), (1, 1), (1, 1), (1, 1), False),
    ((3, 2), (2, 3), (1, 0), (1, 2), True),
    ((2, 3), (1, 2), (1, 1), (3, 2), False),
    ((2, 2), (3, 4), (0, 0), (1, 1), False),
]
X = (2, 8, 9, 11)


@each_rung
def test_greatest_elements_are_those_of_the_cpu(rung, dtype, choose):
    """Values, positions and gradients in the same bits, at ties, NaN and infinities; also windows of -inf alone."""
    choose(rung)
    for *window, ceil_mode in GEOMETRIES:
        out_shape, taps = output_shape("pool", X, *window, ceil_mode), position_type(window[0])
        x, g = images(X, dtype), images(out_shape, dtype, seed=1)
        x[0, :2] = -np.inf
        results = []
        for device in ("cpu", DEVICE):
            x_there, g_there = moved(x, device), moved(g, device)
            out, positions = empty(out_shape, dtype, device), empty(out_shape, taps, device)
            dx, picked = empty(X, dtype, device), empty(out_shape, dtype, device)
            pool2d.max_forward(x_there, *window, out, positions)
            pool2d.max_input_grad(g_there, positions, *window, dx)
            pool2d.max_select(x_there, positions, *window, picked)
            results.append([on_host(array) for array in (out, positions, dx, picked)])
        assert np.isnan(results[0][0]).any() and np.isneginf(results[0][0]).any()
        with told(*window, ceil_mode):
            same_bits(*results)


@each_rung
def test_strides_of_any_length(rung, dtype, choose):
    """One window, and the next would begin 2**31 - 1 further on."""
    choose(rung)
    window, shape, pooled = ((3, 3), (2**31 - 1,) * 2, (1, 1), (1, 1)), (1, 4, 9, 9), (1, 4, 1, 1)
    kinds = (shape, dtype), (pooled, dtype), (pooled, "u1"), (shape, dtype)
    x, out, positions, dx = (empty(*kind, DEVICE) for kind in kinds)
    x[...] = 1
    pool2d.max_forward(x, *window, out, positions)
    pool2d.max_input_grad(out, positions, *window, dx)
    assert (on_host(positions) == 4).all() and on_host(dx).sum() == 4 and (on_host(dx)[0, :, 0, 0] == 1).all()


# ---- averages ----------------------------------------------------------------------------------------------------

TABLES = [
    (average_windows(9, 3, 1, 1, False, True), average_windows(11, 3, 2, 0, True, False)),  # which overlap
    (average_windows(9, 2, 3, 0, False, True), average_windows(11, 1, 4, 0, False, True)),  # with gaps
    (adaptive_windows(9, 4), adaptive_windows(11, 14)),
    (np.zeros((0, 3), np.int64), np.zeros((0, 3), np.int64)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_averages_have_the_bits_of_the_cpu(dtype):
    for k, (rows, columns) in enumerate(TABLES):
        out_shape, results = (*X[:2], len(rows), len(columns)), []
        x, g = images(X, dtype), images(out_shape, dtype, seed=1)
        for device in ("cpu", DEVICE):
            out, dx = empty(out_shape, dtype, device), empty(X, dtype, device)
            pool2d.average_forward(moved(x, device), rows, columns, out)
            pool2d.average_input_grad(moved(g, device), rows, columns, dx)
            results.append((on_host(out), on_host(dx)))
        with told(k):
            same_bits(*results)


def test_tables_go_to_the_device_once(monkeypatch):
    """By content; the oldest go where there are too many."""
    sent, like = [], interpreter.empty(1)
    monkeypatch.setattr(memory, "_kept", type(memory._kept)())
    monkeypatch.setattr(memory, "upload", lambda table, like: sent.append(table) or interpreter.array(table))
    first, others = memory.kept(np.arange(3), like), (np.arange(3, dtype=np.int32), np.arange(3)[:, None])
    for other in others:
        found = memory.kept(other, like)
        assert found.dtype == other.dtype and np.array_equal(found, other)
    for number in range(memory.KEPT):
        memory.kept(np.array([number, 7]), like)
        assert memory.kept(np.arange(3), like) is first
    assert len(memory._kept) == memory.KEPT and len(sent) == 3 + memory.KEPT


# ---- quotients ---------------------------------------------------------------------------------------------------


def test_quotients_by_products():
    """The formula in Python's integers, at all that can go wrong: next to multiples, and at the ends of 31 bits."""
    rng, end = np.random.default_rng(0), 2**31
    powers = [2**k + d for k in range(31) for d in (-1, 0, 1)]
    for d in {*range(1, 300), *powers, end - 1, *rng.integers(1, end, 500).tolist()} - {0}:
        packed = by(d)
        factor, shift = packed % 2**32, packed >> 32
        assert shift < 32
        last = (end - 1) // d * d
        numbers = [0, 1, d - 1, d, d + 1, last - 1, last, end - 1, *rng.integers(0, end, 5).tolist()]
        for n in {n for n in numbers if 0 <= n < end}:
            assert (2 * n * factor >> 32) >> shift == n // d, (n, d)


# ---- traffic -----------------------------------------------------------------------------------------------------


def counts_of(call):
    with interpreter.recording() as launches:
        call()
    ((name, report),) = launches
    return name, report.counts


def requests(counts, verb):
    return sum(n for op, n in counts.instructions.items() if op.startswith(f"{verb}.global"))


@pytest.mark.parametrize("rung", ["plain", "vector"])
def test_traffic_of_windows_side_by_side(rung, choose):
    """2 by 2: everything moves once, in whole sectors; the plain rung reads g where it was chosen alone."""
    choose(rung)
    shape, out_shape, window = (2, 32, 8, 8), (2, 32, 4, 4), ((2, 2), (2, 2), (0, 0), (1, 1))
    x = moved(images(shape), "interpreter")
    out, dx = empty(out_shape, "f4", "interpreter"), empty(shape, "f4", "interpreter")
    positions = empty(out_shape, "u1", "interpreter")
    size, kernel, vector = 4 * np.prod(shape), "vector" if rung == "vector" else "plain_f32", rung == "vector"
    name, forward = counts_of(lambda: pool2d.max_forward(x, *window, out, positions))
    assert name == f"pool2d_max_forward_{kernel}"
    assert forward.bytes_loaded == {"x": size} and forward.bytes_stored == {"out": size // 4, "positions": size // 16}
    name, grad = counts_of(lambda: pool2d.max_input_grad(out, positions, *window, dx))
    assert name == f"pool2d_max_input_grad_{kernel}"
    # Each element of dx lies in one window: a quarter of them is chosen.
    assert grad.bytes_loaded == {"g": size if vector else size // 4, "positions": size // 4}
    assert grad.bytes_stored == {"dx": size} and forward.global_sectors == forward.global_sectors_ideal
    if vector:
        assert grad.global_sectors == grad.global_sectors_ideal
        assert requests(forward, "ld") == requests(grad, "st") == size // 512
        assert requests(forward, "st") == 2 * size // 4 // 512


def test_traffic_of_averages():
    shape, tables = (2, 32, 8, 8), [average_windows(8, 2, 2, 0, False, True)] * 2
    x, out = moved(images(shape), "interpreter"), empty((2, 32, 4, 4), "f4", "interpreter")
    size = 4 * np.prod(shape)
    _, forward = counts_of(lambda: pool2d.average_forward(x, *tables, out))
    assert forward.bytes_loaded["x"] == size and forward.bytes_stored == {"out": size // 4}
    _, grad = counts_of(lambda: pool2d.average_input_grad(out, *tables, x))
    assert grad.bytes_loaded["g"] == size and grad.bytes_stored == {"dx": size}
    # Neighbours in a warp share sectors of g. The tables, a few bytes, are left out.
    assert forward.sector_bytes_loaded["x"] == size and grad.sector_bytes_loaded["g"] <= size
    for counts in (forward, grad):
        assert sum(counts.sector_bytes_stored.values()) == sum(counts.bytes_stored.values())


# ---- choice and refusals -----------------------------------------------------------------------------------------


def launched(channels, late=None, kind="u1", window=((2, 2), (2, 2), (0, 0), (1, 1)), dtype="f4"):
    """The kernel of max_forward; the array `late` begins one element after a multiple of 16 bytes."""
    shapes = (
        ((1, 20, 20, channels), dtype),
        ((1, *output_shape("", (1, 1, 20, 20), *window, False)[2:], channels), dtype),
    )
    arrays = []
    for i, (shape, of) in enumerate((*shapes, (shapes[1][0], kind))):
        memory = interpreter.array(np.zeros(np.prod(shape) + 1, of))
        memory = memory[1:] if i == late else memory[:-1]
        arrays.append(memory.reshape(shape).transpose(0, 3, 1, 2))
    return counts_of(lambda: pool2d.max_forward(arrays[0], *window, *arrays[1:]))[0].removeprefix("pool2d_max_forward_")


def test_choice_of_rungs():
    assert launched(4) == launched(8) == "vector"
    assert launched(4, dtype="f8") == "plain_f64"
    assert {launched(channels) for channels in (1, 3, 6)} == {"plain_f32"}
    assert {launched(4, late) for late in range(3)} == {"plain_f32"}
    assert launched(4, None, "i4", ((17, 16), (1, 1), (0, 0), (1, 1))) == "plain_f32"


def test_refusals():
    x, tables = empty((1, 3, 4, 4), "f4", "interpreter"), [adaptive_windows(4, 2)] * 2
    words = "average_forward: rows is minigrad_kernels.interpreter.array.Array, wants numpy.ndarray"
    with pytest.raises(KindError, match="^" + re.escape(words)):
        pool2d.average_forward(x, interpreter.array(tables[0]), tables[1], empty((1, 3, 2, 2), "f4", "interpreter"))
    far = np.broadcast_to(interpreter.empty(1), (1 << 16, 1, 1 << 15, 1)).view(interpreter.Array)
    words = "average_forward: x has shape (65536, 1, 32768, 1), wants less than 2147482624 elements; split it"
    with pytest.raises(ShapeError, match="^" + re.escape(words)):
        pool2d.average_forward(far, *tables, far)
    y = x.transpose(CHANNELS_LAST)
    with pytest.raises(ShapeError, match="^max_forward: the rung vector wants float32, a number of channels that"):
        cuda.max_forward(y, (1, 1), (1, 1), (0, 0), (1, 1), y, empty((1, 4, 4, 3), "u1", "interpreter"), "vector")
