"""What the rungs above the formula share: one gather for all directions, and its tables.

Forward and input gradient are one gather. A source is read, x or g, and a result is made, out or dx:

    result[pixel, made] = sum over taps t and channels r of source[place(pixel) + move(t) + r] * filter[t, r, made]

Forward      one class of pixels: all of them meet all taps
Input grad   a class for each residue of h + padding modulo the stride, as these pixels meet the same taps; from one
             pixel of a class to the next, the source moves by one pixel

So a product of matrices is left: A, a row for each pixel of the class, is gathered; B are the filters. Of the sums over
(t, r) the channels r come fastest. The weight gradient is A, gathered likewise from x, turned and multiplied by g:

    dw[(t, c), o] = sum over pixels of x[place(pixel) + move(t) + c] * g[pixel, o]

The host works out places, moves and what lies outside, row by row, column by column, tap by tap (`tables_of`): kernels
know neither stride nor padding nor dilation. A bit says that a tap of a pixel lies outside: bits 0 to 15 are vertical
taps, the others horizontal ones. Both a pixel and a tap have such bits, and where they share one nothing is read.

blockIdx.x counts tiles down the pixels, y tiles across the channels of a group, z classes, their groups, and slices of
the sums, the last ones fastest.
"""

from itertools import product

import numpy as np

from ..toolchain.cuda import cuda, device, i32, load4, store4, u32, unroll

QUAD = 4  # numbers in 128 bits, and in an entry of the tables
MOST_TAPS = 16  # of an axis: half of the bits of a word
TABLE = QUAD * MOST_TAPS * MOST_TAPS  # words of a class's taps in shared memory
BEFORE = 32  # steps that may come before the first one, at least as many as a tile has


# ---- tables, on the host ---------------------------------------------------------------------------------------------


