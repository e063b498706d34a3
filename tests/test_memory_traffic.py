"""What memory-bound CUDA kernels move, counted by the interpreter: the bytes that their docstrings state, once each."""

from math import prod

import numpy as np
import pytest

from minigrad_kernels import bias, interpreter, optimizer, softmax
from minigrad_kernels.bias import cuda as bias_cuda
from minigrad_kernels.bias.plan import LINES, cut
from minigrad_kernels.optimizer import cuda as optimizer_cuda
from minigrad_kernels.optimizer.cuda_adam import ADAM_UPDATE
from minigrad_kernels.softmax import cuda as softmax_cuda

from .test_optimizer_cuda import FULL


@pytest.fixture
def launches():
    with interpreter.recording() as found:
        yield found


def seen(launches):
    """[(name of the kernel, its counts)]"""
    return [(name, report.counts) for name, report in launches]


def numbers(*shape):
    return interpreter.array(np.random.default_rng(prod(shape)).standard_normal(shape).astype(np.float32))


def late(*shape):
    """An array that begins 4 bytes after a multiple of 16."""
    return interpreter.array(np.zeros(prod(shape) + 1, np.float32))[1:].reshape(shape)


def wide(counts):
    """How many 128-bit loads and stores warps executed."""
    return tuple(
        sum(n for name, n in counts.instructions.items() if name.startswith(f"{verb}.global") and ".v4." in name)
        for verb in ("ld", "st")
    )


def narrow(counts, verb):
    """How many loads or stores of single floats warps executed."""
    return sum(
        n
        for name, n in counts.instructions.items()
        if name.startswith(f"{verb}.global") and name.endswith(".f32") and ".v4." not in name
    )


def whole_sectors(counts, *names):
    """Whether threads asked for every byte of the sectors that moved for these arrays."""
    asked, moved = (counts.bytes_loaded, counts.bytes_stored), (counts.sector_bytes_loaded, counts.sector_bytes_stored)
    return all(a[name] == m[name] for a, m in zip(asked, moved, strict=True) for name in names)


# ---- bias --------------------------------------------------------------------------------------------------------

