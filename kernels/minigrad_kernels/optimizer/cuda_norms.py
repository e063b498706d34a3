"""Sums of squares of many arrays, the factor that brings a norm down, and scaling, on CUDA.

Squares are summed within chunks, each of whose threads adds up to 16 of them before they are added pairwise, and the
sums of the chunks in float64: the order follows from the sizes alone. In float32 a square above 3.4e38 is inf.
"""

import math

import numpy as np

from ..toolchain.cuda import cuda, f32, f64, i32, kernel
from .cuda_parts import THREADS, block_sum, chunk_of_block, first_of, product

__all__ = ["CLIP", "SCALE", "SQUARES", "sums"]


def _both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


def _squares(kind, real):
    @kernel(f"u64* addresses, i32* chunks, f64* partial, {kind}* like", threads=THREADS, variant=kind)
    def squares(addresses, chunks, partial, like):
        """Thread i of a block owns the elements i, i + 256, ... of its chunk; a block writes one sum.

        `like` says of which type the arrays are; it points to nothing.
        """
        t, start, count = chunk_of_block(chunks)
        a = first_of(addresses, 0, 0, t, start, like)
        k, total = i32(cuda.threadIdx.x), real(0)
        while k < count:
            total += a[k] * a[k]
            k = i32(k + THREADS)
        total = block_sum(cuda.shared.array(THREADS, real), total)
        if cuda.threadIdx.x == 0:
            partial[i32(cuda.blockIdx.x)] = f64(total)

    return squares


@kernel("f64* partial, i32* starts, f64* out", threads=THREADS)
def sums(partial, starts, out):
    """Each block owns one array, whose chunks are those from starts[t] up to starts[t + 1]."""
    t = i32(cuda.blockIdx.x)
    k, stop, total = i32(starts[t] + cuda.threadIdx.x), starts[i32(t + 1)], f64(0)
    while k < stop:
        total += partial[k]
        k = i32(k + THREADS)
    total = block_sum(cuda.shared.array(THREADS, f64), total)
    if cuda.threadIdx.x == 0:
        out[t] = total


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
    def scale(addresses, chunks, like, factor):
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

    return scale


SQUARES, CLIP, SCALE = _both(_squares), _both(_clip), _both(_scale)
