"""Rungs for layers whose tiles would be mostly empty: images of one channel, and weight gradients of few rows or columns.

Images are not copied to shared memory: what other taps read again lies in the first cache by then.
"""

from ..toolchain.cuda import (
    cuda,
    device,
    f32,
    i32,
    i64,
    kernel,
    load2_words,
    load4,
    offset,
    outer_product,
    store2_words,
    store4,
    u32,
    unroll,
)
from ..toolchain.cuda.halves import SINGLE
from .cuda_gather import QUAD, TABLE, blocks_of, class_of, make_gather, make_write, signature_of, split

__all__ = ["MOST", "THREADS", "WEIGHT_DIRECT", "WIDEST", "direct", "pixels_of", "run_of", "shares_of", "width_of"]

# ---- forward, images of one channel ----------------------------------------------------------------------------------

THREADS = 128
PIXELS, MADE = 4, 8  # of a thread: pixels, and channels that it makes of each
SUMS = PIXELS * MADE
WIDEST = 64  # channels that a block makes
MOST = (48 << 10) - 4 * TABLE  # bytes of filters in shared memory


def width_of(makes):
    """Channels that a block makes of a group that makes so many, counted with those that nobody needs."""
    return min(blocks_of(makes, MADE) * MADE, WIDEST)


def pixels_of(makes):
    """Pixels that a block makes."""
    return THREADS * MADE // width_of(makes) * PIXELS


begin, copy_taps, find_pixels, target = make_gather(False, PIXELS, THREADS, 1)
write = make_write(SINGLE, PIXELS, MADE, 0, target, False)


