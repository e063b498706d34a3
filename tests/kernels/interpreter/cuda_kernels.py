"""CUDA kernels for tests alone: some right, some with a planted mistake."""

import numpy as np

from minigrad_kernels.toolchain.cuda import cuda, f32, i32, kernel, u32, unroll

SHIFT = 0
TABLE = np.arange(3)


def scale(factor, variant, threads=256, lowest="sm_75", opcodes=()):
    @kernel("f32* x, f32* out, i32 n", threads=threads, lowest=lowest, opcodes=opcodes, variant=variant)
    def scale(x, out, n):
        """out = factor * x"""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < n:
            out[i] = f32(factor) * x[i] + f32(SHIFT)

    return scale


@kernel("f32* out", threads=32)
def with_an_array(out):
    out[0] = TABLE[0]


@kernel("f32* x, f32* out", threads=32)
def four_copies(x, out):
    for k in range(4):
        unroll(0)
        out[k] = x[k]


def power(count):
    @kernel("f32* x, f32* out", threads=32, variant=str(count))
    def power(x, out):
        value, base = x[0], x[1]
        for _ in range(12):
            unroll(count)
            value = value * base + base
        out[0] = value

    return power


# ---- what the report must find -----------------------------------------------------------------------------------


@kernel("f32* x, f32* out, i32 n", threads=1024, blocks=2)
def spilling(x, out, n):
    """64 running values, and 32 registers for them."""
    values = cuda.local.array(64, f32)
    for k in range(64):
        unroll(0)
        values[k] = x[k * n + cuda.threadIdx.x]
    for step in range(n):
        for k in range(64):
            unroll(0)
            values[k] = values[k] * values[(k + 1) % 64] + f32(step)
    for k in range(64):
        unroll(0)
        out[k * n + cuda.threadIdx.x] = values[k]


@kernel("f32* x, f32* out, i32 n", threads=32)
def with_a_stack(x, out, n):
    """A subscript that is known only when it runs keeps an array out of the registers."""
    values = cuda.local.array(64, f32)
    for k in range(n):
        values[i32(x[k])] = x[k]
    out[0] = values[n]


@kernel("f32* x, f32* out", threads=32)
def with_a_bare_number(x, out):
    """0.1 is a float64, and so becomes the product."""
    out[0] = x[0] * 0.1


@kernel("f32* x, f32* out, i32 n", threads=32, opcodes=("LDG.E.128",))
def without_its_opcode(x, out, n):
    out[0] = x[i32(n)]


@kernel("f32* x, f32* bias, f32* out, i32 size, u32 columns", threads=256)
def bias_relu(x, bias, out, size, columns):
    """out = max(x + bias, 0), an element a thread"""
    i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i < size:
        out[i] = max(x[i] + bias[u32(u32(i) % columns)], f32(0))
