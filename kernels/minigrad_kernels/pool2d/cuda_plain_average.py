"""The plain rung of averages: thread k owns element k of the result. Any number of channels; float32 and
float64.

rows and columns are tables of windows, (windows, 3): start, end and divisor of each; tables of covering windows,
(elements, 2), say for each row or column of the input which is the first window that holds it, and which is one past
the last.
"""

from ..elementwise.cuda_kernels import thread
from ..toolchain.cuda import i32
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each
from .cuda_plain import split

__all__ = ["FORWARD", "FORWARD_ARGUMENTS", "GRAD_ARGUMENTS", "INPUT_GRAD"]

FORWARD_ARGUMENTS = (
    "i64* down, i64* right, i32 size, i32 height, i32 width, i32 channels, i32 rows, i32 columns"  # tables, then sizes
)
GRAD_ARGUMENTS = f"i32* above, i32* before, {FORWARD_ARGUMENTS}"


def _forward(half):
    real = half.real

    @half.plain(f"_* x, _* out, {FORWARD_ARGUMENTS}")
    def average_forward_plain(x, out, down, right, size, height, width, channels, rows, columns):
        """x is read once for each window that holds an element, out is written once."""
        k = thread()
        if k < size:
            n, i, j, c = split(k, rows, columns, channels)
            total = real(0)
            for h in range(i32(down[3 * i]), i32(down[3 * i + 1])):
                for w in range(i32(right[3 * j]), i32(right[3 * j + 1])):
                    total += x[i32(i32(i32(n * height + h) * width + w) * channels + c)]
            out[k] = total / real(down[3 * i + 2] * right[3 * j + 2])

    return average_forward_plain


def _input_grad(half):
    real = half.real

    @half.plain(f"_* g, _* dx, {GRAD_ARGUMENTS}")
    def average_input_grad_plain(g, dx, above, before, down, right, size, height, width, channels, rows, columns):
        """g is read once for each element that a window holds, dx is written once."""
        k = thread()
        if k < size:
            n, h, w, c = split(k, height, width, channels)
            total = real(0)
            for i in range(above[2 * h], above[2 * h + 1]):
                for j in range(before[2 * w], before[2 * w + 1]):
                    if down[3 * i] <= h < down[3 * i + 1] and right[3 * j] <= w < right[3 * j + 1]:
                        divisor = real(down[3 * i + 2] * right[3 * j + 2])
                        total += g[i32(i32(i32(n * rows + i) * columns + j) * channels + c)] / divisor
            dx[k] = total

    return average_input_grad_plain


FORWARD, INPUT_GRAD = (each(make, SINGLE, DOUBLE) for make in (_forward, _input_grad))
