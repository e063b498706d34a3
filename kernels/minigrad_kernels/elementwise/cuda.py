"""ReLU, leaky ReLU, erf and dropout on CUDA, on flat arrays of float32 and float64.

Thread i owns element i; of dropout four elements. Every array is read or written once.
"""

import math

import numpy as np

from ..toolchain.cuda import cuda, device, each_float, u32, u64, unroll
from ..toolchain.cuda.memory import kept
from . import formulas

THREADS = 256


# ---- kernels ---------------------------------------------------------------------------------------------------------


passed, leaked = device(formulas.passed), device(formulas.leaked)


@each_float("_[:] x, _[:] beside, _[:] out, _ slope, i32 leaky", threads=THREADS)
def rectify(x, beside, out, slope, leaky):
    """ReLU, and leaky ReLU. beside: of a gradient x, what ReLU gave, or what leaky ReLU got; else without elements."""
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        y = beside[i] if beside.size else v
        out[i] = leaked(v, y, slope) if leaky else passed(v, y)


@each_float("_[:] x, _[:] out", threads=THREADS)
def error(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.erf(x[i])


@device
def philox(block, seed, step):
    """The four words of 32 bits that Philox4x32-10 gives for counter (block, step) and key seed, 64 bits each."""
    c0, c1, c2, c3 = u32(block), u32(block >> u64(32)), u32(step), u32(step >> u64(32))
    k0, k1 = u32(seed), u32(seed >> u64(32))
    for _ in range(10):
        unroll(0)
        a = u64(c0) * u64(0xD2511F53)  # 64 bits of two times 32: one instruction
        b = u64(c2) * u64(0xCD9E8D57)
        c0, c1 = u32(u32(b >> u64(32)) ^ c1 ^ k0), u32(b)
        c2, c3 = u32(u32(a >> u64(32)) ^ c3 ^ k1), u32(a)
        k0, k1 = u32(k0 + u32(0x9E3779B9)), u32(k1 + u32(0xBB67AE85))
    return c0, c1, c2, c3


@each_float("_[:] x, _[:] out, u32 threshold, _ scale, u64[:] key, u64 step", threads=THREADS)
def drop(x, out, threshold, scale, key, step):
    """Thread i owns elements 4i to 4i+3, one block of Philox, which it draws once.

    `key` holds the seed and what is added to the step, which may change between two replays of a graph.
    """
    i = cuda.grid(1)
    words = philox(u64(i), key[0], key[1] + step)
    for n in range(4):
        unroll(0)
        k, word = 4 * i + n, words[0] if n == 0 else words[1] if n == 1 else words[2] if n == 2 else words[3]
        if k < x.size:
            out[k] = x[k] * (scale if word >= threshold else type(scale)(0))


# ---- launches --------------------------------------------------------------------------------------------------------


def _start(kernels, arrays, numbers=(), each=1):
    """Start the kernel of a type on arrays of one size, with the numbers that it wants besides; each: of a thread."""
    if arrays[0].size:
        kernels[arrays[0].itemsize]((-(-arrays[0].size // (each * THREADS)),), (THREADS,), (*arrays, *numbers))


def relu(x, out):
    _start(rectify, (x, None, out), (0.0, 0))


def relu_grad(g, out, dx):
    _start(rectify, (g, out, dx), (0.0, 0))


def leaky_relu(x, negative_slope, out):
    _start(rectify, (x, None, out), (negative_slope, 1))


def leaky_relu_grad(g, x, negative_slope, dx):
    _start(rectify, (g, x, dx), (negative_slope, 1))


def erf(x, out):
    _start(error, (x, out))


def dropout(x, threshold, scale, seed, step, out):
    key = seed if getattr(seed, "shape", ()) else kept(np.array([seed, 0], np.uint64), x)
    _start(drop, (x, out), (threshold, scale, key, int(step)), 4)
