"""What the tile rungs of the convolution and of its input gradient share.

Both directions are one gather. A source is read, x or g, and a result is made, out or dx; along either axis

    result[u * apart + first] = sum over t of source[u * step + base + t * reach] * filter[from + t * hop]

Forward      one class of pixels: u = i, step = stride, base = -padding, reach = dilation, and t = p counts all taps
Input grad   as many classes as there are residues modulo the stride: pixels h of one class meet the same taps, every
             hop-th one, and lie `stride` apart; from one of them to the next the source moves by one pixel

So a product is left: a row for each pixel of the class, in the order of memory, a column for each channel that is
made, and sums over t vertically, t horizontally and the channels that are read, the last ones fastest.

blockIdx.x counts tiles down the pixels, y tiles across the channels of a group, z classes, their groups, and slices
of the sums, the last ones fastest.
"""

from ..matmul.cuda_parts import BIAS, NOTHING, RELU, RESIDUAL, WIDE, bias_of, finish, least_of, residual4
from ..toolchain.cuda import cuda, device, f32, i32, i64, offset, store4, u32, unroll

__all__ = [
    "BASE", "BIAS", "COUNT", "FROM", "HOP", "MOST_TAPS", "NOTHING", "QUAD", "REACH", "RELU", "RESIDUAL",
    "SIGNATURE", "STEP", "STEPS", "TABLE", "TAPS", "WIDE", "advance", "bias_of", "find_step",
    "least_of", "make_classes", "make_own", "make_parts", "make_write", "signature_of", "split",
]  # fmt: skip

STEPS = 8  # of the sums in a tile
QUAD = 4  # floats in 128 bits
MOST_TAPS = 16  # of an axis: half of the bits of a word
MOST_TAPS_BIT = 1 << MOST_TAPS
TABLE = QUAD * MOST_TAPS * MOST_TAPS  # words of the table of taps
SIZES = (
    "i32 images, i32 source_h, i32 source_w, i32 source_c, i32 result_h, i32 result_w, i32 result_c, "
    "i32 filter_h, i32 filter_w, i32 stride_h, i32 stride_w, i32 padding_h, i32 padding_w, "
    "i32 dilation_h, i32 dilation_w, i32 groups"
)


def signature_of(pointer):
    """depth: steps of a slice of the sums, at most; slices: how many there are; flags: a sum of BIAS, RELU, WIDE ..."""
    arrays = ", ".join(f"{pointer} {name}" for name in ("source", "filters", "bias", "residual", "result"))
    return f"{arrays}, {SIZES}, i32 depth, i32 slices, i32 flags"


SIGNATURE = signature_of("f32*")


# An axis of one class, in the words of the formula above: a tuple of these. COUNT: its pixels.
COUNT, FIRST, APART, BASE, STEP, TAPS, FROM, HOP, REACH = range(9)


