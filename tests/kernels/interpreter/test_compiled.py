"""Kernels in Python, compiled and interpreted: mathematics, and mistakes, put into the library's own kernels too.

Where no compiler is installed there is nothing to interpret.
"""

import inspect
import math
import re

import numpy as np
import pytest

from minigrad_kernels.interpreter import array, empty, interpret
from minigrad_kernels.matmul import cuda as matmul
from minigrad_kernels.toolchain.cuda import Kernel, compiler, cuda, f32, i32, kernel, load4, store4

from .ptx import clean

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
RANDOM = np.random.default_rng(21)


# ---- mathematics -----------------------------------------------------------------------------------------------------

# The compiler's functions are programs of fma, shifts, tables and approximate instructions. Only if those are right do
# the errors in ulp hold that the CUDA programming guide (version 13, "Mathematical Functions") has for f32 and f64.
FUNCTIONS = [
    ("exp", np.exp, 2, 1, -100, 88), ("log", np.log, 1, 1, 0, 1e30), ("log2", np.log2, 1, 1, 0, 1e30),
    ("log10", np.log10, 2, 1, 0, 1e30), ("log1p", np.log1p, 1, 1, -0.999, 1e10), ("expm1", np.expm1, 1, 1, -80, 80),
    ("sin", np.sin, 2, 2, -1e15, 1e15), ("cos", np.cos, 2, 2, -1e15, 1e15), ("tan", np.tan, 4, 2, -1e5, 1e5),
    ("asin", np.arcsin, 2, 2, -1, 1), ("acos", np.arccos, 2, 2, -1, 1), ("atan", np.arctan, 2, 2, -1e9, 1e9),
    ("sinh", np.sinh, 3, 2, -80, 80), ("cosh", np.cosh, 2, 1, -80, 80), ("tanh", np.tanh, 2, 1, -20, 20),
    ("asinh", np.arcsinh, 3, 3, -1e9, 1e9), ("acosh", np.arccosh, 4, 3, 1, 1e9),
    ("atanh", np.arctanh, 3, 2, -0.99999, 0.99999), ("sqrt", np.sqrt, 0, 0, 0, 1e30), ("fabs", np.abs, 0, 0, -1, 1),
]  # fmt: skip
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_mathematics(kind):
    dtype, n = {"f32": np.float32, "f64": np.float64}[kind], 512
    lines = [f"    out[{i * n} + t] = math.{row[0]}(x[{i * n} + t])" for i, row in enumerate(FUNCTIONS)]
    text = "\n".join(["def mathematics(x, out):", "    t = i32(cuda.threadIdx.x)", *lines])
    x = np.empty((len(FUNCTIONS), n), dtype)
    for row, (*_, low, high) in zip(x, FUNCTIONS, strict=True):
        sizes = 10.0 ** RANDOM.uniform(-9, np.log10(max(high, -low)), n // 2)
        sizes = np.copysign(sizes, RANDOM.uniform(low, high, n // 2))
        row[:] = np.concatenate([RANDOM.uniform(low, high, n // 2), np.clip(sizes, low, high)])
        row[: len(SPECIAL)] = SPECIAL
    exec(text, space := {"math": math, "cuda": cuda, "i32": i32})
    made = Kernel(space["mathematics"], f"{kind}* x, {kind}* out", f"mathematics_{kind}", n, None, "sm_80", ())
    ptx = compiler.to_ptx(made.name, made.function, [kind + "*"] * 2, made.bounds, "sm_80")
    clean(interpret(ptx, (1,), (n,), (x, found := empty(x.shape, dtype))))
    for (name, function, single, double, *_), given, mine in zip(FUNCTIONS, x, np.asarray(found), strict=True):
        with np.errstate(all="ignore"):
            exact = function(given.astype(np.longdouble))
            right = exact.astype(dtype)
        real = np.isfinite(right)
        np.testing.assert_array_equal(mine[~real], right[~real], name)
        error = np.abs(mine[real] - exact[real]) / np.spacing(np.abs(right[real]))
        allowed = single if kind == "f32" else double  # of ulp of the rounded result, hence half a one more
        assert error.max() <= allowed + 0.5, (name, float(error.max()), given[real][error.argmax()])


# ---- mistakes --------------------------------------------------------------------------------------------------------

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


@kernel("f32* x, f32* out", threads=256)
def fours(x, out):
    i = i32(cuda.threadIdx.x * 4)
    v = load4(x, i)  # load
    store4(out, i, (v[3], v[2], v[1], v[0]))


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
    report = clean(interpret(fours, (1,), (16,), (x[:64], out)))
    np.testing.assert_array_equal(out[:64].reshape(-1, 4), x[:64].reshape(-1, 4)[:, ::-1])
    assert report.counts.instructions["ld.global.nc.v4.f32"] == 1, "one request of a warp for all"
    for k, kind, mark, grid, threads, arguments, shared in (
        (fours, "misaligned", "load", 1, 8, (x[1:33], empty(32)), 0),
        (fours, "unwritten read", "load", 1, 8, (empty(32), empty(32)), 0),
        (reversed_by_block, "out of bounds", "fill", 1, 64, (x, out, 64), 252),
        (reversed_by_block, "global race", "read", 2, 64, (x, out, 64), 256),
    ):
        faults = interpret(k, grid, threads, arguments, shared).faults
        assert kind in {fault.kind for fault in faults}, [str(fault) for fault in faults]
        lines, first = inspect.getsourcelines(k.function)
        (number,) = [first + i for i, line in enumerate(lines) if f"# {mark}" in line]
        assert number in {fault.line.line for fault in faults} and str(number) in str(faults[0])
