"""Rung 3 of the convolution and of its gradients: a block of sums in the registers of each thread.

Images are not copied to shared memory: what other taps and channels read again lies in the first cache by then. So this
rung suits layers whose tiles would be mostly empty, of few channels, and channels that no 128-bit load suits.
"""

from ..matmul.cuda_end import WIDE, make_write, same
from ..matmul.plan import blocks_of
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, outer_product, u32, unroll
from ..toolchain.cuda.halves import SINGLE
from ..toolchain.cuda.intrinsics import load2_words, store2_words
from .cuda_gather import QUAD, TABLE, advance, class_of, find_step, make_gather, signature_of, split

# ---- forward and input gradient --------------------------------------------------------------------------------------

THREADS = 128
PIXELS, MADE = 4, 8  # of a thread: pixels, and channels that it makes of each
SUMS = PIXELS * MADE
WIDEST = 64  # channels that a block makes
ROOM = (48 << 10) // 4 - TABLE  # floats of filters in shared memory


def width_of(makes):
    """Channels that a block makes of a group that makes so many, counted with those that nobody needs."""
    return min(blocks_of(makes, MADE) * MADE, WIDEST)


def pixels_of(makes):
    """Pixels that a block makes."""
    return THREADS * MADE // width_of(makes) * PIXELS


