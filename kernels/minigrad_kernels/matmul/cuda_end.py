"""The end of every kernel that has sums in registers: bias, residual, ReLU, and whole sectors of results.

It is written once for all rungs and types, of matrix products and of convolutions. An end takes four neighbours of a
row at a time. Rungs on tensor cores have pairs of neighbours, which lanes exchange for fours.
"""

from ..toolchain.cuda import bits, cuda, device, f32, i32, i64, offset, store4_words, u16, u32, unroll
from ..toolchain.cuda.halves import SINGLE

# Flags of a kernel: add the bias; then ReLU; rows of results may be written four elements at once; results are float32,
# also those of 16-bit operands; before ReLU, add an array that lies as the result does.
BIAS, RELU, WIDE, SUMS, RESIDUAL = 1, 2, 4, 8, 16
QUAD = 4  # neighbours that are written together: 128 bits of float32
LOWEST = float("-inf")
ALL = 0xFFFFFFFF  # lanes of a warp


@device
def least_of(flags):
    """The least value that a result may have. Comparing with it leaves no branch in the loop that writes results."""
    return f32(0) if flags & RELU else f32(LOWEST)


@device
def finish(total, added, least):
    """A sum with bias and ReLU, written so that NaN passes."""
    total += added
    return least if total <= least else total


# ---- which sums a thread owns ----------------------------------------------------------------------------------------


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


@device
def own_of_lane(lane):
    """On tensor cores: the row of a lane's first sum, and the first of its four columns; the next lie 16 further."""
    return i32(lane >> 2), i32(((lane & 1) << 3) + ((lane & 2) << 1))


def _fours(column_sums):
    @device
    def take(total, i, j):
        """The j-th four sums of a thread's row i."""
        n = i * column_sums + QUAD * j
        return total[n], total[n + 1], total[n + 2], total[n + 3]

    return take, None


def _lanes(row_sums, column_sums):
    """On tensor cores: such a function, and one to call before it.

    A lane holds pairs of neighbours, and of two blocks side by side it gives away one pair for its neighbour's: so each
    has four neighbours of a row. All lanes of the warp take part, before any of them leaves their way.
    """
    column_blocks, pairs = column_sums // 2, column_sums // 4

    @device
    def take(total, i, j):
        """Those of the row 8*i further than a lane's first one, in the j-th 16 columns."""
        n = (i // 2 * column_blocks + 2 * j) * 4 + i % 2 * 2
        return total[n], total[n + 1], total[n + 4], total[n + 5]

    @device
    def exchange(total):
        odd = (cuda.threadIdx.x & 1) != 0
        for i in range(row_sums):
            unroll(0)
            for j in range(pairs):
                unroll(0)
                n, (a, b, c, d) = (i // 2 * column_blocks + 2 * j) * 4 + i % 2 * 2, take(total, i, j)
                one, two = cuda.shfl_xor_sync(ALL, a if odd else c, 1), cuda.shfl_xor_sync(ALL, b if odd else d, 1)
                total[n], total[n + 1] = one if odd else a, two if odd else b
                total[n + 4], total[n + 5] = c if odd else one, d if odd else two

    return take, exchange


# ---- the end ---------------------------------------------------------------------------------------------------------


def make_end(half, bare):
    """A function that finishes four neighbouring sums: bias, residual, ReLU, and one store where the place allows.

    bare: a bias or a residual never comes.
    """
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
        if not bare and flags & BIAS:
            added = read(bias, place, left)
        if not bare and flags & RESIDUAL:
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


@device
def same(number, tables, of, size):
    """The target where results, such as rows of a product or of dw, lie as they are counted."""
    return number


def make_write(half, row_sums, column_sums, rows_apart, target=same, bare=False, lanes=False):
    """A function that writes the sums of a thread, row_sums x column_sums, four by four.

    lanes: they are products of tensor cores, see _lanes
    """
    single, end, column_blocks = half is SINGLE, make_end(half, bare), column_sums // QUAD
    take, exchange = _lanes(row_sums, column_sums) if lanes else _fours(column_sums)

    @device
    def write(total, result, bias, residual, tables, of, row, apart, column, across, left, rows, sizes, flags):
        """From a row of the result on, neighbours so far apart, and from a column on, one block of columns so far
        `across` from the other. There are so many rows, and `left` columns are left.

        tables, of: what the target wants to know; it may put rows elsewhere, as pixels of a class of a convolution
        sizes: rows, for the target, and columns of the result; where its matrix begins, in elements
        """
        if lanes:
            exchange(total)
        least, scale = least_of(flags), i64(2 if not single and flags & SUMS else 1)
        bias = offset(bias, column)
        for i in range(row_sums):
            unroll(0)
            number = i32(row + (i // QUAD * rows_apart + i % QUAD) * apart)
            found = target(min(number, i32(rows - 1)), tables, of, sizes[0])
            place = i64(found) * i64(sizes[1]) + i64(column)
            here, beside = offset(result, i64(sizes[2] + place) * scale), offset(residual, sizes[2] + place)
            for j in range(column_blocks):
                unroll(0)
                four = take(total, i, j)
                if number < rows:
                    end(here, bias, beside, i32(j * across), four, i32(left - j * across), least, flags)

    return write
