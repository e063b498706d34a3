"""Rung 4 of the weight gradient: for few rows or few columns of dw, whose sums fit into the registers of one block."""

from ..matmul.cuda_vector import QUAD
from ..toolchain.cuda import (
    cuda,
    device,
    f32,
    i32,
    i64,
    kernel,
    load4,
    offset,
    outer_product,
    store4,
    u32,
    u64,
    unroll,
)
from .cuda_weight_fold import make_fold
from .cuda_weight_parts import FAR, SHAPES, lead, output, split
from .cuda_weight_tile import MOST_PIXELS, ROWS, THREADS, TURNS

__all__ = ["DIRECT"]

TABLE, SUMS = MOST_PIXELS * 4, ROWS * QUAD
# tiles: of all images; share: of a slice; tiles_h, tiles_w: of an image; patch_h, patch_w: what a tile reads of x
TILES = "i32 tiles, i32 share, i32 tiles_h, i32 tiles_w, i32 tile_h, i32 tile_w, i32 patch_h, i32 patch_w"
SIGNATURE = f"f32* x, f32* g, f32* out, {SHAPES}, {TILES}, i32 down, i32 across, i32 lanes, i32 padded"


@device
def fill_pixels(table, tile_h, tile_w, patch_w, sizes, padded):
    """For each pixel of a tile: where it reads the patch, where g has it, its row and column; then some far away."""
    channels, out_w, out_c, stride_h, stride_w = sizes
    k = i32(cuda.threadIdx.x)
    while k < padded:
        i, j = split(k, tile_w)
        there = i32(i32(i32(i * stride_h) * patch_w + i32(j * stride_w)) * channels)
        row = i if i < tile_h else i32(FAR)
        store4(table, i32(k * 4), (there, i32(i32(i * out_w + j) * out_c), row, j))
        k = i32(k + cuda.blockDim.x)


