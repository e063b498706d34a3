"""What the rungs of the matrix product cost, against the formulas of their docstrings."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter, matmul
from minigrad_kernels.matmul import cuda
from minigrad_kernels.toolchain.cuda import compiler, report

from .cases.matmul import transposed

pytestmark = pytest.mark.deep

TILES = [name for name in cuda.RUNGS if name not in ("plain", "split")]
STEPS = 32  # terms of each sum: whole tiles of k for every rung
LAYOUTS = {"NN": (None, None), "NT": (None, transposed), "TN": (transposed, None), "TT": (transposed, transposed)}
FLOAT = 4  # bytes

KEYS = {"NN": (True, False), "NT": (True, True), "TN": (False, False), "TT": (False, True)}
PAIRS = [
    (name, layout)
    for name, layout in product(TILES, LAYOUTS)
    if None in cuda.RUNGS[name].kernels or KEYS[layout] in cuda.RUNGS[name].kernels
]


def operands(m, n, k, layout="NN"):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    return [interpreter.array(change(x) if change else x) for change, x in zip(LAYOUTS[layout], (a, b), strict=True)]


def costs(rung, a, b, workspace=None):
    """{kernel's name: its counts} of a product of two arrays of the interpreter."""
    out = interpreter.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    with interpreter.recording() as launches:
        cuda.forward(a, b, None, False, out, workspace, rung)
    return {name: report.counts for name, report in launches}


@cache
def counts(name, m, n, k, layout="NN"):
    """The counts of the only launch of a product."""
    (found,) = costs(name, *operands(m, n, k, layout)).values()
    return found


def number(counts, *prefixes):
    """How many instructions, of all warps, begin so."""
    return sum(count for opcode, count in counts.instructions.items() if opcode.startswith(prefixes))


@pytest.mark.parametrize("name, layout", PAIRS)
def test_tiles_cost_what_their_docstrings_say(name, layout):
    """4 M K ceil(N / columns) bytes of a and 4 K N ceil(M / rows) of b, in whole sectors; out is written once. Shared
    memory is read without conflicts, and every lane multiplies."""
    rows, columns = cuda.RUNGS[name].tile
    m, n = (2 * rows, columns) if rows <= columns else (rows, 2 * columns)  # two whole tiles
    found = counts(name, m, n, STEPS, layout)
    assert found.bytes_loaded["a"] == FLOAT * m * STEPS * (n // columns)
    assert found.bytes_loaded["b"] == FLOAT * STEPS * n * (m // rows)
    assert found.bytes_stored == {"out": FLOAT * m * n}
    assert found.global_load_sectors == found.global_load_sectors_ideal
    assert found.global_store_sectors == found.global_store_sectors_ideal
    assert 0 < found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    barriers = {"tiled": 2 / 32, "register_64x64": 2 / 16, "register": 2 / 8, "buffered": 1 / 8}[name]
    assert found.barriers == 2 * STEPS * barriers, (
        "two for each tile of each block, and one where there are two buffers"
    )
    assert number(found, "fma.f32") == m * n * STEPS // 32


def test_plain_reads_both_operands_for_each_product():
    found = counts("plain", 8, 32, STEPS)
    assert found.bytes_loaded == {"a": FLOAT * 8 * 32 * STEPS, "b": FLOAT * 8 * 32 * STEPS}
    assert found.bytes_stored == {"out": FLOAT * 8 * 32} and found.shared_wavefronts == 0


def test_buffered_loads_in_a_quarter_of_the_instructions():
    scalar, vector = (counts(name, 128, 128, STEPS) for name in ("register", "buffered"))
    for space in ("ld.global", "ld.shared"):
        assert 4 * number(vector, space) == number(scalar, space) > 0
        assert number(vector, space) == sum(
            count for opcode, count in vector.instructions.items() if opcode.startswith(space) and ".v4." in opcode
        )
    assert 4 * number(vector, "st.global.v4") == number(scalar, "st.global")


def test_slices_travel_through_the_workspace_once():
    m, n, k = 20, 12, 1000
    a, b = operands(m, n, k)
    workspace = interpreter.array(np.zeros(matmul.workspace(a, b), np.uint8))
    tiles, add = costs("split", a, b, workspace).values()
    slices = workspace.size // (FLOAT * m * n)
    assert slices == -(-k // 80)  # of 80 steps each: 1000 / (1000 // 64), rounded up to a multiple of 16
    assert tiles.bytes_loaded == {"a": FLOAT * m * k, "b": FLOAT * k * n}
    assert tiles.bytes_stored == {"out": FLOAT * slices * m * n}
    assert add.bytes_loaded == {"partial": FLOAT * slices * m * n}
    assert add.bytes_stored == {"out": FLOAT * m * n}


def test_each_rung_of_the_ladder_costs_less_than_the_one_below():
    rungs = [counts(name, 128, 128, 128) for name in ("plain", "tiled", "register", "buffered")]
    instructions = [sum(found.instructions.values()) for found in rungs]
    sectors = [found.global_sectors for found in rungs]
    assert instructions == sorted(instructions, reverse=True)
    assert sectors[0] > sectors[1] > sectors[2] == sectors[3] == 3 * 128 * 128 // 8


# ---- machine code ----------------------------------------------------------------------------------------------------

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


@compiled
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("layout", cuda.RUNGS["buffered"].kernels)
def test_the_inner_loop_of_buffered_is_nearly_all_arithmetic(layout, architecture):
    kernel = cuda.RUNGS["buffered"].kernels[layout]
    (loop,) = [found for found in report.loops(kernel, architecture) if found["FFMA"]]
    assert loop["FFMA"] == 512 and loop.total() <= 590 and loop["LDS.128"] == 32
    assert loop["LDG.E.128.CONSTANT"] == 2 and loop["BAR.SYNC.DEFER_BLOCKING"] == 1
    assert kernel.binary(architecture).registers <= 65536 // 256 // kernel.blocks, (
        "what a multiprocessor's blocks share"
    )


@compiled
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["register_64x64", "register"])
def test_the_inner_loop_of_register_is_mostly_arithmetic_and_what_it_reads(name, architecture):
    """Nothing is worked out for an element that is copied but its address and whether it is there."""
    kernel = cuda.RUNGS[name].kernels[None]
    (loop,) = [found for found in report.loops(kernel, architecture) if found["FFMA"]]
    (rows, columns), steps = cuda.RUNGS[name].tile, 8 if name == "register" else 16
    copied = steps * (rows + columns) // 256
    assert loop["FFMA"] == steps * rows * columns // 256 and loop["LDS"] == 128
    assert sum(count for opcode, count in loop.items() if opcode.startswith("LDG")) == loop["STS"] == copied
    assert loop.total() - loop["FFMA"] - loop["LDS"] <= 8 * copied + 40
    assert kernel.binary(architecture).registers <= 128
