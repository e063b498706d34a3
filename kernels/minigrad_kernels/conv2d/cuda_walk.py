"""The weight gradient on CUDA: how a thread walks over a slice of the pixels.

A row of dw is a tap and a channel: (p, q, c), counted in that order; pixels are counted (n, i, j). A thread takes its
row apart once and then goes some pixels further each time, by additions.
"""

from ..toolchain.cuda import device, i32, u32
from .cuda_gather import split

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