@device
def copy(x, memory, first_h, first_w, patch_h, patch_w, channels, in_h, in_w, in_c):
    """Copy a patch of x, which begins at this image and group, to shared memory, zeros where it lies outside.

    first_h, first_w: where the patch begins in x
    """
    length = i32(patch_w * channels)  # of a row of the patch
    part, k = split(cuda.threadIdx.x, length)
    parts = max(i32(u32(u32(cuda.blockDim.x) // u32(length))), i32(1))
    while k < length and part < parts:
        w, c = split(k, channels)
        w, row = i32(w + first_w), part
        place = i32(i32(i32(first_h + row) * in_w + w) * in_c + c)
        to = i32(row * length + k)
        while row < patch_h:
            inside = u32(i32(first_h + row)) < u32(in_h) and u32(w) < u32(in_w)
            memory[u32(to)] = x[place] if inside else f32(0)
            row, to = i32(row + parts), i32(to + parts * length)
            place = i32(place + parts * in_w * in_c)
        k = i32(k + cuda.blockDim.x)


def _reads(run):
    """Functions that read a pixel's rows from the patch, and four of its columns of g."""

    @device
    def single_rows(patch, k, to):
        return (
            patch[u32(k + to[0])], patch[u32(k + to[1])], patch[u32(k + to[2])], patch[u32(k + to[3])],
            patch[u32(k + to[4])], patch[u32(k + to[5])], patch[u32(k + to[6])], patch[u32(k + to[7])],
            patch[u32(k + to[8])],
        )  # fmt: skip

    @device
    def three(patch, k):
        k = u64(i64(k))  # unsigned: no subscript counts from the end
        return patch[k], patch[k + u64(1)], patch[k + u64(2)]

    @device
    def triples_of_rows(patch, k, to):
        return three(patch, k + to[0]) + three(patch, k + to[1]) + three(patch, k + to[2])

    @device
    def columns_one_by_one(g, place, left):
        return (
            g[place] if left > 0 else f32(0),
            g[place + 1] if left > 1 else f32(0),
            g[place + 2] if left > 2 else f32(0),
            g[place + 3] if left > 3 else f32(0),
        )

    @device
    def columns_at_once(g, place, left):
        if left > 0:
            return load4(g, place)
        return f32(0), f32(0), f32(0), f32(0)

    return (triples_of_rows, columns_at_once) if run == 3 else (single_rows, columns_one_by_one)


def _places(run):
    """A function that gives where a thread's runs of rows lie in the patch, beside its pixel's place."""

    @device
    def one(row, rows, sizes):
        channels, taps_w, dilation_h, dilation_w, patch_w = sizes
        h, w, c = lead(min(row, rows - run), channels, taps_w, dilation_h, dilation_w, i32(0), i32(0))
        return i32(i32(i32(h * patch_w) + w) * channels + c)

    @device
    def three(row, rows, s):
        return one(row, rows, s), one(row + run, rows, s), one(row + 2 * run, rows, s)

    @device
    def nine(row, rows, s):
        return three(row, rows, s) + three(row + 3, rows, s) + three(row + 6, rows, s)

    return nine if run == 1 else three


def _turns(whole, read_rows, read_columns):
    """A function that adds the products of a lane's pixels of a tile, some of which lie outside if it is not whole."""

    @device
    def columns(g, first, entry, left, high, wide):
        return read_columns(g, i32(first + entry[1]), left if whole or entry[2] < high and entry[3] < wide else i32(0))

    @device
    def add(total, patch, entry, to, four, high, wide):
        """What lies in the place of pixels outside may be NaN."""
        if whole or (entry[2] < high and entry[3] < wide):
            outer_product(total, read_rows(patch, entry[0], to), four)

    @device
    def turns(total, patch, g, table, k, lanes, padded, to, first, left, high, wide):
        while k < padded:
            e0, e1 = load4(table, i32(k * 4)), load4(table, i32(i32(k + lanes) * 4))
            e2, e3 = load4(table, i32(i32(k + 2 * lanes) * 4)), load4(table, i32(i32(k + 3 * lanes) * 4))
            g0, g1 = columns(g, first, e0, left, high, wide), columns(g, first, e1, left, high, wide)
            g2, g3 = columns(g, first, e2, left, high, wide), columns(g, first, e3, left, high, wide)
            add(total, patch, e0, to, g0, high, wide)
            add(total, patch, e1, to, g1, high, wide)
            add(total, patch, e2, to, g2, high, wide)
            add(total, patch, e3, to, g3, high, wide)
            k = i32(k + TURNS * lanes)

    return turns


def _write(run):
    @device
    def write(total, out, row, column, rows, columns, out_c):
        for i in range(ROWS):
            unroll(0)
            k = i * QUAD
            if i32(row + i) < rows:
                if run == 3:
                    store4(out, i32(i * out_c), (total[k], total[k + 1], total[k + 2], total[k + 3]))
                else:
                    for j in range(QUAD):
                        unroll(0)
                        if i32(column + j) < columns:
                            out[i32(i * out_c) + j] = total[k + j]

    return write


def _direct(run):
    reads, places = _reads(run), _places(run)
    turns, turns_at_edge = _turns(True, *reads), _turns(False, *reads)
    fold, write = make_fold(ROWS), _write(run)

    @kernel(SIGNATURE, threads=THREADS, blocks=2, opcodes=("LDG.E.128",) * (run == 3), variant=str(run))
    def weight_direct(
        x, g, out, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
        tiles, share, tiles_h, tiles_w, tile_h, tile_w, patch_h, patch_w, down, across, lanes, padded,
    ):  # fmt: skip
        """One idea: threads share out the pixels too, so one block has the sums of all of a small dw.

        A block copies what a tile of pixels reads of x to shared memory, once for all taps, and g passes it by. The
        lanes take the pixels in turn; the threads of a lane own 9 rows and 4 columns each.

        Traffic    x and g are read once, but for the edges of the tiles, where a block owns all rows and columns
        Resources  36 sums and four quads of g in registers; a patch of x; two barriers a tile
        """
        memory, table = cuda.shared.array(0, f32, alignment=16), cuda.shared.array(TABLE, i32, alignment=16)
        total = cuda.local.array(SUMS, f32)
        fill_pixels(table, tile_h, tile_w, patch_w, (channels, out_w, out_c, stride_h, stride_w), padded)
        chunk, group = i32(down * ROWS), i32(cuda.blockIdx.z)
        block_across, block_down = split(cuda.blockIdx.x, u32(u32(rows + chunk - 1) // u32(chunk)))
        lane, member = split(cuda.threadIdx.x, i32(down * across))
        row, column = split(member, across)
        row, column = i32(block_down * chunk + row * ROWS), i32(i32(block_across * across + column) * QUAD)
        to = places(row, rows, (channels, taps_w, dilation_h, dilation_w, patch_w))
        left = i32(columns - column)
        for i in range(SUMS):
            total[i] = f32(0)

        tile = i32(cuda.blockIdx.y * share)
        tiles_left = min(share, i32(tiles - tile))
        while tiles_left > 0:
            line, first_w = split(tile, tiles_w)
            n, first_h = split(line, tiles_h)
            first_h, first_w = i32(first_h * tile_h), i32(first_w * tile_w)
            h, w = i32(first_h * stride_h - pad_h), i32(first_w * stride_w - pad_w)
            image = offset(x, i32(i32(n * in_h) * in_w * in_c + group * channels))
            cuda.syncthreads()  # nobody reads the last patch any more
            copy(image, memory, h, w, patch_h, patch_w, channels, in_h, in_w, in_c)
            cuda.syncthreads()
            first = i32(i32(i32(n * out_h + first_h) * out_w + first_w) * out_c + i32(group * columns + column))
            high, wide = i32(out_h - first_h), i32(out_w - first_w)
            if tile_h <= high and tile_w <= wide and padded == i32(tile_h * tile_w):
                turns(total, memory, g, table, lane, lanes, padded, to, first, left, high, wide)
            else:
                turns_at_edge(total, memory, g, table, lane, lanes, padded, to, first, left, high, wide)
            tile, tiles_left = i32(tile + 1), i32(tiles_left - 1)
        fold(memory, total, lane, lanes, member, i32(down * across))
        if lane == 0 and left > 0:
            start = offset(output(out, rows, out_c), i32(row * out_c + i32(group * columns + column)))
            write(total, start, row, column, rows, columns, out_c)

    return weight_direct


DIRECT = {run: _direct(run) for run in (1, 3)}  # neighbours in x that a thread reads; where three, g four at once
