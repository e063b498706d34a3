"""Kernels in Python, compiled and interpreted: mathematics, good programs, and mistakes put into their text.

Where no compiler is installed there is nothing to interpret.
"""

import inspect
import math
import re

import numpy as np
import pytest

from minigrad_kernels.interpreter import array, empty, interpret
from minigrad_kernels.toolchain import cuda as words
from minigrad_kernels.toolchain.cuda import (
    Kernel,
    compiler,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    cuda,
    f32,
    global_address,
    i32,
    kernel,
    load4,
    shared_address,
    store4,
    u32,
)

from .ptx import clean

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
wait_for_all_but_one = cp_async_wait(1)
RANDOM = np.random.default_rng(21)


def compiled(text, signature, name, threads):
    """PTX of the kernel that a text defines, for sm_80."""
    space = {word: getattr(words, word) for word in words.__all__} | {"math": math}
    space["wait_for_all_but_one"] = wait_for_all_but_one
    exec(text, space, defined := {})
    (function,) = defined.values()
    made = Kernel(function, signature, name, threads, None, "sm_80", ())
    return compiler.to_ptx(name, function, [kind for _, kind in made.parameters], made.bounds, "sm_80")


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
    ptx = compiled(text, f"{kind}* x, {kind}* out", "mathematics", n)
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


# ---- programs, good and edited ---------------------------------------------------------------------------------------


def total(x, out, n):
    """Sums of 128 elements each."""
    part = cuda.shared.array(128, f32)
    t = i32(cuda.threadIdx.x)
    i = i32(cuda.blockIdx.x * 128 + t)
    part[t] = f32(0)
    if i < n:  # bound
        part[t] = x[i]
    cuda.syncthreads()
    apart = i32(64)
    while apart > 0:
        if t < apart:
            part[t] += part[t + apart]
        cuda.syncthreads()
        apart = i32(apart >> 1)
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


def histograms(x, out):
    """One of 8 numbers for each warp, counted by atomic operations; warps do not wait for each other."""
    bins = cuda.shared.array(16, i32)
    lane, first = i32(cuda.threadIdx.x % 32), i32(cuda.threadIdx.x // 32 * 8)
    if lane < 8:
        bins[first + lane] = 0
    cuda.syncwarp()
    cuda.atomic.add(bins, first + x[cuda.threadIdx.x], 1)
    cuda.syncwarp()
    if lane < 8:  # bound
        out[first + lane] = bins[first + lane]


def pipeline(x, out, tiles):
    """Sums of columns; a tile travels while the one before is read."""
    tile = cuda.shared.array(256, f32, alignment=16)
    t = i32(cuda.threadIdx.x)
    cp_async(shared_address(tile, t * 4), global_address(x, t * 4), u32(16))
    cp_async_commit()
    value = f32(0)
    for k in range(tiles):
        if k + 1 < tiles:  # bound
            place = ((k + 1) & 1) * 128 + t * 4
            cp_async(shared_address(tile, place), global_address(x, (k + 1) * 128 + t * 4), u32(16))
        cp_async_commit()
        wait_for_all_but_one()
        cuda.syncthreads()
        for row in range(4):
            value += tile[(k & 1) * 128 + row * 32 + (t ^ 5)]
        cuda.syncthreads()
    out[t] = value


x = RANDOM.integers(-8, 9, 640).astype(np.float32)
digits = RANDOM.integers(0, 8, 64).astype(np.int32)
# name: function, signature, grid, block, arguments before and after the result, the result
PROGRAMS = {
    "total": (total, "f32* x, f32* out, i32 n", (3,), (128,), [x[:300]], [300],
              np.array([x[:128].sum(), x[128:256].sum(), x[256:300].sum()])),
    "histograms": (histograms, "i32* x, i32* out", (1,), (64,), [digits], [],
                   np.array([np.bincount(part, minlength=8) for part in (digits[:32], digits[32:])], np.int32)),
    "pipeline": (pipeline, "f32* x, f32* out, i32 tiles", (1,), (32,), [x], [5],
                 x.reshape(20, 32).sum(0)[np.arange(32) ^ 5]),
}  # fmt: skip


def outcome(name, text):
    """(kinds of faults, whether the result is right) of a program."""
    _, signature, grid, block, before, after, right = PROGRAMS[name]
    out = empty(right.shape, right.dtype)
    arguments = (*(array(given) for given in before), out, *after)
    report = interpret(compiled(text, signature, name, block[0]), grid, block, arguments, budget=100_000)
    return {fault.kind for fault in report.faults}, np.array_equal(out, right)


def edited(name, pattern, change):
    """The changed text for every place of a program in which the pattern stands."""
    lines = inspect.getsource(PROGRAMS[name][0]).splitlines()
    for i, line in enumerate(lines):
        for match in re.finditer(pattern, line):
            new = line[: match.start()] + match.expand(change) + line[match.end() :]
            yield "\n".join([*lines[:i], new, *lines[i + 1 :]])


@pytest.mark.parametrize("name", PROGRAMS)
def test_waits_and_bounds_that_are_missing_are_found(name):
    assert outcome(name, inspect.getsource(PROGRAMS[name][0])) == (set(), True)
    for text in edited(name, r"cuda.sync\w+\(\)|cp_async_commit\(\)|wait_\w+\(\)", "pass"):
        assert outcome(name, text)[0] & {"shared race", "cp.async wait"}, text
    for text in edited(name, r"if .*:  # bound", "if True:"):
        assert "out of bounds" in outcome(name, text)[0], text


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
