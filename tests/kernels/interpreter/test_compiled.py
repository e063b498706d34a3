"""Kernels in Python, compiled and interpreted: mistakes in them, and in the library's own kernels, are found.

Where no compiler is installed there is nothing to interpret.
"""

import inspect
import re

import numpy as np
import pytest

from minigrad_kernels.interpreter import array, empty, interpret
from minigrad_kernels.matmul import cuda as matmul
from minigrad_kernels.toolchain.cuda import compiler, cuda, f32, kernel
from tests.kernels.rungs import TYPES

from .ptx import clean

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
HOPPER = (64, 16, 6 * 64)  # more tiles of k than there are stages
WAITS = r"bar\.sync|cp\.async\.commit_group|cp\.async\.wait_group"
EARLY, TURN = "shared race cp.async wait", r"mbarrier\.arrive\.shared::cta\.b64"
MISTAKES = [  # rung, type, size of the product, what is left out, which of them (None: all), kinds of the first fault
    *(("tiled", "float32", (24, 40, 80), WAITS, which, EARLY) for which in (0, 1)),
    *(("register_64x64", "float32", (24, 40, 48), WAITS, which, EARLY) for which in (0, 1)),
    # of the asynchronous rung the end of a group of copies, the wait for it, and the barrier after
    *(("async", "float16", (24, 40, 160), WAITS, which, EARLY) for which in (0, 3, 4)),
    ("tma", "bfloat16", HOPPER, r"wgmma\.wait_group\.sync\.aligned 1;", None, "wgmma wait"),  # given back too early
    ("tma", "bfloat16", HOPPER, TURN, None, "mbarrier wait"),  # not given back
    ("tma", "bfloat16", HOPPER, r"fence\.proxy\.tensormap", None, "proxy fence"),  # maps are not acquired
    ("tma", "bfloat16", HOPPER, r"fence\.proxy\.async", None, "proxy fence"),  # mbarriers are not fenced
    ("tma", "bfloat16", HOPPER, r"bar\.sync", None, "shared race"),  # nor waited for
]


def multiplied(rung, kind, size, wait=None, which=None):
    """The report of a product by a rung, maybe without a wait, and whether it is right."""
    m, n, k = size
    a, b = (np.random.default_rng(0).integers(-3, 4, shape).astype(TYPES[kind]) for shape in ((m, k), (n, k)))
    out = empty((m, n), TYPES[kind])
    ((found, grid, block, arguments, shared),) = matmul.starts(array(a), array(b).T, None, False, out, None, rung)
    text = found.ptx()
    for number, at in enumerate(re.finditer(wait, text) if wait else ()):
        if which in (None, number):
            text = text[: at.start()] + "//" + text[at.start() + 2 :]
    report = interpret(text, grid, block, found.flat(arguments), shared)
    return report, np.array_equal(out, (a.astype("f8") @ b.T.astype("f8")).astype(TYPES[kind]))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake[0]} {mistake[3:5]}")
def test_a_wait_or_a_fence_that_a_product_lacks_is_found(mistake):
    *product, kinds = mistake
    report, _ = multiplied(*product)
    assert report.faults and report.faults[0].kind in kinds, [str(fault) for fault in report.faults]


def test_products_are_clean():
    """The rung of Hopper reads boxes once; of shared memory its threads themselves touch mbarriers alone."""
    for rung, kind, size in {mistake[:3] for mistake in MISTAKES}:
        report, right = multiplied(rung, kind, size)
        assert right and not report.faults
    report, _ = multiplied("tma", "bfloat16", HOPPER)
    m, n, k = HOPPER
    assert (report.counts.bytes_loaded["0"], report.counts.bytes_loaded["1"]) == (2 * m * k, 2 * k * n)
    assert report.counts.shared_wavefronts < 100


@kernel("f32* x, f32* out, i32 n", threads=256)
def reversed_by_block(x, out, n):
    tile = cuda.shared.array(0, f32, alignment=16)
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        tile[i] = x[i]  # fill
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        out[i] = tile[n - 1 - i]  # read


def test_mistakes_are_found_in_their_source_lines():
    """The GPU grants up to 227 KB of shared memory that a launch asks for, 48 KB of the kind that a kernel declares."""
    x, out = np.arange(1 << 14, dtype=np.float32), np.full(1 << 14, np.nan, np.float32)
    clean(interpret(reversed_by_block, (1,), (256,), (x, out, x.size), x.nbytes))
    np.testing.assert_array_equal(out, x[::-1])
    lines, first = inspect.getsourcelines(reversed_by_block.function)
    for kind, mark, grid, shared in (("out of bounds", "fill", 1, 252), ("global race", "read", 2, 256)):
        faults = interpret(reversed_by_block, grid, 64, (x, out, 64), shared).faults
        assert kind in {fault.kind for fault in faults}, [str(fault) for fault in faults]
        (number,) = [first + i for i, line in enumerate(lines) if f"# {mark}" in line]
        assert number in {fault.line.line for fault in faults} and str(number) in str(faults[0])