def _classes(adjoint, source, result, kernel, stride, padding, dilation):
    """Of an axis, for each class: its pixels in the result, its taps, and what each pixel reads by each of them."""
    pixels, taps = np.arange(result), np.arange(kernel)
    if not adjoint:
        return [(pixels, taps, pixels[:, None] * stride - padding + taps * dilation)]
    found = []
    for residue in range(stride):
        own, met = pixels[(pixels + padding) % stride == residue], taps[taps * dilation % stride == residue]
        found.append((own, met, (own[:, None] + padding - met * dilation) // stride))
    return found


def tables_of(adjoint, source, result, kernel, stride, padding, dilation, apart):
    """Entries of four numbers, of which each class has

    two heads   (pixels down, across, taps, first tap), (first row, first column, 0, 0); the firsts are entries
    taps        (how far it lies from where a pixel begins, bits, its filter, 0)
    rows        (where its pixels begin in the image that is read, bits of the taps outside, the row in the result, 0)
    columns     the same

    Shapes  source, result: height, width and channels of an image; apart: elements from the filter of a tap to the next
    """
    axes = zip(source, result, kernel, stride, padding, dilation, strict=False)
    vertical, horizontal = (_classes(adjoint, *axis) for axis in axes)
    parts, ends = [], [2 * len(vertical) * len(horizontal)]

    def put(*columns):
        """Where these entries begin."""
        parts.append(np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, QUAD))
        ends.append(ends[-1] + len(parts[-1]))
        return ends[-2]

    def lines(classes, size, step, shift, apart):
        for pixels, taps, read in classes:
            outside = (((read < 0) | (read >= size)) << np.arange(len(taps))).sum(axis=1) << shift
            yield put(read[:, :1].sum(axis=1) * step, outside, pixels * apart, 0)

    down = list(lines(vertical, source[0], source[1] * source[2], 0, result[1]))
    right = list(lines(horizontal, source[1], source[2], MOST_TAPS, 1))
    heads = []
    for ((rows, p, h), row), ((columns, q, v), column) in product(
        zip(vertical, down, strict=True), zip(horizontal, right, strict=True)
    ):
        heads += [(len(rows), len(columns), len(p) * len(q), ends[-1]), (row, column, 0, 0)]
        if len(rows) and len(columns):
            further = ((h[0] - h[0, :1])[:, None] * source[1] + (v[0] - v[0, :1])) * source[2]
            p_bits, q_bits = 1 << np.arange(len(p)), 1 << MOST_TAPS << np.arange(len(q))
            put(further, p_bits[:, None] | q_bits, (p[:, None] * kernel[1] + q) * apart, 0)
    put(np.zeros(1, int), 0, 0, 0)  # one entry more may be looked at
    return np.concatenate([np.array(heads), *parts]).astype(np.int32)


# ---- the gather ------------------------------------------------------------------------------------------------------


def signature_of(pointer):
    """source_size: elements of an image that is read; result_size: pixels of one that is made; source_c, result_c:
    their channels; reads, makes: those of a group; depth: steps of a slice of the sums, at most; slices: how many there
    are; flags: a sum of BIAS, RELU, WIDE, ...
    """
    arrays = ", ".join(f"{pointer} {name}" for name in ("source", "filters", "bias", "residual", "result"))
    sizes = "images source_size source_c result_size result_c reads makes groups depth slices flags"
    return f"{arrays}, i32* tables, {', '.join(f'i32 {name}' for name in sizes.split())}"


@device
def split(number, parts):
    """(number // parts, number % parts) of numbers that are not negative."""
    whole = i32(u32(u32(number) // u32(parts)))
    return whole, i32(number - i32(whole * parts))


@device
def find_step(step, channels):
    """(tap, channel) of a step of the sums; up to BEFORE before the first one are steps as well."""
    tap, channel = split(i32(step + BEFORE * channels), channels)
    return i32(tap - BEFORE), channel


@device
def advance(step, by, channels):
    """The step so many further on, where both are what find_step gives. No division."""
    tap, channel = i32(step[0] + by[0]), i32(step[1] + by[1])
    if channel >= channels:
        tap, channel = i32(tap + 1), i32(channel - channels)
    return tap, channel


@device
def class_of(tables, number):
    """(pixels down, across, first row, first column, taps, first tap) of a class."""
    down, across, taps, first_tap = load4(tables, 2 * QUAD * number)
    first_row, first_column, _, _ = load4(tables, 2 * QUAD * number + QUAD)
    return down, across, first_row, first_column, taps, first_tap


def make_gather(adjoint, copies, threads, steps):
    """Functions of a direction, for blocks of so many threads, of which each copies so many lines of A, and tiles of so
    many steps.
    """

    @device
    def begin(tables, images, reads, groups, depth, slices):
        """(the class, its group and slice, its pixels, tiles and first step): the work of this block.

        The first tile takes what the sums leave over after whole tiles: all others are whole.
        """
        rest, part = split(i32(cuda.blockIdx.z), slices)
        number, group = split(rest, groups)
        of = class_of(tables, number)
        count = max(min(depth, i32(i32(of[4] * reads) - part * depth)), 0)
        tiles = i32(u32(max(count, 1) + (steps - 1)) // u32(steps))
        first = i32(part * depth + count - tiles * steps)
        return of, (group, part), (i32(images * i32(of[0] * of[1])), tiles, first)

    @device
    def copy_taps(to, tables, of):
        """The taps of the class to shared memory; one in any case, as it may be looked at."""
        number = i32(cuda.threadIdx.x)
        while number < max(of[4], 1):
            store4(to, QUAD * number, load4(tables, i32(QUAD * i32(of[5] + number))))
            number = i32(number + threads)

    @device
    def pixel_of(number, tables, of):
        """(its image, the entry of its row, that of its column)"""
        rest, column = split(number, of[1])
        image, row = split(rest, of[0])
        return image, load4(tables, i32(QUAD * i32(of[2] + row))), load4(tables, i32(QUAD * i32(of[3] + column)))

    @device
    def find_pixels(at, outside, first, apart, pixels, tables, of, source_size, channel):
        """Of each pixel that a thread copies: where it begins in the source, and the bits of the taps that lie outside.

        Pixels beyond the last are the last: nobody writes those.
        """
        for j in range(copies):
            unroll(0)
            number = min(i32(first + j * apart), i32(pixels - 1))
            image, row, column = pixel_of(number, tables, of)
            at[j] = i32(i32(image * source_size) + i32(row[0] + column[0]) + channel)
            outside[j] = u32(row[1] | column[1])

    @device
    def target(number, tables, of, result_size):
        """The number of a pixel of the class in the result."""
        if adjoint and i32(of[0] * of[1]) != result_size:
            image, row, column = pixel_of(number, tables, of)
            return i32(i32(image * result_size) + i32(row[2] + column[2]))
        return number

    return begin, copy_taps, find_pixels, target