# Rows and columns: a line of many rows; of 4; of 3 tiles; of a width that is no multiple of 4.
SHAPES = [(1024, 16), (64, 256), (16, 3072), (768, 10)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bias_relu(launches, shape):
    x, b, out, size = numbers(*shape), numbers(shape[1]), interpreter.empty(shape), 4 * prod(shape)
    bias.bias_relu(x, b, out)
    ((name, counts),) = seen(launches)
    assert name == "bias_relu_vector"
    assert counts.bytes_loaded["x"] == counts.bytes_stored["out"] == size
    assert whole_sectors(counts, "x", "out")
    line = cut(*shape).fold * shape[1]
    groups = -(-prod(shape) // (LINES * line))
    assert counts.bytes_loaded["bias"] <= 4 * line * groups
    if line % 128 == 0:  # else lines end within a warp
        assert wide(counts) == (size // 512, size // 512)
    assert narrow(counts, "st") == 0


def sums_of(shape):
    """(name, counts) of column_sums and of bias_relu_grad are those of three kernels; what these move in common."""
    plan = cut(*shape)
    return 4 * prod(shape), 4 * plan.parts * shape[1]


def space(shape):
    return interpreter.empty(bias.workspace(shape), np.uint8)


def check_addition(launches, shape, partial, columns):
    """What adds the sums of the parts; where there is one part, its sums went straight to out."""
    if cut(*shape).parts == 1:
        assert not launches
        return
    ((name, counts),) = launches
    assert name == "bias_add_f32"
    assert counts.bytes_loaded["partial"] == partial
    assert counts.bytes_stored["out"] == 4 * columns


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_column_sums(launches, shape):
    bias.column_sums(numbers(*shape), interpreter.empty(shape[1]), space(shape))
    (name, counts), *addition = seen(launches)
    size, partial = sums_of(shape)
    assert name == "bias_sums_vector"
    assert counts.bytes_loaded["x"] == size and counts.bytes_stored["partial"] == partial
    assert whole_sectors(counts, "x") and narrow(counts, "ld") == 0
    assert counts.shared_wavefronts <= 1.05 * counts.shared_wavefronts_ideal
    check_addition(addition, shape, partial, shape[1])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bias_relu_grad(launches, shape):
    arrays = numbers(*shape), numbers(*shape), interpreter.empty(shape)
    bias.bias_relu_grad(*arrays, interpreter.empty(shape[1]), space(shape))
    (name, counts), *addition = seen(launches)
    size, partial = sums_of(shape)
    assert name == "bias_grad_vector"
    assert counts.bytes_loaded["g"] == counts.bytes_loaded["out"] == counts.bytes_stored["dx"] == size
    assert counts.bytes_stored["partial"] == partial
    assert whole_sectors(counts, "g", "out", "dx") and narrow(counts, "ld") == 0
    check_addition(addition, shape, partial, shape[1])


def test_plain_rungs_move_as_many_bytes(launches):
    shape = 256, 32
    x, b, out, size = numbers(*shape), numbers(32), interpreter.empty(shape), 4 * 256 * 32
    bias_cuda.bias_relu(x, b, out, "plain")
    bias_cuda.column_sums(x, interpreter.empty(32), space(shape), "plain")
    bias_cuda.bias_relu_grad(x, out, interpreter.empty(shape), interpreter.empty(32), space(shape), "plain")
    forward, sums, grad = (counts for _, counts in seen(launches))
    assert forward.bytes_loaded == {"x": size, "bias": size} and forward.bytes_stored == {"out": size}
    partial = sums_of(shape)[1]
    assert sums.bytes_loaded == {"x": size} and sums.bytes_stored == {"partial": partial}
    assert grad.bytes_loaded == {"g": size, "out": size}
    assert grad.bytes_stored == {"dx": size, "partial": partial}
    for counts in (forward, sums, grad):
        assert counts.global_sectors == counts.global_sectors_ideal and wide(counts) == (0, 0)


@pytest.mark.parametrize("which", range(2))
def test_bias_off_the_grid_takes_the_plain_rung(launches, which):
    arrays = [numbers(8, 16), interpreter.empty((8, 16))]
    arrays[which] = late(8, 16)
    bias.bias_relu(arrays[0], numbers(16), arrays[1])
    assert [name for name, _ in launches] == ["bias_relu_plain_f32"]


# ---- cross entropy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "classes, name, reads",
    [
        (32, "softmax_warp_32", 1),
        (96, "softmax_warp_128", 1),
        (1024, "softmax_warp_1024", 1),
        (1056, "softmax_wide", 3),
    ],
)
def test_cross_entropy_reads_its_logits_once(launches, classes, name, reads):
    rows = 9
    x, dx, losses = numbers(rows, classes), interpreter.empty((rows, classes)), interpreter.empty(rows)
    softmax.cross_entropy_with_grad(x, interpreter.array(np.arange(rows)), -100, 0.5, losses, dx)
    ((launched, counts),) = seen(launches)
    size = 4 * rows * classes
    assert launched == name
    assert counts.bytes_loaded["x"] == reads * size and counts.bytes_stored == {"dx": size, "losses": 4 * rows}
    assert counts.global_sectors == counts.global_sectors_ideal and whole_sectors(counts, "x", "dx")
    assert not any(opcode.startswith(("bar", "st.shared")) for opcode in counts.instructions)


def test_plain_cross_entropy_reads_its_logits_three_times(launches):
    x, dx, losses = numbers(40, 7), interpreter.empty((40, 7)), interpreter.empty(40)
    softmax_cuda.cross_entropy_with_grad(x, interpreter.array(np.arange(40) % 7), -100, 0.5, losses, dx, rung="plain")
    ((_, counts),) = seen(launches)
    assert counts.bytes_loaded["x"] == 4 * 40 * (3 * 7 + 2)  # and its first element, and that of the target
    assert counts.bytes_stored["dx"] == 4 * 40 * 7


# ---- optimisers --------------------------------------------------------------------------------------------------

STEPS = [  # (rule, which of its states are there, numbers of traffic for an element)
    ("sgd", "n", 3),
    ("sgd", "y", 5),
    ("adam", "yyn", 7),
    ("adam", "yyy", 9),
    ("rmsprop", "ynn", 5),
    ("rmsprop", "yyn", 7),
    ("rmsprop", "yny", 7),
    ("rmsprop", "yyy", 9),
    ("adagrad", "y", 5),
]


@pytest.mark.parametrize("rung", ["plain", "vector"])
@pytest.mark.parametrize("name, present, traffic", STEPS, ids=str)
def test_an_update_reads_and_writes_each_array_once(launches, monkeypatch, name, present, traffic, rung):
    monkeypatch.setattr(optimizer_cuda, "choose", lambda op, wanted, misfits: rung)
    shapes = [(64, 32), (5000,), (128,)]
    lists = [[numbers(*shape) for shape in shapes] for _ in range(2)]
    lists += [[numbers(*shape) for shape in shapes] if there == "y" else None for there in present]
    getattr(optimizer, name)(*lists, FULL[name][0])
    _, (_, counts) = seen(launches)
    kinds, sizes = 2 + present.count("y"), [prod(shape) for shape in shapes]
    assert traffic == 2 * kinds - 1
    tables = ("addresses", "chunks", "coefficients")
    loaded = {array: size for array, size in counts.bytes_loaded.items() if array not in tables}
    wanted = sorted(4 * size for size in sizes)
    assert sorted(loaded.values()) == sorted(wanted * kinds)
    assert sorted(counts.bytes_stored.values()) == sorted(wanted * (kinds - 1))  # all but the gradients
    assert whole_sectors(counts, *loaded) and counts.global_sectors == counts.global_sectors_ideal
    requests = sum(-(-size // (128 if rung == "vector" else 32)) for size in sizes)  # of warps, to each kind of array
    loads, stores = requests * kinds, requests * (kinds - 1)
    assert wide(counts) == ((loads, stores) if rung == "vector" else (0, 0))
    assert narrow(counts, "st") == (0 if rung == "vector" else stores)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_adam_loads_all_that_it_needs_before_it_stores(architecture):
    """So that five loads are on their way together."""
    pytest.importorskip("numba_cuda")
    from minigrad_kernels.toolchain.cuda import report

    code = report.code(ADAM_UPDATE.vector, architecture)
    wide = [opcode[:3] for opcode in code if opcode.endswith((".E.128", ".E.128.CONSTANT"))]
    assert wide == ["LDG"] * 5 + ["STG"] * 4


@pytest.mark.parametrize("rung", ["plain", "vector"])
def test_norms_read_once_and_scaling_reads_and_writes_once(launches, monkeypatch, rung):
    monkeypatch.setattr(optimizer_cuda, "choose", lambda op, wanted, misfits: rung)
    arrays, out = [numbers(64, 32), numbers(5000)], interpreter.empty(2, np.float64)
    size, chunks, requests = 4 * (64 * 32 + 5000), 3, (64 * 32 + 5000 + 127) // 128
    optimizer.squared_norms(arrays, out, interpreter.empty(optimizer.workspace(arrays), np.uint8))
    optimizer.scale(arrays, 0.5)
    (_, squares), (_, sums), (_, scaled) = seen(launches)
    tables = ("addresses", "chunks", "factor")
    loaded = [sum(n for name, n in c.bytes_loaded.items() if name not in tables) for c in (squares, sums, scaled)]
    assert loaded == [size, 4 * chunks + 2 * 4 * 2 * 256, size]  # the second: each thread reads where its sum begins
    stored = [sum(counts.bytes_stored.values()) for counts in (squares, sums, scaled)]
    assert stored == [4 * chunks, 2 * 8, size]
    assert wide(squares) == ((requests, 0) if rung == "vector" else (0, 0))
    assert wide(scaled) == ((requests, requests) if rung == "vector" else (0, 0))
    for counts in (squares, scaled):
        assert counts.global_sectors == counts.global_sectors_ideal
        assert counts.shared_wavefronts == counts.shared_wavefronts_ideal
