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

from .ptx import clean

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
WAITS = re.compile(r"bar\.sync|cp\.async\.commit_group|cp\.async\.wait_group")


def multiplied(rung, dtype, k, left_out=None):
    """(kinds of faults, whether the product is right) of a rung of the matrix product, maybe without one wait."""
    a, b = (np.random.default_rng(0).integers(-4, 5, shape).astype(dtype) for shape in ((24, k), (k, 40)))
    out = empty((24, 40), dtype)
    ((found, grid, block, arguments, shared),) = matmul.starts(array(a), array(b), None, False, out, None, rung)
    text = found.ptx()
    if left_out is not None:
        at = [*WAITS.finditer(text)][left_out].start()
        text = f"{text[:at]}// {text[at:]}"
    report = interpret(text, grid, block, found.flat(arguments), shared)
    return {fault.kind for fault in report.faults}, np.array_equal(out, (a.astype("f8") @ b).astype(dtype))


@pytest.mark.parametrize("rung, dtype, k, waits", [
    ("tiled", "f4", 80, (0, 1)), ("register_64x64", "f4", 48, (0, 1)), ("async", "f2", 160, (0, 3, 4)),
])  # fmt: skip
def test_waits_that_a_product_lacks_are_found(rung, dtype, k, waits):
    """Barriers, and of the asynchronous rung the end of a group of copies, the wait for it, and the barrier after."""
    assert multiplied(rung, dtype, k) == (set(), True)
    for number in waits:
        kinds, _ = multiplied(rung, dtype, k, number)
        assert kinds & {"shared race", "cp.async wait"}, number


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
