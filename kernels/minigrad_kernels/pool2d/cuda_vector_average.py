"""The vector rung of averages: thread t owns four neighbouring channels of a place of the result.

As the plain rung, in accesses of 128 bits of float32, and of 64 of float16 and bfloat16, which are added up in
float32: the memory traffic is the same, in a quarter of the requests, and the tables are read a quarter as often.
Wants numbers of channels that are multiples of 4. The gradient multiplies by the inverse of the divisor, one rounding
more, since four quotients a thread would take longer than its memory.
"""

from ..elementwise.cuda_plain import thread
from ..toolchain.cuda import f32, i32, unroll
from ..toolchain.cuda.halves import HALVES, SINGLE, each
from .cuda_plain_average import FORWARD_ARGUMENTS, GRAD_ARGUMENTS
from .cuda_vector import SPLIT, split4

__all__ = ["FORWARD", "INPUT_GRAD"]


def _forward(half):
    load4, store4 = half.load4, half.store4

    @half.vector(f"_* x, _* out, {FORWARD_ARGUMENTS}, {SPLIT}")
    def average_forward_vector(
        x, out, down, right, size, height, width, channels, rows, columns, by_channels, by_columns, by_rows
    ):
        t = thread()
        if i32(4 * t) < size:
            n, i, j, c = split4(t, i32(channels >> 2), columns, rows, by_channels, by_columns, by_rows)
            total0, total1, total2, total3 = f32(0), f32(0), f32(0), f32(0)
            h, below = i32(down[3 * i]), i32(down[3 * i + 1])
            while h < below:
                unroll(1)
                w, behind = i32(right[3 * j]), i32(right[3 * j + 1])
                at = i32(i32(i32(n * height + h) * width + w) * channels + c)
                while w < behind:
                    v0, v1, v2, v3 = load4(x, at)
                    total0 += v0
                    total1 += v1
                    total2 += v2
                    total3 += v3
                    w, at = i32(w + 1), i32(at + channels)
                h = i32(h + 1)
            divisor = f32(down[3 * i + 2] * right[3 * j + 2])
            store4(out, i32(4 * t), (total0 / divisor, total1 / divisor, total2 / divisor, total3 / divisor))

    return average_forward_vector


def _input_grad(half):
    load4, store4 = half.load4, half.store4

    @half.vector(f"_* g, _* dx, {GRAD_ARGUMENTS}, {SPLIT}")
    def average_input_grad_vector(
        g,
        dx,
        above,
        before,
        down,
        right,
        size,
        height,
        width,
        channels,
        rows,
        columns,
        by_channels,
        by_columns,
        by_rows,
    ):
        t = thread()
        if i32(4 * t) < size:
            n, h, w, c = split4(t, i32(channels >> 2), width, height, by_channels, by_columns, by_rows)
            total0, total1, total2, total3 = f32(0), f32(0), f32(0), f32(0)
            i, below, behind = above[2 * h], above[2 * h + 1], before[2 * w + 1]
            while i < below:
                unroll(1)
                j = before[2 * w]
                while j < behind:
                    unroll(1)
                    if down[3 * i] <= h < down[3 * i + 1] and right[3 * j] <= w < right[3 * j + 1]:
                        inverse = f32(1) / f32(down[3 * i + 2] * right[3 * j + 2])
                        g0, g1, g2, g3 = load4(g, i32(i32(i32(n * rows + i) * columns + j) * channels + c))
                        total0 += g0 * inverse
                        total1 += g1 * inverse
                        total2 += g2 * inverse
                        total3 += g3 * inverse
                    j = i32(j + 1)
                i = i32(i + 1)
            store4(dx, i32(4 * t), (total0, total1, total2, total3))

    return average_input_grad_vector


FORWARD, INPUT_GRAD = each(_forward, SINGLE, *HALVES), each(_input_grad, SINGLE, *HALVES)