@device
def split(number, parts):
    """(number // parts, number % parts) of numbers that are not negative."""
    whole = i32(u32(u32(number) // u32(parts)))
    return whole, i32(number - i32(whole * parts))


@device
def forward_axis(residue, size, kernel, stride, padding, dilation):
    """The axis forward."""
    return size, i32(0), i32(1), i32(0 - padding), stride, kernel, i32(0), i32(1), dilation


@device
def adjoint_axis(residue, size, kernel, stride, padding, dilation):
    """The axis of the pixels h of dx with h + padding = residue modulo the stride."""
    hop = i32(1)
    while split(i32(hop * dilation), stride)[1] != 0:
        hop = i32(hop + 1)
    start = i32(0)  # the first tap that these pixels meet
    while start < min(hop, kernel) and split(i32(start * dilation), stride)[1] != residue:
        start = i32(start + 1)
    first = split(i32(residue + stride - split(padding, stride)[1]), stride)[1]
    moved = i32(start * dilation)
    base = i32(split(i32(first + padding + moved * (stride - 1)), stride)[0] - moved)
    taps = split(i32(kernel - start + hop - 1), hop)[0] if start < min(hop, kernel) else i32(0)
    pixels = split(i32(max(size - first, 0) + stride - 1), stride)[0]
    reach = i32(0 - split(i32(hop * dilation), stride)[0])
    return pixels, first, stride, base, i32(1), taps, start, hop, reach


@device
def find_step(step, channels):
    """(tap, channel) of a step of the sums; up to STEPS before the first one are steps as well."""
    tap, channel = split(i32(step + STEPS * channels), channels)
    return i32(tap - STEPS), channel


@device
def advance(step, by, channels):
    """The step so many further on, where both are what find_step gives. No division."""
    tap, channel = i32(step[0] + by[0]), i32(step[1] + by[1])
    if channel >= channels:
        tap, channel = i32(tap + 1), i32(channel - channels)
    return tap, channel


def make_classes(adjoint):
    """Functions of a direction: its axis, and where pixels of a class lie."""
    axis = adjoint_axis if adjoint else forward_axis

    @device
    def pixel(number, vertical, horizontal):
        """(image, row, column) of a pixel of the class."""
        rest, column = split(number, horizontal[COUNT])
        image, row = split(rest, vertical[COUNT])
        return image, row, column

    @device
    def target(number, vertical, horizontal, size):
        """The number of a pixel of the class in the result."""
        if adjoint and (vertical[APART] != 1 or horizontal[APART] != 1):
            image, row, column = pixel(number, vertical, horizontal)
            row = i32(image * size[0] + vertical[FIRST] + row * vertical[APART])
            return i32(row * size[1] + horizontal[FIRST] + column * horizontal[APART])
        return number

    return axis, pixel, target


def make_parts(adjoint, rows, copies, apart, threads, tile_steps=STEPS):
    """Functions of a direction, for tiles of so many rows of which a thread copies some that lie so far apart."""
    axis, pixel, target = make_classes(adjoint)

    @device
    def prepare(images, result, kernel, stride, padding, dilation, channels, groups, depth, slices):
        """(axes, group and slice, channels of a group, pixels and first tile of the sums): the work of this block.

        result: its height and width; channels: of source and result, those of all groups
        """
        rest, part = split(i32(cuda.blockIdx.z), slices)
        rest, group = split(rest, groups)
        down, across = split(rest, stride[1]) if adjoint else (i32(0), i32(0))
        vertical = axis(down, result[0], kernel[0], stride[0], padding[0], dilation[0])
        horizontal = axis(across, result[1], kernel[1], stride[1], padding[1], dilation[1])
        pixels = i32(images * i32(vertical[COUNT] * horizontal[COUNT]))
        reads, makes = split(channels[0], groups)[0], split(channels[1], groups)[0]
        most = i32(i32(vertical[TAPS] * horizontal[TAPS]) * reads)
        steps = max(min(depth, i32(most - part * depth)), 0)
        tiles = i32(u32(max(steps, 1) + (tile_steps - 1)) // u32(tile_steps))
        first = i32(part * depth + steps - tiles * tile_steps)  # the first tile takes what the others leave over
        return vertical, horizontal, (group, part), (reads, makes), (pixels, tiles, first)

    @device
    def write_taps(taps, vertical, horizontal, width, channels, filter_w, channel):
        """Write the table: of each tap how far it lies from where a pixel begins, its bits, and its filter.

        width, channels: of the source; channel: from a filter of the tap to the next, in elements
        """
        number = i32(cuda.threadIdx.x)
        while number < max(i32(vertical[TAPS] * horizontal[TAPS]), 1):  # one entry in any case: it may be looked at
            p, q = split(number, max(horizontal[TAPS], 1))
            further = i32(i32(i32(p * vertical[REACH]) * width + q * horizontal[REACH]) * channels)
            bits = u32(u32(1 << p) | u32(MOST_TAPS_BIT << q))
            filters = i32(i32(vertical[FROM] + p * vertical[HOP]) * filter_w + horizontal[FROM] + q * horizontal[HOP])
            store4(taps, QUAD * number, (further, i32(bits), i32(filters * channel), i32(0)))
            number = i32(number + threads)

    @device
    def find_pixels(at, outside, line, pixels, vertical, horizontal, size, channels, channel):
        """Of each pixel that a thread copies: where it begins in the source, and the bits of the taps that lie outside.

        size: height and width of the source. Pixels beyond the last are the last: nobody writes those.
        """
        for j in range(copies):
            unroll(0)
            number = min(i32(cuda.blockIdx.x * rows + line + j * apart), i32(pixels - 1))
            image, row, column = pixel(number, vertical, horizontal)
            h, v = i32(row * vertical[STEP] + vertical[BASE]), i32(column * horizontal[STEP] + horizontal[BASE])
            at[j] = i32(i32(i32(i32(image * size[0] + h) * size[1]) + v) * channels + channel)
            bits, bit = u32(0), u32(1)
            for _ in range(vertical[TAPS]):
                unroll(1)
                bits = bits if u32(h) < u32(size[0]) else u32(bits | bit)
                h, bit = i32(h + vertical[REACH]), u32(bit << 1)
            bit = u32(MOST_TAPS_BIT)
            for _ in range(horizontal[TAPS]):
                unroll(1)
                bits = bits if u32(v) < u32(size[1]) else u32(bits | bit)
                v, bit = i32(v + horizontal[REACH]), u32(bit << 1)
            outside[j] = bits

    return prepare, write_taps, find_pixels, target


def make_write(row_sums, column_sums, rows_apart, target, adjoint):
    """A function that writes the sums of a thread, row_sums x column_sums, in blocks of 4 x 4.

    Forward may add a residual.
    """
    column_blocks = column_sums // QUAD

    @device
    def write_four(total, added, start, first, j, place, left, least, flags):
        if flags & WIDE:
            if place < left:
                four = (
                    finish(total[first], added[j * QUAD], least),
                    finish(total[first + 1], added[j * QUAD + 1], least),
                    finish(total[first + 2], added[j * QUAD + 2], least),
                    finish(total[first + 3], added[j * QUAD + 3], least),
                )
                store4(start, place, four)
        else:
            for i in range(QUAD):
                unroll(0)
                if place + i < left:
                    start[place + i] = finish(total[first + i], added[j * QUAD + i], least)

    @device
    def join(total, added, beside, row, apart, across, pixels, left, vertical, horizontal, sizes, flags):
        """Add the bias, and the residual, which begins at beside, to the sums, so that nothing is to be added later."""
        for i in range(row_sums):
            unroll(0)
            number = i32(row + (i // QUAD * rows_apart + i % QUAD) * apart)
            if number < pixels:
                here = offset(beside, i64(i32(target(number, vertical, horizontal, sizes) * sizes[2])))
                for j in range(column_blocks):
                    unroll(0)
                    place = i32(j * across)
                    four = residual4(here, place, i32(left - place), flags)
                    for e in range(QUAD):
                        unroll(0)
                        more = four[0] if e == 0 else four[1] if e == 1 else four[2] if e == 2 else four[3]
                        at = i * column_sums + j * QUAD + e
                        total[at] = total[at] + added[j * QUAD + e] + more
        for j in range(column_sums):
            unroll(0)
            added[j] = f32(NOTHING)

    @device
    def write(
        total, start, bias, beside, row, apart, column, across, pixels, left, vertical, horizontal, sizes, flags
    ):  # fmt: skip
        """From pixel `row` of the class on, neighbours so far apart, and from channel `column` on, one block of columns
        so far `across` from the other; `left` channels are left in the group.

        start, beside: where that channel of the first pixel lies in the result, and in the residual
        sizes: height, width and channels of the result
        """
        least = least_of(flags)
        added = cuda.local.array(column_sums, f32)
        for j in range(column_sums):
            unroll(0)
            place = i32(j // QUAD * across + j % QUAD)
            added[j] = bias_of(bias, column + place, flags) if place < left else f32(0)
        if not adjoint and flags & RESIDUAL:
            join(total, added, beside, row, apart, across, pixels, left, vertical, horizontal, sizes, flags)
        for i in range(row_sums):
            unroll(0)
            number = i32(row + (i // QUAD * rows_apart + i % QUAD) * apart)
            if number < pixels:
                found = target(number, vertical, horizontal, sizes)
                here = offset(start, i64(i32(found * sizes[2])))
                for j in range(column_blocks):
                    unroll(0)
                    write_four(total, added, here, i * column_sums + j * QUAD, j, i32(j * across), left, least, flags)

    return write


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
