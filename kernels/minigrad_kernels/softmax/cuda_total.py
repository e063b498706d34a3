"""The losses of rows added up, and how many rows count. float32 and float64.

Each block owns a run of rows: its threads take every 256th of them, then the 256 sums are joined pairwise. Where one
block is enough it writes the result, else a second launch joins what the blocks wrote.
"""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel
from .cuda_parts import THREADS

__all__ = ["JOINED", "MEAN", "PART", "SUM", "SUMS"]

PART, SUM, MEAN = 0, 1, 2  # what a block writes: its part, the whole sum and 1, or the mean and the number of rows
RUN = 16 * THREADS  # parts that are added one by one before their sum is added: so a long sum loses little


def _end(real):
    @device
    def end(total, count, sums, counts, wish):
        """Join the sums and the counts of the threads of a block, and write what is wished."""
        s, c = cuda.shared.array(THREADS, real), cuda.shared.array(THREADS, real)
        thread, half = i32(cuda.threadIdx.x), i32(THREADS // 2)
        s[thread], c[thread] = total, count
        while half:
            cuda.syncthreads()
            if thread < half:
                s[thread] += s[i32(thread + half)]
                c[thread] += c[i32(thread + half)]
            half = i32(half >> 1)
        if thread == 0:
            block, divisor = i32(cuda.blockIdx.x), real(1) if wish == SUM else c[0]
            sums[block] = s[0] / divisor if wish == MEAN else s[0]
            counts[block] = divisor

    return end


def _sums(kind, real):
    end = _end(real)
    arrays = f"i64* target, i64 ignore_index, {kind}* losses, {kind}* sums, {kind}* counts"

    @kernel(f"{arrays}, i32 rows, i32 share, i32 wish", threads=256, variant=kind)
    def loss_sums(target, ignore_index, losses, sums, counts, rows, share, wish):
        """Each block owns `share` rows, whose losses and targets are read once."""
        start = i32(cuda.blockIdx.x * share)
        n, stop = i32(start + cuda.threadIdx.x), i32(start + min(share, i32(rows - start)))
        total, count = real(0), real(0)
        while n < stop:
            total += losses[n]
            count += real(0) if target[n] == ignore_index else real(1)
            n = i32(n + THREADS)
        end(total, count, sums, counts, wish)

    return loss_sums


def _joined(kind, real):
    end = _end(real)

    arrays = f"{kind}* out, {kind}* divisor, {kind}* sums, {kind}* counts"

    @kernel(f"{arrays}, i32 parts, i32 wish", threads=256, variant=kind)
    def loss_joined(out, divisor, sums, counts, parts, wish):
        """The only block joins the sums and counts of all parts."""
        p, total, count = i32(cuda.threadIdx.x), real(0), real(0)
        while p < parts:
            stop, short = i32(p + min(RUN, i32(parts - p))), real(0)
            while p < stop:
                short += sums[p]
                count += counts[p]
                p = i32(p + THREADS)
            total += short
        end(total, count, out, divisor, wish)

    return loss_joined


def _both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


SUMS, JOINED = _both(_sums), _both(_joined)
