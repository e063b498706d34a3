"""What the kernels of the weight gradient share: their arguments, and how a thread walks over the output pixels.

A row of dw is a tap and a channel: (p, q, c), counted in that order; pixels are counted (n, i, j). blockIdx.y is the
slice of the pixels, blockIdx.z the group.
"""

from ..toolchain.cuda import cuda, device, i32, i64, offset, u32

__all__ = ["FAR", "SHAPES", "SIZES", "WALK", "advance", "lead", "origin", "output", "place_of", "split"]

SHAPES = (
    "i32 rows, i32 columns, i32 channels, i32 taps_w, i32 in_h, i32 in_w, i32 in_c, "
    "i32 out_h, i32 out_w, i32 out_c, i32 stride_h, i32 stride_w, i32 pad_h, i32 pad_w, i32 dilation_h, i32 dilation_w"
)  # channels: of x in a group; in_c, out_c: of x and of g in all groups; taps_w: Q
SIZES = f"i32 pixels, i32 depth, {SHAPES}"  # depth: pixels of a slice, at most
WALK = "i32 move_h, i32 move_w, i32 move, i32 back_w, i32 back_h"  # see Problem.walk

FAR = 1 << 29  # a row of x that lies outside, also with as much added to it


@device
def split(number, size):
    """Quotient and remainder of numbers that are not negative."""
    many = u32(u32(number) // u32(size))
    return i32(many), i32(u32(number) - u32(many * u32(size)))


@device
def lead(row, channels, taps_w, dilation_h, dilation_w, pad_h, pad_w):
    """How far the tap of a row reads below and right of its pixel, and its channel."""
    tap, c = split(row, channels)
    p, q = split(tap, taps_w)
    return i32(p * dilation_h - pad_h), i32(q * dilation_w - pad_w), c


@device
def origin(pixel, out_h, out_w, stride_h, stride_w):
    """The image of an output pixel, and where a tap that leads nowhere reads."""
    line, j = split(pixel, out_w)
    n, i = split(line, out_h)
    return n, i32(i * stride_h), i32(j * stride_w)


@device
def place_of(n, h, w, c, in_h, in_w, in_c):
    """Where an element of x lies."""
    return i32(i32(i32(i32(n * in_h) + h) * in_w + w) * in_c + c)


@device
def advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk):
    """The next pixel of a walk; h_end and w_end: where its image and its row end, as its tap reads them."""
    move_h, move_w, move, back_w, back_h = walk
    h, w, place = i32(h + move_h), i32(w + move_w), i32(place + move)
    if w >= w_end:
        h, w, place = i32(h + stride_h), i32(w - out_w * stride_w), i32(place + back_w)
    if h >= h_end:
        h, place = i32(h - out_h * stride_h), i32(place + back_h)
    return h, w, place


@device
def output(out, rows, out_c):
    """Where this block's slice of the sums begins: slices lie one behind the other, each as dw does."""
    return offset(out, i64(cuda.blockIdx.y) * i64(rows) * i64(out_c))
