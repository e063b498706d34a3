"""Convolution with the maximum over windows of 2 x 2 behind it in one kernel: how a thread writes its sums.

Where the pixels of a tile are numbered by windows (make_classes), four neighbouring rows of its product are one window.
So each block of 4 x 4 sums that a thread owns is one window of four channels: their maxima, and which pixels they are,
are found in registers, and the map before the pooling is never in memory. Bits are those of the two steps: bias and
ReLU come before the comparisons, which are those of pool2d.
"""

from ..matmul.cuda_parts import WIDE, bias_of, finish, least_of
from ..pool2d.cuda_plain import LEAST, greater
from ..toolchain.cuda import (
    cuda,
    device,
    f32,
    global_address,
    i32,
    i64,
    inline_ptx,
    offset,
    store4,
    u32,
    u64,
    unroll,
)

__all__ = ["TAPS", "make_pooled_write"]

TAPS = 4  # of a window, which are numbered as its pixels are
QUAD = 4  # floats in 128 bits
store_word = inline_ptx("store_word", "st.global.u32 [$0], $1;", None, [u64, u32], effects=True)


def make_pooled_write(row_sums, column_sums, rows_apart):
    """make_write of cuda_parts.py for kernels that pool, with the same arguments: result and sizes are of the pooled
    map, row counts pixels by windows, neighbours lie side by side. positions: of the pooled map, one byte each."""
    column_blocks = column_sums // QUAD

    @device
    def greatest(total, first, added, least):
        """The greatest of a window in one column, and which pixel it is."""
        best, chosen = f32(LEAST), i32(0)
        for tap in range(TAPS):
            unroll(0)
            v = finish(total[first + tap * column_sums], added, least)
            chosen = i32(tap) if greater(v, best, tap == 0) else chosen
            best = v if greater(v, best, tap == 0) else best
        return best, chosen

    @device
    def write_four(total, added, start, codes, first, j, place, left, least, flags):
        best, chosen = cuda.local.array(QUAD, f32), cuda.local.array(QUAD, i32)
        for i in range(QUAD):
            unroll(0)
            best[i], chosen[i] = greatest(total, first + i, added[j * QUAD + i], least)
        if flags & WIDE:
            if place < left:
                store4(start, place, (best[0], best[1], best[2], best[3]))
                low, high = u32(chosen[0] | chosen[1] << 8), u32(chosen[2] | chosen[3] << 8)
                store_word(global_address(codes, place), u32(low | u32(high << u32(16))))
        else:
            for i in range(QUAD):
                unroll(0)
                if place + i < left:
                    start[place + i] = best[i]
                    codes[place + i] = chosen[i]

    @device
    def write(
        total, start, bias, beside, row, apart, column, across, pixels, left, vertical, horizontal, sizes, flags,
        positions,
    ):  # fmt: skip
        least, added = least_of(flags), cuda.local.array(column_sums, f32)
        for j in range(column_sums):
            unroll(0)
            place = i32(j // QUAD * across + j % QUAD)
            added[j] = bias_of(bias, column + place, flags) if place < left else f32(0)
        for i in range(row_sums // TAPS):
            unroll(0)
            number = i32(row + i * rows_apart)
            if number < pixels:
                place = i64(i32(i32(number >> 2) * sizes[2]))
                here, codes = offset(start, place), offset(positions, place + i64(column))
                for j in range(column_blocks):
                    unroll(0)
                    first = i * TAPS * column_sums + j * QUAD
                    write_four(total, added, here, codes, first, j, i32(j * across), left, least, flags)

    return write
