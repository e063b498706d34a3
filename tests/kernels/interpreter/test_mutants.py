"""Faults hunted: good programs are clean, and each of them with a mistake put into its text is found out.

Where no compiler is installed there is nothing to interpret.
"""

import inspect
import re

import numpy as np
import pytest

from minigrad_kernels.interpreter import array, empty, interpret
from minigrad_kernels.toolchain.cuda import (
    compiler,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    cuda,
    f32,
    global_address,
    i32,
    shared_address,
    u32,
)

from .random_programs import compiled, ptx_of

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
RANDOM = np.random.default_rng(21)


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


def product(a, b, out, k):
    """16 by 16, a tile of 16 steps at a time; the next one is written while one is read: one barrier a tile."""
    left, right = cuda.shared.array(512, f32), cuda.shared.array(512, f32)
    i, j = i32(cuda.threadIdx.y), i32(cuda.threadIdx.x)
    left[i * 16 + j] = a[i * k + j]
    right[i * 16 + j] = b[i * 16 + j]
    cuda.syncthreads()
    value, now, done = f32(0), i32(0), i32(16)
    while done <= k:
        if done < k:  # bound
            left[256 - now + i * 16 + j] = a[i * k + done + j]
            right[256 - now + i * 16 + j] = b[(done + i) * 16 + j]
        for step in range(16):
            value += left[now + i * 16 + step] * right[now + step * 16 + j]
        cuda.syncthreads()
        now, done = i32(256 - now), i32(done + 16)
    out[i * 16 + j] = value


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


def rounds(out):
    """Every block passes its own number of barriers; every warp shuffles in two parts."""
    buffer = cuda.shared.array(64, i32)
    t, block = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
    value = t
    for _ in range(block):
        buffer[t] = value
        cuda.syncthreads()
        value = buffer[(t + 1) % 64]
        cuda.syncthreads()
    if t % 32 < 20:
        value += i32(cuda.shfl_sync(0x000FFFFF, value, 3))
    else:
        value += i32(cuda.shfl_sync(0xFFF00000, value, 30))
    out[block * 64 + t] = value


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


wait_for_all_but_one = cp_async_wait(1)
a, b = (RANDOM.integers(-4, 5, shape).astype(np.float32) for shape in ((16, 48), (48, 16)))
x = RANDOM.integers(-8, 9, 640).astype(np.float32)
digits = RANDOM.integers(0, 8, 64).astype(np.int32)
turned = [(np.arange(64) + block) % 64 for block in range(4)]
given_by = np.where(np.arange(64) % 32 < 20, 3, 30) + np.arange(64) // 32 * 32
# name: function, signature, grid, block, arguments before and after the result, the result
PROGRAMS = {
    "total": (total, "f32* x, f32* out, i32 n", (3,), (128,), [x[:300]], [300],
              np.array([x[:128].sum(), x[128:256].sum(), x[256:300].sum()])),
    "product": (product, "f32* a, f32* b, f32* out, i32 k", (1,), (16, 16), [a, b], [48], a @ b),
    "histograms": (histograms, "i32* x, i32* out", (1,), (64,), [digits], [],
                   np.array([np.bincount(part, minlength=8) for part in (digits[:32], digits[32:])], np.int32)),
    "rounds": (rounds, "i32* out", (4,), (64,), [], [], np.array([row + row[given_by] for row in turned], np.int32)),
    "pipeline": (pipeline, "f32* x, f32* out, i32 tiles", (1,), (32,), [x], [5],
                 x.reshape(20, 32).sum(0)[np.arange(32) ^ 5]),
}  # fmt: skip


def outcome(name, text):
    """(kinds of faults, whether the result is right) of a program."""
    _, signature, grid, block, before, after, right = PROGRAMS[name]
    kernel = compiled(text, signature, name, int(np.prod(block)), "sm_80", wait_for_all_but_one=wait_for_all_but_one)
    out = empty(right.shape, right.dtype)
    arguments = (*(array(given) for given in before), out, *after)
    report = interpret(ptx_of(kernel, "sm_80"), grid, block, arguments, budget=100_000)
    return {fault.kind for fault in report.faults}, np.array_equal(out, right)


@pytest.mark.parametrize("name", PROGRAMS)
def test_good_programs_are_clean(name):
    assert outcome(name, inspect.getsource(PROGRAMS[name][0])) == (set(), True)


def edited(pattern, change):
    """The changed text for every place of every program in which the pattern stands."""
    found = []
    for name, (function, *_) in PROGRAMS.items():
        lines = inspect.getsource(function).splitlines()
        for i, line in enumerate(lines):
            for match in re.finditer(pattern, line):
                new = line[: match.start()] + match.expand(change) + line[match.end() :]
                text = "\n".join([*lines[:i], new, *lines[i + 1 :]])
                found.append(pytest.param(name, text, id=f"{name}: {new.strip()} (line {i + 1})"))
    return found


@pytest.mark.parametrize("name, text", edited(r"cuda.sync\w+\(\)|cp_async_commit\(\)|wait_\w+\(\)", "pass"))
def test_waits_that_are_missing_are_found(name, text):
    assert outcome(name, text)[0] & {"shared race", "cp.async wait"}


@pytest.mark.parametrize("name, text", edited(r"if .*:  # bound", "if True:"))
def test_bounds_that_are_missing_are_found(name, text):
    assert "out of bounds" in outcome(name, text)[0]


@pytest.mark.parametrize("name, text", edited(r"(?<=\w)\[([^\[\]]+)\]", r"[\1 + 1]"))
def test_shifted_subscripts_are_found(name, text):
    """By a fault or, where the place exists, by the result."""
    faults, right = outcome(name, text)
    assert faults or not right
