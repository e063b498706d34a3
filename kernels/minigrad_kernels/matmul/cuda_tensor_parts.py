"""What both rungs of the matrix product on tensor cores share: their arguments, the tile of a block, the end."""

from ..toolchain.cuda import bf16x2, bits, cuda, device, f16x2, f32, i32, i64, offset, store2_words, u16, u32, unroll
from .cuda_fragments import SUMS
from .cuda_parts import BIAS, NOTHING, RESIDUAL, WIDE, finish, least_of

__all__ = ["make_end", "signature_of", "tile_of"]

GROUP = 8  # rows of tiles that blocks work through together, so that what they read stays in the second cache
ALL = 0xFFFFFFFF  # lanes of a warp
PACK = {"float16": f16x2, "bfloat16": bf16x2}


def signature_of(core):
    """The arguments: those of the other rungs, but strides of 64 bits; with the flag SUMS, out is float32."""
    kind = core.half.pointer
    return (
        f"{kind} a, {kind} b, {kind} bias, {kind} residual, {kind} out, i32 m, i32 n, i32 k, i32 depth, i32 slices, "
        "i64 a_m, i64 a_k, i64 b_k, i64 b_n, i64 a_z, i64 b_z, i64 out_z, i32 flags"
    )


@device
def tile_of(m, n, rows, columns):
    """The first row and column of this block's tile.

    blockIdx.x counts down GROUP tiles, then through the columns, then on to the next GROUP rows of tiles: so blocks
    that run at the same time read few different rows and columns.
    """
    down, across = u32(u32(m + (rows - 1)) // u32(rows)), u32(u32(n + (columns - 1)) // u32(columns))
    number, area = u32(cuda.blockIdx.x), u32(across * u32(GROUP))
    group = u32(number // area)
    rest, first = u32(number - u32(group * area)), u32(group * u32(GROUP))
    height = min(u32(down - first), u32(GROUP))
    column = u32(rest // height)
    row = u32(first + u32(rest - u32(column * height)))
    return i32(row * u32(rows)), i32(column * u32(columns))


# ---- the end ---------------------------------------------------------------------------------------------------------
# A lane holds two neighbours of a row in each block of 8 rows by 8 columns: those of the row of its group, lane // 4.


@device
def _put_floats(start, place, x, y, left):
    """As two floats where memory has elements of 16 bits; they may lie at odd multiples of 4 bytes."""
    for i in range(2):
        unroll(0)
        word = bits(y if i else x)
        if place + i < left:
            start[2 * (place + i)] = u16(word & u32(0xFFFF))
            start[2 * (place + i) + 1] = u16(word >> u32(16))


@device
def _put_wide_floats(start, place, x, y, left):
    if place < left:
        store2_words(start, 2 * place, (bits(x), bits(y)))


@device
def _put_wide_singles(start, place, x, y, left):
    if place < left:
        store2_words(start, place, (bits(x), bits(y)))


def _make_put(narrow):
    @device
    def put(start, place, x, y, left):
        if place < left:
            start[place] = narrow(x)
        if place + 1 < left:
            start[place + 1] = narrow(y)

    return put


def _make_pairs(row_blocks, column_blocks, put, scale):
    """A function that writes the sums of a warp by a function that writes two neighbours of `scale` elements each."""

    @device
    def write(total, added, start, rows_left, left, n, least):
        for i in range(2 * row_blocks):
            unroll(0)
            for j in range(column_blocks):
                unroll(0)
                at = (i // 2 * column_blocks + j) * 4 + i % 2 * 2
                x, y = finish(total[at], added[2 * j], least), finish(total[at + 1], added[2 * j + 1], least)
                if 8 * i < rows_left:
                    put(start, 8 * j, x, y, left)
            start = offset(start, 8 * scale * i64(n))

    return write


def _make_fours(row_blocks, column_blocks, pack):
    """A function that writes the sums of a warp as elements of 16 bits, four neighbours at once.

    Of two blocks side by side, a lane with an even number gives away its pair of the right one for its neighbour's of
    the left one: so the lanes of a group write 32 bytes side by side.
    """

    @device
    def write(total, added, start, rows_left, left, n, least):
        odd = i32(cuda.threadIdx.x & 1)
        shift = i32(6 * odd)  # from this lane's pair of the left block to the four that it writes
        for i in range(2 * row_blocks):
            unroll(0)
            for j in range(0, column_blocks, 2):
                unroll(0)
                at = (i // 2 * column_blocks + j) * 4 + i % 2 * 2
                one = pack(finish(total[at + 1], added[2 * j + 1], least), finish(total[at], added[2 * j], least))
                two = pack(
                    finish(total[at + 5], added[2 * j + 3], least), finish(total[at + 4], added[2 * j + 2], least)
                )
                other, place = u32(cuda.shfl_xor_sync(ALL, i32(one if odd else two), 1)), i32(8 * j + shift)
                if 8 * i < rows_left and place < left:
                    store2_words(start, place, (other if odd else one, two if odd else other))
            start = offset(start, 8 * i64(n))

    return write


def _make_join(widen, row_blocks, column_blocks):
    """A function that adds the bias, and the residual, which begins at beside, so that nothing is to be added later."""

    @device
    def join(total, added, beside, rows_left, left, n):
        for i in range(2 * row_blocks):
            unroll(0)
            for j in range(2 * column_blocks):
                unroll(0)
                at, place = (i // 2 * column_blocks + j // 2) * 4 + i % 2 * 2 + j % 2, 8 * (j // 2) + j % 2
                if 8 * i < rows_left and place < left:
                    total[at] = total[at] + added[j] + widen(beside[place])
            beside = offset(beside, 8 * i64(n))
        for j in range(2 * column_blocks):
            unroll(0)
            added[j] = f32(NOTHING)

    return join


def make_end(core, row_blocks, column_blocks):
    """A function that adds bias and residual and writes the sums of a warp, whose first one has that row and column.

    Each way of writing has a loop of its own: a choice within the loops would take registers that the sums fill.
    """
    blocks, single, half, columns = (row_blocks, column_blocks), core.size == 4, core.half, 2 * column_blocks
    narrow = _make_pairs(*blocks, _make_put(half.narrow), 1)
    wide = _make_pairs(*blocks, _put_wide_singles, 1) if single else _make_fours(*blocks, PACK[half.name])
    floats, wide_floats = _make_pairs(*blocks, _put_floats, 2), _make_pairs(*blocks, _put_wide_floats, 2)
    widen, join = half.widen, _make_join(half.widen, *blocks)

    @device
    def end(total, out, bias, residual, row, column, m, n, out_z, flags):
        lane = i32(cuda.threadIdx.x & 31)
        row, column = i32(row + (lane >> 2)), i32(column + 2 * (lane & 3))
        rows_left, left, least = i32(m - row), i32(n - column), least_of(flags)
        added = cuda.local.array(columns, f32)
        for j in range(columns):
            unroll(0)
            place = j // 2 * 8 + j % 2
            added[j] = f32(0)
            if flags & BIAS and place < left:
                added[j] = widen(bias[column + place])
        start = i64(cuda.blockIdx.z) * out_z + i64(row) * i64(n) + i64(column)
        if flags & RESIDUAL:
            join(total, added, offset(residual, start), rows_left, left, n)
        if not single and flags & SUMS:
            if flags & WIDE:
                wide_floats(total, added, offset(out, 2 * start), rows_left, left, n, least)
            else:
                floats(total, added, offset(out, 2 * start), rows_left, left, n, least)
        elif flags & WIDE:
            wide(total, added, offset(out, start), rows_left, left, n, least)
        else:
            narrow(total, added, offset(out, start), rows_left, left, n, least)

    return end
