"""What memory-bound CUDA kernels move, counted by the interpreter: the bytes that their docstrings state, once each."""

from math import prod

import numpy as np
import pytest

from minigrad_kernels import bias, interpreter, optimizer
from minigrad_kernels.bias.plan import cut

from .test_optimizer import FULL


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


def sums_of(shape):
    """What column_sums and bias_relu_grad move in common: bytes of a matrix, and of the sums of parts."""
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
    """Alone, and of what ReLU lets pass."""
    bias.column_sums(numbers(*shape), interpreter.empty(shape[1]), space(shape))
    (name, counts), *addition = seen(launches)
    size, partial = sums_of(shape)
    assert name == "bias_sums_vector"
    assert counts.bytes_loaded == {"g": size} and counts.bytes_stored == {"partial": partial}
    assert whole_sectors(counts, "g") and narrow(counts, "ld") == 0
    assert counts.shared_wavefronts <= 1.05 * counts.shared_wavefronts_ideal
    check_addition(addition, shape, partial, shape[1])
    launches.clear()
    arrays = numbers(*shape), numbers(*shape), interpreter.empty(shape)
    bias.bias_relu_grad(*arrays, interpreter.empty(shape[1]), space(shape))
    (name, counts), *addition = seen(launches)
    assert name == "bias_sums_vector"
    assert counts.bytes_loaded["g"] == counts.bytes_loaded["out"] == counts.bytes_stored["dx"] == size
    assert counts.bytes_stored["partial"] == partial
    assert whole_sectors(counts, "g", "out", "dx") and narrow(counts, "ld") == 0
    check_addition(addition, shape, partial, shape[1])


def test_matrices_off_the_grid_take_the_plain_rung(launches):
    for which in range(3):
        arrays = [numbers(8, 16), numbers(8, 16), interpreter.empty((8, 16))]
        arrays[which] = late(8, 16)
        bias.bias_relu_grad(*arrays, interpreter.empty(16), space((8, 16)))
    assert [name for name, _ in launches] == 3 * ["bias_sums_plain_f32"]


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


@pytest.mark.parametrize("name, present, traffic", STEPS, ids=str)
def test_an_update_reads_and_writes_each_array_once(launches, name, present, traffic):
    shapes = [(64, 32), (5000,), (128,)]
    lists = [[numbers(*shape) for shape in shapes] for _ in range(2)]
    lists += [[numbers(*shape) for shape in shapes] if there == "y" else None for there in present]
    getattr(optimizer, name)(*lists, FULL[name][0])
    _, (_, counts) = seen(launches)
    kinds, sizes = 2 + present.count("y"), [prod(shape) for shape in shapes]
    assert traffic == 2 * kinds - 1
    tables = ("addresses", "chunks", "numbers")
    loaded = {array: size for array, size in counts.bytes_loaded.items() if array not in tables}
    wanted = sorted(4 * size for size in sizes)
    assert sorted(loaded.values()) == sorted(wanted * kinds)
    assert sorted(counts.bytes_stored.values()) == sorted(wanted * (kinds - 1))  # all but the gradients
    assert whole_sectors(counts, *loaded) and counts.global_sectors == counts.global_sectors_ideal
    assert narrow(counts, "st") == sum(-(-size // 32) for size in sizes) * (kinds - 1)  # requests of warps


def test_norms_read_once_and_scaling_reads_and_writes_once(launches):
    arrays, out = [numbers(64, 32), numbers(5000)], interpreter.empty(2, np.float64)
    size, chunks = 4 * (64 * 32 + 5000), 2 + 5
    optimizer.squared_norms(arrays, out, interpreter.empty(optimizer.workspace(arrays), np.uint8))
    optimizer.scale(arrays, 0.5)
    (_, squares), (_, sums), (_, scaled) = seen(launches)
    tables = ("addresses", "chunks", "factor")
    loaded = [sum(n for name, n in c.bytes_loaded.items() if name not in tables) for c in (squares, sums, scaled)]
    assert loaded == [size, 8 * chunks + 2 * 4 * 2 * 256, size]  # the second: each thread reads where its sum begins
    stored = [sum(counts.bytes_stored.values()) for counts in (squares, sums, scaled)]
    assert stored == [8 * chunks, 2 * 8, size]
    for counts in (squares, scaled):
        assert counts.global_sectors == counts.global_sectors_ideal
        assert counts.shared_wavefronts == counts.shared_wavefronts_ideal
