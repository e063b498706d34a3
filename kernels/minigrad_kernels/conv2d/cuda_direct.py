"""A rung of the convolution for images of one channel: the filters in shared memory, and no tile of the images."""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, outer_product, u32, unroll
from .cuda_parts import QUAD, SIGNATURE, make_classes, make_write, split

__all__ = ["MADE", "PIXELS", "THREADS", "WIDEST", "direct", "pixels_of", "width_of"]

THREADS = 128
PIXELS, MADE = 4, 8  # of a thread: pixels, and channels that it makes of each
SUMS = PIXELS * MADE
WIDEST = 64  # channels that a block makes


def width_of(makes):
    """Channels that a block makes of a group that makes so many, counted with those that nobody needs."""
    return min(-(-makes // MADE) * MADE, WIDEST)


def pixels_of(makes):
    """Pixels that a block makes."""
    return THREADS * MADE // width_of(makes) * PIXELS


@device
def copy_filters(tile, filters, steps, width, left, result_c):
    """Copy the filters of a block, a row of `width` channels for each step; channels that are not there are zeros."""
    number = i32(cuda.threadIdx.x)
    while number < i32(steps * width):
        step, column = split(number, width)
        tile[u32(number)] = filters[i64(i32(step * result_c + column))] if column < left else f32(0)
        number = i32(number + THREADS)
    cuda.syncthreads()


axis, pixel, target = make_classes(False)
write = make_write(PIXELS, MADE, 0, target, False)


@kernel(SIGNATURE, threads=THREADS, blocks=4, opcodes=("STG.E.128",))
def direct(
    source, filters, bias, residual, result, images, source_h, source_w, source_c, result_h, result_w, result_c,
    filter_h, filter_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, depth, slices,
    flags,
):  # fmt: skip
    """One idea: sums so short that a block holds all its filters, so only they need shared memory.

    Each thread makes 8 channels of 4 pixels. Those of a warp that make other channels of the same pixel read the
    same words of x; other taps read them again while they are in the first cache.

    Traffic    x is read once for each tap and each 64 channels, w once for each block
    Resources  up to 48 KB of shared memory; one barrier
    """
    tile = cuda.shared.array(0, f32, alignment=16)
    total, read = cuda.local.array(SUMS, f32), cuda.local.array(PIXELS, f32)
    h, v, at = cuda.local.array(PIXELS, i32), cuda.local.array(PIXELS, i32), cuda.local.array(PIXELS, i32)
    column = i32(cuda.blockIdx.y * WIDEST)
    left = i32(result_c - column)
    eighths = i32(u32(min(left, WIDEST) + (MADE - 1)) // u32(MADE))
    width, across = i32(eighths * MADE), i32(eighths * QUAD)
    copy_filters(tile, offset(filters, i64(column)), i32(filter_h * filter_w), width, left, result_c)

    vertical = axis(i32(0), result_h, filter_h, stride_h, padding_h, dilation_h)
    horizontal = axis(i32(0), result_w, filter_w, stride_w, padding_w, dilation_w)
    pixels, together = i32(images * i32(result_h * result_w)), split(i32(THREADS), eighths)[0]
    row, eighth = split(i32(cuda.threadIdx.x), eighths)
    if row >= together:  # threads left over
        return
    row = i32(cuda.blockIdx.x * i32(together * PIXELS) + row)
    for j in range(PIXELS):
        unroll(0)
        image, i, k = pixel(min(i32(row + j * together), i32(pixels - 1)), vertical, horizontal)
        h[j], v[j] = i32(i * stride_h - padding_h), i32(k * stride_w - padding_w)
        at[j] = i32(i32(i32(image * source_h + h[j]) * source_w) + v[j])
    for i in range(SUMS):
        total[i] = f32(0)

    place, p = i32(eighth * QUAD), i32(0)
    while p < filter_h:
        down, q = i32(p * dilation_h), i32(0)
        while q < filter_w:
            along = i32(q * dilation_w)
            for j in range(PIXELS):
                unroll(0)
                inside = u32(i32(h[j] + down)) < u32(source_h) and u32(i32(v[j] + along)) < u32(source_w)
                read[j] = source[i64(i32(at[j] + i32(down * source_w + along)))] if inside else f32(0)
            four = read[0], read[1], read[2], read[3]
            outer_product(total, four, load4(tile, place) + load4(tile, i32(place + across)))
            place, q = i32(place + width), i32(q + 1)
        p = i32(p + 1)

    column = i32(column + eighth * QUAD)
    left = i32(left - eighth * QUAD)
    sizes = result_h, result_w, result_c
    start, beside = offset(result, i64(column)), offset(residual, i64(column))
    write(
        total, start, bias, beside, row, together, column, across, pixels, left, vertical, horizontal, sizes, flags
    )  # fmt: skip
