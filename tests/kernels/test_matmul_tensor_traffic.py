"""What the rungs of the matrix product on tensor cores cost: memory, banks, and the instructions of their main loop."""

import contextlib
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.matmul.cuda_async import ASYNC, STAGES
from minigrad_kernels.matmul.cuda_hopper import tma
from minigrad_kernels.toolchain.cuda import report
from minigrad_kernels.toolchain.modes import tf32

from .cases.matmul import transposed
from .test_matmul_traffic import compiled, costs

SIZES = {"float16": 2, "tf32": 4}  # bytes of an element
LAYOUTS = {"kk": (None, transposed), "kn": (None, None), "mn": (transposed, None)}
M, N, TILES = 256, 128, STAGES + 1  # two tiles of 128 x 128; tiles of k


def counts(kind, rung, layout="kn"):
    """The counts of the only launch of a product of whole tiles, and the length of its sums."""
    k, rng = TILES * 64 // SIZES[kind], np.random.default_rng(0)
    dtype = np.float16 if kind == "float16" else np.float32
    operands = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((M, k), (k, N)))
    changed = (change(x) if change else x for change, x in zip(LAYOUTS[layout], operands, strict=True))
    with tf32() if kind == "tf32" else contextlib.nullcontext():
        (found,) = costs(rung, *(interpreter.array(x) for x in changed)).values()
    return found, k


@pytest.mark.parametrize("kind, layout", list(product(SIZES, LAYOUTS)))
def test_asynchronous_copies_read_whole_sectors_and_shared_memory_has_no_conflicts(kind, layout):
    found, k = counts(kind, "async", layout)
    size = SIZES[kind]
    assert found.bytes_loaded["a"] == size * M * k and found.bytes_loaded["b"] == size * k * N * (M // 128)
    assert found.bytes_stored == {"out": size * M * N}
    assert found.global_load_sectors == found.global_load_sectors_ideal
    assert found.global_store_sectors == found.global_store_sectors_ideal
    assert 0 < found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    assert found.barriers == 2 * TILES, "one for each tile of each block"


@pytest.mark.parametrize("kind, rung", [("float16", "tensor"), ("float16", "async"), ("tf32", "async")])
def test_no_product_is_made_twice(kind, rung):
    found, k = counts(kind, rung)
    made = sum(count for opcode, count in found.instructions.items() if opcode.startswith("mma.sync"))
    assert made == M // 16 * (N // 8) * (k * SIZES[kind] // 32)


def test_single_elements_are_read_by_neighbouring_threads():
    found, k = counts("float16", "tensor")
    assert found.bytes_loaded["a"] == 2 * M * k * (N // 64)
    assert found.global_load_sectors == found.global_load_sectors_ideal


MOST = {("float16", "kk"): 84, ("float16", "kn"): 88, ("float16", "mn"): 88, ("tf32", "kk"): 180}  # instructions


@compiled
@pytest.mark.parametrize("kind, layout", MOST)
def test_the_main_loop_is_mostly_products(kind, layout):
    """As many instructions as nvcc's of the same loop; in TF32, two more for each of the 48 words that are rounded."""
    kernel = ASYNC[kind, *(letter == "k" for letter in layout)]
    (loop,) = [loop for loop in report.loops(kernel, "sm_90") if any(name.startswith("HMMA") for name in loop)]
    found = {start: sum(loop[name] for name in loop if name.startswith(start)) for start in ("HMMA", "LDSM", "LDGSTS")}
    assert found == {"HMMA": 32, "LDSM": 12, "LDGSTS": 4}
    assert sum(loop.values()) <= MOST[kind, layout]


@compiled
def test_warps_that_multiply_on_the_last_rung_do_nothing_else():
    """Four products of 64 x 256 x 16 follow each other; the loops with copies are those of another warp."""
    loops = report.loops(tma, "sm_90a")
    (loop,) = [loop for loop in loops if any("HGMMA" in name for name in loop)]
    starts = ("HGMMA", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR", "UTMALDG", "LDGSTS", "LDS", "BAR.SYNC", "LDL", "STL")
    found = {start: sum(loop[name] for name in loop if name.startswith(start)) for start in starts}
    tiles = found["HGMMA"] // 4
    assert found == dict.fromkeys(starts, 0) | {
        "HGMMA": 4 * tiles, "WARPGROUP.ARRIVE": tiles, "WARPGROUP.DEPBAR": tiles,
    }  # fmt: skip
    assert tiles and sum(loop.values()) <= 100 * tiles
    assert any("UTMALDG.2D" in name for loop in loops for name in loop)
