"""Rows added where indices say, on CUDA: the first thread of equal places adds all of them, in their order.

No two threads write one element, so there are no atomic additions and the bits are the same every time. One rung
for float32 and float64.
"""

from ..errors import ShapeError
from ..toolchain.cuda import cuda, i32, i64, u32
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each

__all__ = ["add_rows"]

THREADS = 256
LIMIT = (1 << 31) - THREADS  # elements of x: places in it are 32-bit


def _adder(half):
    real = half.real

    @half.plain("_* x, i64* places, i64* order, _* out, i32 rows, u32 columns")
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


ADD = each(_adder, SINGLE, DOUBLE)


def add_rows(x, places, order, out):
    if x.size >= LIMIT:
        raise ShapeError(f"add_rows: x has shape {x.shape}, {x.size} elements, wants less than {LIMIT}; split it")
    out.fill(0)
    if not x.size:
        return
    ADD[x.dtype.name]((-(-x.size // THREADS),), (THREADS,), (x, places, order, out, *x.shape))
