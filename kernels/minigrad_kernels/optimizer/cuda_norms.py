"""Sums of squares of many arrays, the factor that brings a norm down, and scaling, on CUDA.

Squares are summed within chunks, each of whose threads adds up to 16 of them before they are added pairwise, and the
sums of the chunks in float64: the order follows from the sizes alone. In float32 a square above 3.4e38 is inf.
"""

import math

import numpy as np

from ..toolchain.cuda import cuda, f32, f64, i32, kernel, load4, store4
from .cuda_parts import THREADS, block_sum, chunk_of_block, first_of, product

__all__ = ["CLIP", "SCALE", "SQUARES", "SUMS", "scale_vector", "squares_vector"]


def _both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


def _squares(kind, real):
    @kernel(f"u64* addresses, i32* chunks, {kind}* partial", threads=THREADS, variant=kind)
    def squares_plain(addresses, chunks, partial):
        """Thread i of a block owns the elements i, i + 256, ... of its chunk; a block writes one sum."""
        t, start, count = chunk_of_block(chunks)
        a = first_of(addresses, 0, 0, t, start, partial)
        k, total = i32(cuda.threadIdx.x), real(0)
        while k < count:
            total += a[k] * a[k]
            k = i32(k + THREADS)
        total = block_sum(cuda.shared.array(THREADS, real), total)
        if cuda.threadIdx.x == 0:
            partial[i32(cuda.blockIdx.x)] = total

    return squares_plain


@kernel("u64* addresses, i32* chunks, f32* partial", threads=THREADS, opcodes=("LDG.E.128",))
def squares_vector(addresses, chunks, partial):
    """As squares_plain, but thread i owns the elements 4i to 4i+3, then those 1024 further on, and adds four squares
    pairwise; where the array lies off the multiples of 16 bytes it loads them one by one."""
    t, start, count = chunk_of_block(chunks)
    a = first_of(addresses, 0, 0, t, start, partial)
    k, whole, total, aligned = i32(4 * cuda.threadIdx.x), i32(count & -4), f32(0), i32(addresses[t]) & 15 == 0
    while k < whole:
        if aligned:
            w, x, y, z = load4(a, k)
        else:
            w, x, y, z = a[k], a[i32(k + 1)], a[i32(k + 2)], a[i32(k + 3)]
        total += (w * w + x * x) + (y * y + z * z)
        k = i32(k + 4 * THREADS)
    k = i32(whole + cuda.threadIdx.x)
    if k < count:
        total += a[k] * a[k]
    total = block_sum(cuda.shared.array(THREADS, f32), total)
    if cuda.threadIdx.x == 0:
        partial[i32(cuda.blockIdx.x)] = total


def _sums(kind, real):
    @kernel(f"{kind}* partial, i32* starts, f64* out", threads=THREADS, variant=kind)
    def sums(partial, starts, out):
        """Each block owns one array, whose chunks are those from starts[t] up to starts[t + 1]."""
        t = i32(cuda.blockIdx.x)
        k, stop, total = i32(starts[t] + cuda.threadIdx.x), starts[i32(t + 1)], f64(0)
        while k < stop:
            total += f64(partial[k])
            k = i32(k + THREADS)
        total = block_sum(cuda.shared.array(THREADS, f64), total)
        if cuda.threadIdx.x == 0:
            out[t] = total

    return sums


def _clip(kind, real):
    given = f"f64* squares, {kind}* norm, f64* factor, f64* inverse, f64* found_inf, f64 most, i32 count, i32 given"

    @kernel(given, threads=THREADS, variant=kind)
    def clip(squares, norm, factor, inverse, found_inf, most, count, given):
        """One block, which adds the squares and whose thread 0 writes the results. NaN stays NaN.

        given: bit 0: there is `inverse`; bit 1: there is `found_inf`
        """
        k, total = i32(cuda.threadIdx.x), f64(0)
        while k < count:
            total += squares[k]
            k = i32(k + THREADS)
        total = math.sqrt(block_sum(cuda.shared.array(THREADS, f64), total))
        if cuda.threadIdx.x == 0:
            unscaled = inverse[0] if given & 1 else 1.0
            total = product(total, unscaled)
            share = most / (total + 1e-6)
            norm[0], factor[0] = real(total), unscaled if share >= 1.0 else share * unscaled
            if given & 2 and not total < math.inf:
                found_inf[0] = 1.0

    return clip


def _scale(kind, real):
    @kernel(f"u64* addresses, i32* chunks, {kind}* like, f64* factor", threads=THREADS, variant=kind)
    def scale_plain(addresses, chunks, like, factor):
        """Thread i of a block owns the elements i, i + 256, ... of its chunk. A factor of 1 touches nothing.

        `like` says of which type the arrays are; it points to nothing.
        """
        t, start, count = chunk_of_block(chunks)
        a = first_of(addresses, 0, 0, t, start, like)
        k, share = i32(cuda.threadIdx.x), real(factor[0])
        if factor[0] == 1.0:
            count = i32(0)
        while k < count:
            a[k] *= share
            k = i32(k + THREADS)

    return scale_plain


@kernel("u64* addresses, i32* chunks, f32* like, f64* factor", threads=THREADS, opcodes=("LDG.E.128", "STG.E.128"))
def scale_vector(addresses, chunks, like, factor):
    """As scale_plain, but four neighbouring elements at a time where the array lies at a multiple of 16 bytes."""
    t, start, count = chunk_of_block(chunks)
    a = first_of(addresses, 0, 0, t, start, like)
    k, share = i32(4 * cuda.threadIdx.x), f32(factor[0])
    if factor[0] == 1.0:
        count = i32(0)
    whole = i32(0 if i32(addresses[t]) & 15 else count & -4)
    while k < whole:
        w, x, y, z = load4(a, k)
        store4(a, k, (w * share, x * share, y * share, z * share))
        k = i32(k + 4 * THREADS)
    k = i32(whole + cuda.threadIdx.x)
    while k < count:
        a[k] *= share
        k = i32(k + THREADS)


SQUARES, SUMS, CLIP, SCALE = _both(_squares), _both(_sums), _both(_clip), _both(_scale)
