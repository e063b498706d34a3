"""Rung 5 of the weight gradient: one filter for each channel, so that neighbouring threads have but g in common."""

from typing import NamedTuple

from ..matmul.cuda_vector import QUAD
from ..toolchain.cuda import cuda, f32, i32, kernel, load4, offset, store4, u32, unroll
from .cuda_weight_fold import make_fold
from .cuda_weight_parts import SIZES, WALK, advance, fill_table, origin, output, place_of, split

__all__ = ["TAPS", "Shape", "shape_of", "weight_depthwise"]

TAPS = 9  # of dw in each thread, all of a 3x3 filter's, for four channels
THREADS = 192  # that many leave each 168 registers where two blocks share a multiprocessor
MOST_ACROSS = 32  # threads along the channels: what a warp reads is then one run


class Shape(NamedTuple):
    """How the threads of a block are shared out: across the channels, and in lanes, which share the pixels."""

    across: int
    lanes: int

    @property
    def threads(self):
        return self.lanes * self.across

    @property
    def shared(self):
        """Bytes of the sums of half the lanes."""
        return 4 * (self.lanes // 2) * self.across * TAPS * QUAD


def shape_of(taps, channels):
    """(Shape, blocks across, blocks for the taps)"""
    quads = channels // QUAD
    blocks = -(-quads // MOST_ACROSS)
    across = -(-quads // blocks)
    return Shape(across, THREADS // across), blocks, -(-taps // TAPS)


fold = make_fold(TAPS)
TABLE, SUMS = TAPS * QUAD, TAPS * QUAD
SIGNATURE = f"f32* x, f32* g, f32* out, {SIZES}, {WALK}, i32 across, i32 lanes"


@kernel(SIGNATURE, threads=THREADS, blocks=2, opcodes=("LDG.E.128", "STG.E.128"))
def weight_depthwise(
    x, g, out, pixels, depth, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h,
    across, lanes,
):  # fmt: skip
    """One idea: each thread owns four channels, with all taps of a small filter; blockIdx.z counts further taps.

    Traffic    g is read once for every 9 taps, x once for each tap, mostly from the first cache
    Resources  36 sums in registers
    """
    memory, table = cuda.shared.array(0, f32, alignment=16), cuda.shared.array(TABLE, i32, alignment=16)
    total, walk = cuda.local.array(SUMS, f32), (move_h, move_w, move, back_w, back_h)
    thread, top = i32(cuda.threadIdx.x), i32(cuda.blockIdx.z * TAPS)
    fill_table(table, top, rows, TAPS, (channels, taps_w, dilation_h, dilation_w, in_w, in_c), thread)
    lane, member = split(thread, across)
    channel = i32(i32(cuda.blockIdx.x * across + member) * QUAD)
    c = min(channel, i32(in_c - QUAD))
    first = i32(cuda.blockIdx.y * depth)
    pixels_left = i32(min(depth, i32(pixels - first)) - lane)
    n, h, w = origin(i32(first + lane), out_h, out_w, stride_h, stride_w)
    h, w = i32(h - pad_h), i32(w - pad_w)
    h_end, w_end = i32(out_h * stride_h - pad_h), i32(out_w * stride_w - pad_w)
    place, g_place = place_of(n, h, w, c, in_h, in_w, in_c), i32(i32(first + lane) * out_c + c)
    for i in range(SUMS):
        total[i] = f32(0)
    cuda.syncthreads()
    while pixels_left > 0:
        b = load4(g, g_place)
        for tap in range(TAPS):
            unroll(0)
            k, to = tap * QUAD, load4(table, tap * QUAD)
            a = f32(0), f32(0), f32(0), f32(0)
            if u32(i32(h + to[1])) < u32(in_h) and u32(i32(w + to[2])) < u32(in_w):
                a = load4(x, i32(place + to[0]))
            total[k] += a[0] * b[0]
            total[k + 1] += a[1] * b[1]
            total[k + 2] += a[2] * b[2]
            total[k + 3] += a[3] * b[3]
        h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
        g_place, pixels_left = i32(g_place + lanes * out_c), i32(pixels_left - lanes)
    fold(memory, total, lane, lanes, member, across)
    if lane == 0 and channel < in_c:
        start = offset(output(out, rows, out_c), i32(top * out_c + channel))
        for tap in range(TAPS):
            unroll(0)
            k = tap * QUAD
            if i32(top + tap) < rows:
                store4(start, i32(tap * out_c), (total[k], total[k + 1], total[k + 2], total[k + 3]))
