"""Rung 1 of the convolution and of its input gradient: the formula, one thread an element of the result.

Letters as in the launcher. Places are 32-bit: cuda.py lets no larger array pass.
"""

from ..toolchain.cuda import cuda, f32, f64, i32, kernel, u32
from .cuda_parts import BIAS, RELU, RESIDUAL

__all__ = ["FORWARD", "INPUT_GRAD", "THREADS"]

THREADS = 256
SIZES = (
    "i32 count, i32 x_height, i32 x_width, i32 x_channels, i32 out_height, i32 out_width, i32 out_channels, "
    "i32 filter_height, i32 filter_width, i32 stride_h, i32 stride_w, i32 padding_h, i32 padding_w, "
    "i32 dilation_h, i32 dilation_w, i32 groups"
)


def _forward(kind, real):
    @kernel(
        f"{kind}* x, {kind}* w, {kind}* bias, {kind}* residual, {kind}* out, {SIZES}, i32 flags",
        threads=THREADS,
        variant=f"forward_{kind}",
    )
    def plain(
        x, w, bias, residual, out, count, x_height, x_width, x_channels, out_height, out_width, out_channels,
        filter_height, filter_width, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, flags,
    ):  # fmt: skip
        """The formula: a thread adds the products of one element of out.

        Traffic    an element of x is read once for each tap and channel that it serves, one of w for each pixel, as
                   far as the caches do not help; neighbouring threads have neighbouring channels o
        """
        number = u32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
        if number < u32(count):
            depth, made = i32(u32(u32(x_channels) // u32(groups))), i32(u32(u32(out_channels) // u32(groups)))
            pixel = u32(number // u32(out_channels))
            o = i32(number - u32(pixel * u32(out_channels)))
            row = u32(pixel // u32(out_width))
            n = i32(u32(row // u32(out_height)))
            i, j = i32(i32(row) - i32(n * out_height)), i32(i32(pixel) - i32(i32(row) * out_width))
            first = i32(i32(u32(u32(o) // u32(made))) * depth)  # channel of the group of o
            total = real(0)
            for p in range(filter_height):
                h = i32(i * stride_h + p * dilation_h - padding_h)
                for q in range(filter_width):
                    v = i32(j * stride_w + q * dilation_w - padding_w)
                    if 0 <= h < x_height and 0 <= v < x_width:
                        place = i32(i32(i32(i32(n * x_height + h) * x_width) + v) * x_channels + first)
                        tap = i32(i32(i32(p * filter_width + q) * depth) * out_channels + o)
                        for c in range(depth):
                            total += x[i32(place + c)] * w[i32(tap + c * out_channels)]
            if flags & BIAS:
                total += bias[o]
            if flags & RESIDUAL:
                total += residual[number]
            if flags & RELU and total <= real(0):  # so that NaN passes
                total = real(0)
            out[number] = total

    return plain


def _input_grad(kind, real):
    @kernel(f"{kind}* g, {kind}* w, {kind}* dx, {SIZES}", threads=THREADS, variant=f"input_grad_{kind}")
    def plain(
        g, w, dx, count, x_height, x_width, x_channels, out_height, out_width, out_channels, filter_height,
        filter_width, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups,
    ):  # fmt: skip
        """The formula: a thread adds the products of one element of dx, over the taps that read it.

        Traffic    an element of g is read once for each tap and channel that it serves, one of w for each pixel
        """
        number = u32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
        if number < u32(count):
            depth, made = i32(u32(u32(x_channels) // u32(groups))), i32(u32(u32(out_channels) // u32(groups)))
            pixel = u32(number // u32(x_channels))
            channel = i32(number - u32(pixel * u32(x_channels)))
            row = u32(pixel // u32(x_width))
            n = i32(u32(row // u32(x_height)))
            h, v = i32(i32(row) - i32(n * x_height)), i32(i32(pixel) - i32(i32(row) * x_width))
            group = i32(u32(u32(channel) // u32(depth)))
            c, first = i32(channel - i32(group * depth)), i32(group * made)
            total = real(0)
            for p in range(filter_height):
                up = i32(h + padding_h - p * dilation_h)  # i * stride
                i = i32(u32(u32(max(up, 0)) // u32(stride_h)))
                if up == i32(i * stride_h) and i < out_height:
                    for q in range(filter_width):
                        along = i32(v + padding_w - q * dilation_w)
                        j = i32(u32(u32(max(along, 0)) // u32(stride_w)))
                        if along == i32(j * stride_w) and j < out_width:
                            place = i32(i32(i32(i32(n * out_height + i) * out_width) + j) * out_channels + first)
                            tap = i32(i32(i32(i32(p * filter_width + q) * depth) + c) * out_channels + first)
                            for o in range(made):
                                total += g[i32(place + o)] * w[i32(tap + o)]
            dx[number] = total

    return plain


def _both(make):
    """{bytes of an element: kernel}"""
    return {4: make("f32", f32), 8: make("f64", f64)}


FORWARD, INPUT_GRAD = _both(_forward), _both(_input_grad)
