"""The plain rung of the weight gradient: the formula."""

import numpy as np

from ..toolchain.cuda import cuda, f32, f64, i32, kernel
from .cuda_weight_parts import SIZES, lead, origin, output, place_of, split

__all__ = ["PLAIN", "THREADS"]

THREADS = 256


def _plain(kind, real):
    @kernel(f"{kind}* x, {kind}* g, {kind}* out, {SIZES}", threads=THREADS, variant=kind)
    def weight_plain(
        x, g, out, pixels, depth, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    ):  # fmt: skip
        """A thread adds, over the pixels of its slice, the products of one element of dw.

        Traffic    x is read O/G times, g P*Q*C/G times, as far as the caches do not help
        """
        place = i32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
        if place < i32(rows * out_c):
            row, o = split(place, out_c)
            down, right, c = lead(row, channels, taps_w, dilation_h, dilation_w, pad_h, pad_w)
            c = i32(c + split(o, columns)[0] * channels)
            pixel = i32(cuda.blockIdx.y * depth)
            stop = i32(pixel + min(depth, i32(pixels - pixel)))
            n, h, w = origin(pixel, out_h, out_w, stride_h, stride_w)
            total = real(0)
            while pixel < stop:
                value, y, z = real(0), i32(h + down), i32(w + right)
                if y >= 0 and y < in_h and z >= 0 and z < in_w:
                    value = x[place_of(n, y, z, c, in_h, in_w, in_c)]
                total += value * g[i32(pixel * out_c + o)]
                pixel, w = i32(pixel + 1), i32(w + stride_w)
                if w == i32(out_w * stride_w):
                    h, w = i32(h + stride_h), i32(0)
                    if h == i32(out_h * stride_h):
                        n, h = i32(n + 1), i32(0)
            output(out, rows, out_c)[place] = total

    return weight_plain


PLAIN = {np.dtype(np.float32): _plain("f32", f32), np.dtype(np.float64): _plain("f64", f64)}