@kernel(signature_of("f32*"), threads=THREADS, blocks=4, opcodes=("STG.E.128",))
def direct(
    source, filters, bias, residual, result, tables, images, source_size, source_c, result_size, result_c, reads,
    makes, groups, depth, slices, flags,
):  # fmt: skip
    """One idea: sums so short that a block holds all its filters, so only they need shared memory.

    Each thread makes 8 channels of 4 pixels. Those of a warp that make other channels of the same pixel read the
    same words of x; other taps read them again while they are in the first cache.

    Traffic    x is read once for each tap and each 64 channels, w once for each block
    Resources  up to 48 KB of shared memory; one barrier
    """
    tile, taps = cuda.shared.array(0, f32, alignment=16), cuda.shared.array(TABLE, i32, alignment=16)
    total, read = cuda.local.array(SUMS, f32), cuda.local.array(PIXELS, f32)
    at, outside = cuda.local.array(PIXELS, i32), cuda.local.array(PIXELS, u32)
    of, _, (pixels, steps, _) = begin(tables, images, reads, groups, depth, slices)
    copy_taps(taps, tables, of)
    column = i32(cuda.blockIdx.y * WIDEST)
    left = i32(makes - column)
    eighths = i32(u32(min(left, WIDEST) + (MADE - 1)) // u32(MADE))
    width, across, number = i32(eighths * MADE), i32(eighths * QUAD), i32(cuda.threadIdx.x)
    while number < i32(steps * width):  # a row of the filters for each step; channels that are not there are zeros
        step, place = split(number, width)
        tile[u32(number)] = filters[i64(i32(step * result_c + i32(column + place)))] if place < left else f32(0)
        number = i32(number + THREADS)
    cuda.syncthreads()

    together = split(i32(THREADS), eighths)[0]
    row, eighth = split(i32(cuda.threadIdx.x), eighths)
    if row >= together:  # threads left over
        return
    row = i32(cuda.blockIdx.x * i32(together * PIXELS) + row)
    find_pixels(at, outside, row, together, pixels, tables, of, source_size, i32(0))
    for i in range(SUMS):
        total[i] = f32(0)
    place, number = i32(eighth * QUAD), i32(0)
    while number < steps:
        tap = load4(taps, QUAD * number)
        for j in range(PIXELS):
            unroll(0)
            inside = u32(outside[j] & u32(tap[1])) == u32(0)
            read[j] = source[i64(i32(at[j] + tap[0]))] if inside else f32(0)
        four = read[0], read[1], read[2], read[3]
        outer_product(total, four, load4(tile, place) + load4(tile, i32(place + across)))
        place, number = i32(place + width), i32(number + 1)
    column, left = i32(column + eighth * QUAD), i32(left - eighth * QUAD)
    write(
        total, result, bias, residual, tables, of, row, together, column, across, left, pixels,
        (result_size, result_c, i64(0)), flags,
    )  # fmt: skip


# ---- weight gradient -------------------------------------------------------------------------------------------------

ROWS, WEIGHT_SUMS = 9, 9 * QUAD  # of dw in each thread
MOST_THREADS, MOST_LANES, MOST_ACROSS = 256, 64, 16  # of a block; along the rows and along the columns of dw
TURNS = 4  # pixels that a lane has at hand together
FOURS = TURNS * QUAD
TOGETHER = TURNS * MOST_LANES  # pixels that a block finds at once
WORDS = 2 * TOGETHER
_, _, find_pixel, _ = make_gather(False, 1, MOST_THREADS, 1)


def shares_of(rows, columns):
    """(threads down, across, lanes, blocks) that own so much of dw; lanes are a power of 2."""
    down, across = blocks_of(rows, ROWS), blocks_of(columns, QUAD)
    chunks = blocks_of(down, MOST_ACROSS), blocks_of(across, MOST_ACROSS)
    down, across = blocks_of(down, chunks[0]), blocks_of(across, chunks[1])
    lanes = 1 << min(MOST_THREADS // (down * across), MOST_LANES).bit_length() - 1
    return down, across, lanes, chunks[0] * chunks[1]


def run_of(w_shape, dilation, quads):
    """How many rows of dw, from a multiple of that on, are neighbours in x: 3 if that can be, or 1.

    quads: whether four columns of g can be read at once; where not, 1
    """
    channels, _, width = w_shape[1:]
    return 3 if quads and (channels % 3 == 0 or (channels * width % 3 == 0 and dilation[1] == 1)) else 1


def _weight_direct(run):
    @device
    def add(total, x, spot, to, outside, bit, four, t, whole):
        """The products of a lane's pixel t, which begins at `spot`; whole: no tap of it lies outside."""
        for r in range(ROWS):
            unroll(0)
            near = offset(x, i64(i32(i32(spot) + to[r - r % run])))
            value = near[r % run] if whole or u32(outside & bit[r]) == u32(0) else f32(0)
            for e in range(QUAD):
                unroll(0)
                total[r * QUAD + e] += value * four[QUAD * t + e]

    sizes = "pixels depth rows filters channels x_size g_c down across lanes".split()
    signature = f"f32* x, f32* g, f32* out, i32* tables, {', '.join(f'i32 {name}' for name in sizes)}"

    @kernel(signature, threads=MOST_THREADS, blocks=2, opcodes=("LDG.E.128",) * (run == 3), variant=str(run))
    def weight_direct(
        x, g, out, tables, pixels, depth, rows, filters, channels, x_size, g_c, down, across, lanes,
    ):  # fmt: skip
        """One idea: threads share out the pixels too, so one block has the sums of all of a small dw.

        The block finds 256 pixels at a time, which the lanes take in turn. The threads of a lane own 9 rows and 4
        columns of dw each; in the end the sums of the lanes are added, half of them to the others, again and again.

        Traffic    x is read once for each tap, mostly from the first cache, and g once, by a block that owns all of dw
        Resources  36 sums and four quads of g in registers, the sums of half the lanes in shared memory
        """
        memory, table = cuda.shared.array(0, f32, alignment=16), cuda.shared.array(WORDS, u32, alignment=16)
        total, four = cuda.local.array(WEIGHT_SUMS, f32), cuda.local.array(FOURS, f32)
        to, bit = cuda.local.array(ROWS, i32), cuda.local.array(ROWS, u32)
        at, outside = cuda.local.array(1, i32), cuda.local.array(1, u32)
        unit, group, chunk = i32(down * across), i32(cuda.blockIdx.z), i32(down * ROWS)
        block_across, block_down = split(cuda.blockIdx.x, u32(u32(rows + chunk - 1) // u32(chunk)))
        lane, member = split(cuda.threadIdx.x, unit)
        row, column = split(member, across)
        row, column = i32(block_down * chunk + row * ROWS), i32(i32(block_across * across + column) * QUAD)
        of = class_of(tables, 0)
        for r in range(ROWS):
            unroll(0)
            tap, c = split(i32(min(row + (r - r % run), rows - run) + r % run), channels)
            entry = load4(tables, i32(QUAD * i32(of[5] + tap)))
            to[r], bit[r] = i32(entry[0] + c), u32(entry[1])
        for i in range(WEIGHT_SUMS):
            total[i] = f32(0)

        first, columns = i32(cuda.blockIdx.y * depth), i32(filters - column)
        left = min(depth, i32(pixels - first))
        while left > 0:
            cuda.syncthreads()
            k = i32(cuda.threadIdx.x)
            while k < TOGETHER:
                find_pixel(at, outside, i32(first + k), 0, pixels, tables, of, x_size, i32(group * channels))
                store2_words(table, 2 * k, (u32(at[0]), outside[0]))
                k = i32(k + cuda.blockDim.x)
            cuda.syncthreads()
            k, place, step = lane, i32(i32(first + lane) * g_c + i32(group * filters + column)), i32(lanes * g_c)
            while k < min(left, TOGETHER):
                for t in range(TURNS):
                    unroll(0)
                    many = columns if i32(k + t * lanes) < left else i32(0)
                    if run == 3:
                        quad = load4(g, i32(place + t * step)) if many > 0 else (f32(0), f32(0), f32(0), f32(0))
                        four[4 * t], four[4 * t + 1], four[4 * t + 2], four[4 * t + 3] = quad
                    else:
                        for e in range(QUAD):
                            unroll(0)
                            four[4 * t + e] = g[i32(place + t * step) + e] if e < many else f32(0)
                for t in range(TURNS):
                    unroll(0)
                    spot, nothing = load2_words(table, 2 * i32(k + t * lanes))
                    if i32(k + t * lanes) < left:
                        if nothing == u32(0):
                            add(total, x, spot, to, nothing, bit, four, t, True)
                        else:
                            add(total, x, spot, to, nothing, bit, four, t, False)
                k, place = i32(k + TURNS * lanes), i32(place + TURNS * step)
            first, left = i32(first + TOGETHER), i32(left - TOGETHER)

        half = i32(lanes >> 1)
        while half > 0:
            cuda.syncthreads()
            if half <= lane and lane < 2 * half:
                for i in range(WEIGHT_SUMS):
                    unroll(0)
                    memory[u32(i32(i * half + lane - half) * unit + member)] = total[i]
            cuda.syncthreads()
            if lane < half:
                for i in range(WEIGHT_SUMS):
                    unroll(0)
                    total[i] += memory[u32(i32(i * half + lane) * unit + member)]
            half = i32(half >> 1)
        if lane == 0:
            start = offset(out, i64(cuda.blockIdx.y) * i64(rows) * i64(g_c) + i64(group * filters + column))
            for r in range(ROWS):
                unroll(0)
                here = offset(start, i64(i32(row + r)) * i64(g_c))
                if i32(row + r) < rows:
                    if run == 3:
                        if columns > 0:
                            k = r * QUAD
                            store4(here, 0, (total[k], total[k + 1], total[k + 2], total[k + 3]))
                    else:
                        for e in range(QUAD):
                            unroll(0)
                            if e < columns:
                                here[e] = total[r * QUAD + e]

    return weight_direct


WEIGHT_DIRECT = {run: _weight_direct(run) for run in (1, 3)}  # neighbours in x that a thread reads
