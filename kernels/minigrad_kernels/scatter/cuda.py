"""Rows added where indices say, on CUDA: the first thread of equal places adds all of them, in their order.

No two threads write one element, so there are no atomic additions and the bits are the same every time. One rung:
float32 and float64.
"""

import numpy as np

from ..errors import ShapeError
from ..toolchain.cuda import cuda, f32, f64, i32, i64, kernel, u32

__all__ = ["add_rows"]

THREADS = 256
LIMIT = (1 << 31) - THREADS  # elements of x: places in it are 32-bit


def _adder(kind, real):
    @kernel(f"{kind}* x, i64* places, i64* order, {kind}* out, i32 rows, u32 columns", threads=THREADS, variant=kind)
    def add(x, places, order, out, rows, columns):
        """Thread i owns element i % columns of a row of out, if i // columns is where its place comes first in order.

        x is read once, order and places of a row by each of its threads; what has a place is written once.
        """
        i = u32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        k, c = i32(u32(i // columns)), i64(u32(i % columns))
        if k < rows:
            row = places[order[k]]
            if k == 0 or places[order[i32(k - 1)]] != row:
                total = real(0)
                while k < rows and places[order[k]] == row:
                    total += x[order[k] * i64(columns) + c]
                    k = i32(k + 1)
                out[row * i64(columns) + c] = total

    return add


ADD = {np.dtype(np.float32): _adder("f32", f32), np.dtype(np.float64): _adder("f64", f64)}


def add_rows(x, places, order, out):
    if x.size >= LIMIT:
        raise ShapeError(f"add_rows: x has shape {x.shape}, {x.size} elements, wants less than {LIMIT}; split it")
    out.fill(0)
    if not x.size:
        return
    ADD[x.dtype]((-(-x.size // THREADS),), (THREADS,), (x, places, order, out, *x.shape))
