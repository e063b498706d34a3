"""The vector rung of greatest elements: thread t owns four neighbouring channels of a place of the result.

x, g, out and dx, float32, move in accesses of 128 bits; the four positions, a byte each, move in one of 32 bits.
Wants numbers of channels that are multiples of 4. The memory traffic is that of the plain rung in a quarter of the
requests, but for the gradient, which reads g wherever it reads a position.
"""

from ..toolchain.cuda import cuda, device, f32, i32, load4, store4, u32, unroll
from ..toolchain.cuda.halves import SINGLE
from .cuda_division import over
from .cuda_plain import LEAST, WINDOW

__all__ = ["max_forward_vector", "max_input_grad_vector"]

ARGUMENTS = f"i32 size, i32 height, i32 width, i32 channels, i32 rows, i32 columns, {WINDOW}"  # in, out
SPLIT = "u64 by_channels, u64 by_columns, u64 by_rows"  # see cuda_division.py; of the result, and of groups of channels
STEPS = "u64 by_down, u64 by_right, u64 by_apart_down, u64 by_apart_right"


@device
def split4(t, groups, columns, rows, by_channels, by_columns, by_rows):
    """(image, row, column, first channel) of thread t, which owns four of the 4 * groups channels."""
    pixel = over(t, by_channels)
    line = over(pixel, by_columns)
    image = over(line, by_rows)
    return image, i32(line - image * rows), i32(pixel - line * columns), i32(4 * i32(t - pixel * groups))


@device
def greater(v, best, first):
    """Whether v takes the place of the best so far: the first element does, and a NaN always."""
    return (v > best) | (v != v) | first


@device
def byte(word, n):
    return i32(u32(word >> u32(8 * n)) & u32(255))


@device
def word_of(a, b, c, d):
    return u32(u32(a) | u32(b << 8) | u32(c << 16) | u32(d << 24))


@SINGLE.vector(f"_* x, _* out, u32* positions, {ARGUMENTS}, {SPLIT}")
def max_forward_vector(
    x, out, positions, size, height, width, channels, rows, columns,
    taps_down, taps_right, down, right, above, before, apart_down, apart_right,
    by_channels, by_columns, by_rows,
):  # fmt: skip
    t = i32(cuda.grid(1))
    if i32(4 * t) < size:
        n, i, j, c = split4(t, i32(channels >> 2), columns, rows, by_channels, by_columns, by_rows)
        best0, best1, best2, best3 = f32(LEAST), f32(LEAST), f32(LEAST), f32(LEAST)
        chosen0, chosen1, chosen2, chosen3, first, p = i32(0), i32(0), i32(0), i32(0), True, i32(0)
        h, left = i32(i * down - above), i32(j * right - before)
        while p < taps_down:
            unroll(1)
            q, w = i32(0 if (h >= 0) & (h < height) else taps_right), left
            at = i32(i32(i32(n * height + h) * width + w) * channels + c)
            while q < taps_right:
                if (w >= 0) & (w < width):
                    v0, v1, v2, v3 = load4(x, at)
                    tap = i32(p * taps_right + q)
                    chosen0 = tap if greater(v0, best0, first) else chosen0
                    best0 = v0 if greater(v0, best0, first) else best0
                    chosen1 = tap if greater(v1, best1, first) else chosen1
                    best1 = v1 if greater(v1, best1, first) else best1
                    chosen2 = tap if greater(v2, best2, first) else chosen2
                    best2 = v2 if greater(v2, best2, first) else best2
                    chosen3 = tap if greater(v3, best3, first) else chosen3
                    best3 = v3 if greater(v3, best3, first) else best3
                    first = False
                q, w, at = i32(q + 1), i32(w + apart_right), i32(at + apart_right * channels)
            p, h = i32(p + 1), i32(h + apart_down)
        store4(out, i32(4 * t), (best0, best1, best2, best3))
        positions[t] = word_of(chosen0, chosen1, chosen2, chosen3)


@device
def share(v, word, n, tap):
    return v if byte(word, n) == tap else f32(0)


@SINGLE.vector(f"_* g, u32* positions, _* dx, {ARGUMENTS}, {SPLIT}, {STEPS}")
def max_input_grad_vector(
    g, positions, dx, size, height, width, channels, rows, columns,
    taps_down, taps_right, down, right, above, before, apart_down, apart_right,
    by_channels, by_columns, by_rows, by_down, by_right, by_apart_down, by_apart_right,
):  # fmt: skip
    t = i32(cuda.grid(1))
    if i32(4 * t) < size:
        n, h, w, c = split4(t, i32(channels >> 2), width, height, by_channels, by_columns, by_rows)
        h, w = i32(h + above), i32(w + before)  # in the padded input
        total0, total1, total2, total3 = f32(0), f32(0), f32(0), f32(0)
        i, ahead = min(over(h, by_down), i32(rows - 1)), i32(w - (taps_right - 1) * apart_right)
        j0 = i32(over(i32(ahead - 1), by_right) + 1) if ahead > 0 else i32(0)
        while i >= 0 and i32(h - i * down) <= i32((taps_down - 1) * apart_down):
            unroll(1)
            p, j = over(i32(h - i * down), by_apart_down), j0
            while j < columns and i32(j * right) <= w:
                unroll(1)
                q = over(i32(w - j * right), by_apart_right)
                # Else the element lies between two taps of the window.
                if i32(p * apart_down) == i32(h - i * down) and i32(q * apart_right) == i32(w - j * right):
                    at = i32(i32(i32(n * rows + i) * columns + j) * channels + c)
                    g0, g1, g2, g3 = load4(g, at)
                    word, tap = positions[i32(at >> 2)], i32(p * taps_right + q)
                    total0 += share(g0, word, 0, tap)
                    total1 += share(g1, word, 1, tap)
                    total2 += share(g2, word, 2, tap)
                    total3 += share(g3, word, 3, tap)
                j = i32(j + 1)
            i = i32(i - 1)
        store4(dx, i32(4 * t), (total0, total1, total2, total3))
