"""The weight gradient on CUDA: how its sums are cut into slices of the pixels, and how a thread walks over a slice.

A row of dw is a tap and a channel: (p, q, c), counted in that order; pixels are counted (n, i, j). A thread takes its
row apart once and then goes some pixels further each time, by additions.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from ..errors import ShapeError
from ..matmul.plan import LIMIT
from ..toolchain.cuda import device, i32, u32
from .cuda_gather import blocks_of, split
from .geometry import output_shape

__all__ = ["OP", "WEIGHT_SIZES", "Problem", "begin_walk", "is_inside", "problem_of", "walk_on"]

OP = "conv2d weight_grad"
REACH = 1 << 28  # of a walk over padded images
TILE = 96 * 64  # elements of dw: about what one block of threads owns, in any rung
BLOCKS = 384  # how many blocks a problem should have before its sums are cut no further
LEAST_PIXELS, MOST_PIXELS = 256, 2048  # of a slice: fewer are not worth writing the sums, more would round too much
ROUND = 32  # a slice has a multiple of so many pixels
ROOM = 1 << 23  # elements of all slices' sums together, unless more are needed to fill a GPU
MOST_SLICES = 4096  # what one thread of the last kernel adds is a 32nd of them


class Problem(NamedTuple):
    """A weight gradient without its data."""

    x_shape: tuple
    w_shape: tuple
    out_size: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    rows: int  # of dw, P*Q*C/G
    columns: int  # of dw in one group
    pixels: int  # N*I*J
    depth: int  # pixels of a slice, at most
    slices: int

    @property
    def size(self):
        """Elements of dw."""
        return prod(self.w_shape)

    def walk(self, hop):
        """(move_h, move_w, move, back_w, back_h) of a thread that goes so many pixels further each time.

        The first three lead to the pixel that many columns, rows and images on, the others back from behind the end
        of a row, and of an image. They may pass 32 bits where a thread walks out of x, which is not read then.
        """
        (i, j), (height, width), (stride_h, stride_w) = self.out_size, self.x_shape[2:], self.stride
        lines, right = divmod(hop, j)
        images, down = divmod(lines, i)
        move = (images * height + down * stride_h) * width + right * stride_w
        back_w, back_h = stride_h * width - j * stride_w, (height - i * stride_h) * width
        wrapped = ((pixels * self.x_shape[1] + LIMIT) % (2 * LIMIT) - LIMIT for pixels in (move, back_w, back_h))
        return down * stride_h, right * stride_w, *wrapped


@lru_cache(maxsize=1024)
def problem_of(x_shape, w_shape, stride, padding, dilation, groups):
    """The Problem of these shapes and settings.

    Errors  ValueError for sizes that are not 32-bit
    """
    out_shape = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)
    for name, shape in (("x", x_shape), ("g", out_shape), ("dw", w_shape)):
        if prod(shape) >= LIMIT:
            raise ShapeError(
                f"{OP}: {name} has shape {shape}, {prod(shape)} elements, wants less than {LIMIT}; "
                "split the batch and add"
            )
    reach = max(
        size + 2 * pad + step + apart * taps
        for size, pad, step, apart, taps in zip(x_shape[2:], padding, stride, dilation, w_shape[2:], strict=True)
    )
    if reach >= REACH:
        raise ShapeError(
            f"{OP}: stride {stride}, padding {padding} and dilation {dilation} lead {reach} pixels "
            f"over x {x_shape}, wants less than {REACH}"
        )
    pixels, size = x_shape[0] * prod(out_shape[2:]), prod(w_shape)
    fill = min(BLOCKS // blocks_of(size, TILE), pixels // LEAST_PIXELS)
    short = min(blocks_of(pixels, MOST_PIXELS), ROOM // size, MOST_SLICES)
    depth = blocks_of(blocks_of(pixels, max(1, fill, short)), ROUND) * ROUND
    slices = max(1, blocks_of(pixels, max(depth, 1)))
    rows, columns = prod(w_shape[1:]), w_shape[0] // groups
    return Problem(
        x_shape, w_shape, out_shape[2:], stride, padding, dilation, groups, rows, columns, pixels, depth, slices
    )  # fmt: skip


# ---- on the GPU ------------------------------------------------------------------------------------------------------

NAMES = "pixels depth rows filters channels taps_w in_h in_w in_c out_h out_w out_c stride_h stride_w pad_h pad_w"
WEIGHT_SIZES = ", ".join(
    f"i32 {name}" for name in f"{NAMES} dilation_h dilation_w move_h move_w move back_w back_h".split()
)  # depth: pixels of a slice; channels: of a group; in_c, out_c: of x and of g in all groups; taps_w: Q


@device
def begin_walk(pixel, row, channel, taps, sizes, padding, dilation):
    """((h, w, place), (h_end, w_end)): what a row of dw reads by a pixel; and where its image and its line end there.

    channel: the first one of the group; taps: channels of a tap, and Q; sizes: see `walk_on`
    """
    in_h, in_w, in_c, out_h, out_w, stride_h, stride_w = sizes
    tap, c = split(row, taps[0])
    p, q = split(tap, taps[1])
    line, j = split(pixel, out_w)
    n, i = split(line, out_h)
    below, right = i32(p * dilation[0] - padding[0]), i32(q * dilation[1] - padding[1])
    h, w = i32(i * stride_h + below), i32(j * stride_w + right)
    place = i32(i32(i32(i32(n * in_h) + h) * in_w + w) * in_c + i32(channel + c))
    return (h, w, place), (i32(out_h * stride_h + below), i32(out_w * stride_w + right))


@device
def is_inside(at, sizes):
    return u32(at[0]) < u32(sizes[0]) and u32(at[1]) < u32(sizes[1])


@device
def walk_on(at, ends, sizes, walk):
    """The next pixel of a walk. sizes: height, width and channels of x, height and width of g, stride."""
    _, _, _, out_h, out_w, stride_h, stride_w = sizes
    h, w, place = i32(at[0] + walk[0]), i32(at[1] + walk[1]), i32(at[2] + walk[2])
    if w >= ends[1]:
        h, w, place = i32(h + stride_h), i32(w - out_w * stride_w), i32(place + walk[3])
    if h >= ends[0]:
        h, place = i32(h - out_h * stride_h), i32(place + walk[4])
    return h, w, place
