"""A rung of the convolution and of its input gradient for groups of one channel: there is nothing to multiply as
matrices, so threads own channels, four neighbours each.
"""

from ..toolchain.cuda import cuda, f32, i32, i64, kernel, load4, offset, store4
from .cuda_parts import (
    BASE,
    COUNT,
    FROM,
    HOP,
    REACH,
    SIGNATURE,
    STEP,
    TAPS,
    bias_of,
    finish_beside,
    least_of,
    make_classes,
    split,
)

__all__ = ["DEPTHWISE", "THREADS"]

THREADS = 256


def make_depthwise(adjoint):
    axis, pixel, target = make_classes(adjoint)

    @kernel(
        SIGNATURE,
        threads=THREADS,
        opcodes=("LDG.E.128", "STG.E.128"),
        variant="input_grad" if adjoint else "forward",
    )
    def depthwise(
        source, filters, bias, residual, result, images, source_h, source_w, source_c, result_h, result_w, result_c,
        filter_h, filter_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, depth, slices,
        flags,
    ):  # fmt: skip
        """One idea: a thread makes four channels of a pixel, so all loads and stores are of 128 bits, side by side.

        Traffic    source and filters are read once for each tap, the result is written once
        """
        residue_h, residue_w = split(i32(cuda.blockIdx.z), stride_w) if adjoint else (i32(0), i32(0))
        vertical = axis(residue_h, result_h, filter_h, stride_h, padding_h, dilation_h)
        horizontal = axis(residue_w, result_w, filter_w, stride_w, padding_w, dilation_w)
        number, quad = split(i32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x), i32(result_c >> 2))
        if number >= i32(images * i32(vertical[COUNT] * horizontal[COUNT])):
            return
        image, row, column = pixel(number, vertical, horizontal)
        channel = i32(quad * 4)
        top, left = i32(row * vertical[STEP] + vertical[BASE]), i32(column * horizontal[STEP] + horizontal[BASE])
        first, second, third, fourth = f32(0), f32(0), f32(0), f32(0)
        for p in range(vertical[TAPS]):
            h = i32(top + p * vertical[REACH])
            if 0 <= h < source_h:
                line = i32(i32(image * source_h + h) * source_w)
                taps = i32(i32(vertical[FROM] + p * vertical[HOP]) * filter_w + horizontal[FROM])
                for q in range(horizontal[TAPS]):
                    v = i32(left + q * horizontal[REACH])
                    if 0 <= v < source_w:
                        a = load4(source, i64(i32(i32(line + v) * source_c + channel)))
                        b = load4(filters, i64(i32(i32(taps + q * horizontal[HOP]) * result_c + channel)))
                        first, second = first + a[0] * b[0], second + a[1] * b[1]
                        third, fourth = third + a[2] * b[2], fourth + a[3] * b[3]
        least, place = least_of(flags), target(number, vertical, horizontal, (result_h, result_w))
        here = i64(i32(place * result_c + channel))
        beside = offset(residual, here)
        four = (
            finish_beside(first, bias_of(bias, channel, flags), least, beside, 0, flags),
            finish_beside(second, bias_of(bias, channel + 1, flags), least, beside, 1, flags),
            finish_beside(third, bias_of(bias, channel + 2, flags), least, beside, 2, flags),
            finish_beside(fourth, bias_of(bias, channel + 3, flags), least, beside, 3, flags),
        )
        store4(offset(result, here), 0, four)

    return depthwise


DEPTHWISE = {adjoint: make_depthwise(adjoint) for adjoint in (False, True)}
