"""The end of every kernel: bias, residual and ReLU, and whole sectors of results, once for all rungs and types."""

from ..matmul.cuda_parts import BIAS, RELU, RESIDUAL, WIDE, finish, least_of
from ..matmul.cuda_split import SUMS
from ..toolchain.cuda import bits, device, f32, i32, i64, offset, store4_words, u16, u32, unroll
from ..toolchain.cuda.halves import SINGLE
from .cuda_gather import QUAD

__all__ = ["BIAS", "RELU", "RESIDUAL", "SUMS", "WIDE", "make_own", "make_write", "same"]


def make_own(columns, column_sums):
    """A function that gives a thread the first row and column of its sums in the tile.

    Threads of a warp lie 4 x 8, so eight that read at once want one block of rows and eight of columns, side by side;
    where a tile is narrow, 8 x 4.
    """
    across = columns // column_sums
    width = min(across, 8)
    height, warps_across = 32 // width, across // width

    @device
    def own(thread):
        warp, lane = i32(thread >> u32(5)), i32(thread & u32(31))
        row = i32(i32(warp // warps_across) * height + i32(lane // width))
        return row * QUAD, i32(i32(warp % warps_across) * width + i32(lane % width)) * QUAD

    return own


def make_end(half, adjoint):
    """A function that finishes four neighbouring sums: bias, residual, ReLU, and one store where the place allows."""
    load, store, widen, narrow, single = half.load4, half.store4, half.widen, half.narrow, half is SINGLE

    @device
    def read(array, place, left):
        """Four neighbours, of which so many are left."""
        return (
            widen(array[place]) if left > 0 else f32(0),
            widen(array[place + 1]) if left > 1 else f32(0),
            widen(array[place + 2]) if left > 2 else f32(0),
            widen(array[place + 3]) if left > 3 else f32(0),
        )

    @device
    def end(result, bias, residual, place, four, left, least, flags):
        """left: columns that are left; with SUMS, results are float32."""
        added, more = (f32(0), f32(0), f32(0), f32(0)), (f32(0), f32(0), f32(0), f32(0))
        if not adjoint and flags & BIAS:
            added = read(bias, place, left)
        if not adjoint and flags & RESIDUAL:
            if flags & WIDE:
                if left > 0:
                    more = load(residual, place)
            else:
                more = read(residual, place, left)
        found = (
            finish(four[0] + added[0], more[0], least),
            finish(four[1] + added[1], more[1], least),
            finish(four[2] + added[2], more[2], least),
            finish(four[3] + added[3], more[3], least),
        )
        if flags & WIDE:
            if left > 0:
                if not single and flags & SUMS:
                    store4_words(result, 2 * place, (bits(found[0]), bits(found[1]), bits(found[2]), bits(found[3])))
                else:
                    store(result, place, found)
        else:
            for e in range(QUAD):
                unroll(0)
                if e < left:
                    if not single and flags & SUMS:
                        result[2 * (place + e)] = u16(bits(found[e]) & u32(0xFFFF))
                        result[2 * (place + e) + 1] = u16(bits(found[e]) >> u32(16))
                    else:
                        result[place + e] = narrow(found[e])

    return end


def _fours(column_sums):
    @device
    def take(total, i, j):
        """The j-th four sums of a thread's row i."""
        n = i * column_sums + QUAD * j
        return total[n], total[n + 1], total[n + 2], total[n + 3]

    return take


def make_write(half, row_sums, column_sums, rows_apart, target, adjoint, take=None):
    """A function that writes the sums of a thread, row_sums x column_sums, four by four as `take` gives them."""
    single, end, take = half is SINGLE, make_end(half, adjoint), take or _fours(column_sums)
    column_blocks = column_sums // QUAD

    @device
    def write(total, result, bias, residual, tables, of, row, apart, channel, across, left, pixels, sizes, flags):
        """From pixel `row` of the class on, neighbours so far apart, and from a channel of the result on, one block of
        columns so far `across` from the other; `left` channels are left in the group.

        sizes: pixels and channels of the result; where its slice begins, in elements
        """
        least, scale = least_of(flags), i64(2 if not single and flags & SUMS else 1)
        bias = offset(bias, channel)
        for i in range(row_sums):
            unroll(0)
            number = i32(row + (i // QUAD * rows_apart + i % QUAD) * apart)
            found = target(min(number, i32(pixels - 1)), tables, of, sizes[0])
            place = i64(i32(found * sizes[1])) + i64(channel)
            here, beside = offset(result, i64(sizes[2] + place) * scale), offset(residual, place)
            for j in range(column_blocks):
                unroll(0)
                four = take(total, i, j)
                if number < pixels:
                    end(here, bias, beside, i32(j * across), four, i32(left - j * across), least, flags)

    return write


@device
def same(number, tables, of, size):
    """The target where results, such as rows of dw, lie as they are counted."""
    return number