def shared_of(makes, steps):
    """Bytes of dynamic shared memory: the filters, or as many steps of them as have room."""
    width = width_of(makes)
    return 4 * width * min(steps, ROOM // width)


def make_register(adjoint):
    """The rung of a direction."""
    begin, copy_taps, find_pixels, target = make_gather(adjoint, PIXELS, THREADS, 1)
    write = make_write(SINGLE, PIXELS, MADE, 0, target, adjoint)

    @device
    def copy_filters(tile, filters, taps, first, last, width, left, reads, column_apart, step_apart):
        """A row of `width` channels for each of these steps; channels that are not there are zeros."""
        number = i32(cuda.threadIdx.x)
        while number < i32(i32(last - first) * width):
            step, place = split(number, width)
            here = i32(i32(first + step) * step_apart + place * column_apart)
            if adjoint:
                tap, channel = split(i32(first + step), reads)
                here = i32(taps[QUAD * tap + 2] + i32(channel + place * column_apart))
            tile[u32(number)] = filters[i64(here)] if place < left else f32(0)
            number = i32(number + THREADS)

    @kernel(
        signature_of("f32*"), threads=THREADS, blocks=4, opcodes=("STG.E.128",),
        variant="input_grad" if adjoint else "forward",
    )  # fmt: skip
    def register(
        source, filters, bias, residual, result, tables, images, source_size, source_c, result_size, result_c, reads,
        makes, groups, depth, slices, flags,
    ):  # fmt: skip
        """One idea: a thread makes 8 channels of 4 pixels, so each number that it reads serves several sums.

        Filters come from shared memory, which a block shares. Threads of a warp that make other channels of the same
        pixel read the same words of the source.

        A thread works out once where its pixels begin and which taps lie outside; a table in shared memory says how far
        a tap lies from there.

        Traffic    the source is read once for each tap and each 64 channels, the filters once for each block
        Resources  up to 48 KB of shared memory; two barriers for as many steps of the filters as have room there
        """
        tile, taps = cuda.shared.array(0, f32, alignment=16), cuda.shared.array(TABLE, i32, alignment=16)
        total, read = cuda.local.array(SUMS, f32), cuda.local.array(PIXELS, f32)
        at, outside = cuda.local.array(PIXELS, i32), cuda.local.array(PIXELS, u32)
        here, missing = cuda.local.array(PIXELS, i32), cuda.local.array(PIXELS, u32)
        of, (group, part), (pixels, steps, first) = begin(tables, images, reads, groups, depth, slices)
        copy_taps(taps, tables, of)
        column = i32(cuda.blockIdx.y * WIDEST)
        left = i32(makes - column)
        eighths = i32(u32(min(left, WIDEST) + (MADE - 1)) // u32(MADE))
        width, across = i32(eighths * MADE), i32(eighths * QUAD)
        together = split(i32(THREADS), eighths)[0]
        row, eighth = split(i32(cuda.threadIdx.x), eighths)
        row = i32(cuda.blockIdx.x * i32(together * PIXELS) + row) if row < together else pixels  # threads left over
        find_pixels(at, outside, row, together, pixels, tables, of, source_size, i32(group * reads))
        for i in range(SUMS):
            total[i] = f32(0)

        last, first = i32(first + steps), i32(part * depth)
        if adjoint:
            filters = offset(filters, i64(i32(i32(column * source_c) + group * reads)))
        else:
            filters = offset(filters, i64(i32(column + group * makes)))
        step, room = find_step(first, reads), split(i32(ROOM), width)[0]
        while first < last:
            end, place = min(last, i32(first + room)), i32(eighth * QUAD)
            cuda.syncthreads()
            column_apart = source_c if adjoint else i32(1)
            copy_filters(tile, filters, taps, first, end, width, left, reads, column_apart, result_c)
            cuda.syncthreads()
            while first < end:
                tap, count = load4(taps, QUAD * step[0]), min(i32(reads - step[1]), i32(end - first))
                for j in range(PIXELS):
                    unroll(0)
                    here[j], missing[j] = i32(at[j] + i32(tap[0] + step[1])), u32(outside[j] & u32(tap[1]))
                for c in range(count):
                    unroll(1)
                    for j in range(PIXELS):
                        unroll(0)
                        read[j] = source[i64(i32(here[j] + c))] if missing[j] == u32(0) else f32(0)
                    four = read[0], read[1], read[2], read[3]
                    outer_product(total, four, load4(tile, place) + load4(tile, i32(place + across)))
                    place = i32(place + width)
                step, first = advance(step, (i32(0), count), reads), i32(first + count)

        column, left = i32(column + eighth * QUAD), i32(left - eighth * QUAD)
        slice_first = i64(part) * i64(i32(images * result_size)) * i64(result_c)
        write(
            total, result, bias, residual, tables, of, row, together, i32(group * makes + column), across, left, pixels,
            (result_size, result_c, slice_first), flags,
        )  # fmt: skip

    return register


REGISTER = {adjoint: make_register(adjoint) for adjoint in (False, True)}

# ---- weight gradient -------------------------------------------------------------------------------------------------

ROWS, WEIGHT_SUMS = 9, 9 * QUAD  # of dw in each thread
MOST_THREADS, MOST_LANES, MOST_ACROSS = 256, 64, 16  # of a block; along the rows and along the columns of dw
TURNS = 4  # pixels that a lane has at hand together
FOURS = TURNS * QUAD
TOGETHER = TURNS * MOST_LANES  # pixels that a block finds at once
WORDS = 2 * TOGETHER
_, _, find_pixel, _ = make_gather(False, 1, MOST_THREADS, 1)
write = make_write(SINGLE, ROWS, QUAD, QUAD, same, True)


def shares_of(rows, columns):
    """(threads down, across, lanes, blocks) that own so much of dw; lanes are a power of 2."""
    down, across = blocks_of(rows, ROWS), blocks_of(columns, QUAD)
    chunks = blocks_of(down, MOST_ACROSS), blocks_of(across, MOST_ACROSS)
    down, across = blocks_of(down, chunks[0]), blocks_of(across, chunks[1])
    lanes = 1 << min(MOST_THREADS // (down * across), MOST_LANES).bit_length() - 1
    return down, across, lanes, chunks[0] * chunks[1]


def run_of(channels, width, dilation, quads):
    """How many rows of dw, from a multiple of that on, are neighbours in x: 3 if that can be, or 1.

    width: taps in a row; quads: whether four columns of g can be read at once; where not, 1
    """
    return 3 if quads and (channels % 3 == 0 or (channels * width % 3 == 0 and dilation[1] == 1)) else 1


def _weight_register(run):
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
    def weight_register(
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
        slice_first = i64(cuda.blockIdx.y) * i64(rows) * i64(g_c)
        if lane == 0:
            write(
                total, out, out, out, out, out, row, 1, i32(group * filters + column), 0, columns, rows,
                (rows, g_c, slice_first), i32(WIDE if run == 3 else 0),
            )  # fmt: skip

    return weight_register


WEIGHT_REGISTER = {run: _weight_register(run) for run in (1, 3)}  # neighbours in x that a thread reads
