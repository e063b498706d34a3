"""The vector rung of greatest elements: thread t owns four neighbouring channels of a place of the result.

x, g, out and dx move in accesses of 128 bits, those of float16 and bfloat16 in accesses of 64, and are compared and
added as float32; the four positions, a byte each, move in one of 32 bits.
Wants numbers of channels that are multiples of 4. The memory traffic is that of the plain rung in a quarter of the
requests, but for the gradient, which reads g wherever it reads a position.

Quotients by numbers that are known before a launch are a product and a shift instead of some 20 instructions. For
0 <= n < 2^31 and 1 <= d < 2^31, with 2^s the least power of two that is not below d and m = ceil(2^(31+s) / d),

    n // d = (n * m) >> (31 + s)

since m d exceeds 2^(31+s) by less than d <= 2^s, which moves n m / 2^(31+s) away from n / d by less than 1 / d.
m has 32 bits. With 2 n instead of n the lower half of the product of 64 bits drops out.

Source  Granlund and Montgomery 1994, "Division by invariant integers using multiplication", section 4
"""

from functools import lru_cache

from ..toolchain.cuda import cuda, device, f32, i32, u32, u64, unroll
from ..toolchain.cuda.halves import HALVES, SINGLE
from .cuda_plain import LEAST, WINDOW

ARGUMENTS = f"i32 size, i32 height, i32 width, i32 channels, i32 rows, i32 columns, {WINDOW}"  # in, out
SPLIT = "u64 by_channels, u64 by_columns, u64 by_rows"  # of `by`; of the result, and of groups of channels
STEPS = "u64 by_down, u64 by_right, u64 by_apart_down, u64 by_apart_right"


@lru_cache(1024)
def by(d):
    """What `over` wants of a divisor: m in the lower 32 bits, s above it."""
    s = (d - 1).bit_length()
    return -(-(1 << (31 + s)) // d) | s << 32


@device
def over(n, by):
    """n // d for 0 <= n < 2^31, where by = by(d)."""
    high = u32((u64(u32(n << 1)) * u64(u32(by))) >> u64(32))
    return i32(high >> u32(by >> u64(32)))


@device
def split4(t, groups, columns, rows, by_channels, by_columns, by_rows):
    """(image, row, column, first channel) of thread t, which owns four of the 4 * groups channels."""
    pixel = over(t, by_channels)
    line = over(pixel, by_columns)
    image = over(line, by_rows)
    return image, i32(line - image * rows), i32(pixel - line * columns), i32(4 * i32(t - pixel * groups))


def _forward(half):
    load4, store4 = half.load4, half.store4

    @half.vector(f"_* x, _* out, u32* positions, {ARGUMENTS}, {SPLIT}")
    def max_forward_vector(
        x, out, positions, size, height, width, channels, rows, columns,
        taps_down, taps_right, down, right, above, before, apart_down, apart_right,
        by_channels, by_columns, by_rows,
    ):  # fmt: skip
        t = i32(cuda.grid(1))
        if i32(4 * t) < size:
            n, i, j, c = split4(t, i32(channels >> 2), columns, rows, by_channels, by_columns, by_rows)
            best, chosen = cuda.local.array(4, f32), cuda.local.array(4, u32)
            for lane in range(4):
                unroll(0)
                best[lane], chosen[lane] = f32(LEAST), u32(0)
            first, p, h, left = True, i32(0), i32(i * down - above), i32(j * right - before)
            while p < taps_down:
                unroll(1)
                q, w = i32(0 if (h >= 0) & (h < height) else taps_right), left
                at = i32(i32(i32(n * height + h) * width + w) * channels + c)
                while q < taps_right:
                    if (w >= 0) & (w < width):
                        four, tap = load4(x, at), u32(p * taps_right + q)
                        for lane in range(4):
                            unroll(0)
                            v = four[lane]
                            take = (v > best[lane]) | (v != v) | first
                            best[lane], chosen[lane] = v if take else best[lane], tap if take else chosen[lane]
                        first = False
                    q, w, at = i32(q + 1), i32(w + apart_right), i32(at + apart_right * channels)
                p, h = i32(p + 1), i32(h + apart_down)
            store4(out, i32(4 * t), (best[0], best[1], best[2], best[3]))
            positions[t] = chosen[0] | u32(chosen[1] << 8) | u32(chosen[2] << 16) | u32(chosen[3] << 24)

    return max_forward_vector


def _input_grad(half):
    load4, store4 = half.load4, half.store4

    @half.vector(f"_* g, u32* positions, _* dx, {ARGUMENTS}, {SPLIT}, {STEPS}")
    def max_input_grad_vector(
        g, positions, dx, size, height, width, channels, rows, columns,
        taps_down, taps_right, down, right, above, before, apart_down, apart_right,
        by_channels, by_columns, by_rows, by_down, by_right, by_apart_down, by_apart_right,
    ):  # fmt: skip
        t = i32(cuda.grid(1))
        if i32(4 * t) < size:
            n, h, w, c = split4(t, i32(channels >> 2), width, height, by_channels, by_columns, by_rows)
            h, w, total = i32(h + above), i32(w + before), cuda.local.array(4, f32)  # in the padded input
            for lane in range(4):
                unroll(0)
                total[lane] = f32(0)
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
                        four, word, tap = load4(g, at), positions[i32(at >> 2)], u32(p * taps_right + q)
                        for lane in range(4):
                            unroll(0)
                            total[lane] += four[lane] if u32(word >> u32(8 * lane)) & u32(255) == tap else f32(0)
                    j = i32(j + 1)
                i = i32(i - 1)
            store4(dx, i32(4 * t), (total[0], total[1], total[2], total[3]))

    return max_input_grad_vector


FORWARD, INPUT_GRAD = ({half.name: make(half) for half in (SINGLE, *HALVES)} for make in (_forward, _input_grad))
