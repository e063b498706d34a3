"""Rows added where indices say, on CUDA: the first thread of equal places adds all of them, in their order.

No two threads write one element, so there are no atomic additions and the bits are the same every time. One rung
for float32 and float64.
"""

from ..toolchain.cuda import cuda, each_float

THREADS = 256


@each_float("_[:,:] x, i64[:] places, i64[:] order, _[:,:] out", threads=THREADS)
def add(x, places, order, out):
    """Thread i owns column i % C of the row of out that place i // C in order names, if that one is the first to do so.

    x is read once, order and places of a row by each of its threads; what has a place is written once.
    """
    number = cuda.grid(1)
    k, c = number // x.shape[1], number % x.shape[1]
    if k < x.shape[0]:
        row = places[order[k]]
        if k == 0 or places[order[k - 1]] != row:
            total = x.dtype.type(0)
            while k < x.shape[0] and places[order[k]] == row:
                total += x[order[k], c]
                k += 1
            out[row, c] = total


def add_rows(x, places, order, out):
    out.fill(0)
    if x.size:
        add[x.itemsize]((-(-x.size // THREADS),), (THREADS,), (x, places, order, out))
