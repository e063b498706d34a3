"""The plain rung of greatest elements: thread k owns element k of the result and gathers what belongs there.

So nothing is added by two threads. Arrays are (N, H, W, C) in memory; any number of channels; float32 and float64.
A position is a number of so many bytes (code_bytes), the lowest first: one, or four for windows of more than 256 taps.
The geometry of windows is, vertical then horizontal: taps of a window, stride (down, right), padding (above, before),
and how far its taps lie apart (dilation).
"""

from ..elementwise.cuda_kernels import thread
from ..toolchain.cuda import device, i32, i64, u32
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each

__all__ = [
    "ARGUMENTS", "FORWARD", "INPUT_GRAD", "LEAST", "SELECT", "greater", "left_over", "quotient", "split", "tap_of",
]  # fmt: skip

SIZES = "i32 size, i32 height, i32 width, i32 channels, i32 rows, i32 columns"  # of the result, the input, the output
WINDOW = "i32 taps_down, i32 taps_right, i32 down, i32 right, i32 above, i32 before, i32 apart_down, i32 apart_right"
ARGUMENTS = f"{SIZES}, {WINDOW}"
LEAST = float("-inf")


@device
def quotient(a, b):
    """a // b for numbers that are not negative."""
    return i32(u32(u32(a) // u32(b)))


@device
def left_over(a, b):
    """a % b for numbers that are not negative."""
    return i32(u32(u32(a) % u32(b)))


@device
def split(k, rows, columns, channels):
    """(image, row, column, channel) of element k of an (N, rows, columns, channels) array."""
    pixel = quotient(k, channels)
    line = quotient(pixel, columns)
    image = quotient(line, rows)
    return image, i32(line - image * rows), i32(pixel - line * columns), i32(k - pixel * channels)


@device
def greater(v, best, first):
    """Whether v takes the place of the best so far: the first element does, and a NaN always."""
    return (v > best) | (v != v) | first


@device
def tap_of(distance, taps, apart):
    """The tap that lies at that distance from the start of a window, -1 if none does."""
    tap = distance if apart == 1 else quotient(distance, apart)
    return tap if tap < taps and i32(tap * apart) == distance else i32(-1)


@device
def put_position(positions, k, code_bytes, tap):
    for n in range(code_bytes):
        positions[i64(k) * code_bytes + n] = (tap >> (8 * n)) & 255


@device
def position_of(positions, k, code_bytes):
    tap = i32(0)
    for n in range(code_bytes):
        tap |= i32(positions[i64(k) * code_bytes + n]) << (8 * n)
    return i32(tap)


def _forward(half):
    real = half.real

    @half.plain(f"_* x, _* out, u8* positions, i32 code_bytes, {ARGUMENTS}")
    def max_forward_plain(
        x, out, positions, code_bytes, size, height, width, channels, rows, columns,
        taps_down, taps_right, down, right, above, before, apart_down, apart_right,
    ):  # fmt: skip
        """x is read once for each window that holds an element, out and positions are written once."""
        k = thread()
        if k < size:
            n, i, j, c = split(k, rows, columns, channels)
            best, chosen, first = real(LEAST), i32(0), True
            for p in range(taps_down):
                for q in range(taps_right):
                    h, w = i32(i * down - above + p * apart_down), i32(j * right - before + q * apart_right)
                    if 0 <= h < height and 0 <= w < width:
                        v = x[i32(i32(i32(n * height + h) * width + w) * channels + c)]
                        if greater(v, best, first):
                            best, chosen = v, i32(p * taps_right + q)
                        first = False
            out[k] = best
            put_position(positions, k, code_bytes, chosen)

    return max_forward_plain


def _select(half):
    @half.plain(f"_* x, u8* positions, _* out, i32 code_bytes, {ARGUMENTS}")
    def max_select_plain(
        x, positions, out, code_bytes, size, height, width, channels, rows, columns,
        taps_down, taps_right, down, right, above, before, apart_down, apart_right,
    ):  # fmt: skip
        """positions are read and out is written once; of x one element is read for each of out."""
        k = thread()
        if k < size:
            n, i, j, c = split(k, rows, columns, channels)
            tap = position_of(positions, k, code_bytes)
            p = quotient(tap, taps_right)
            q = i32(tap - p * taps_right)
            h, w = i32(i * down - above + p * apart_down), i32(j * right - before + q * apart_right)
            out[k] = x[i32(i32(i32(n * height + h) * width + w) * channels + c)]

    return max_select_plain


def _input_grad(half):
    real = half.real

    @half.plain(f"_* g, u8* positions, _* dx, i32 code_bytes, {ARGUMENTS}")
    def max_input_grad_plain(
        g, positions, dx, code_bytes, size, height, width, channels, rows, columns,
        taps_down, taps_right, down, right, above, before, apart_down, apart_right,
    ):  # fmt: skip
        """dx is written once, a position is read for each element that its window holds, and g where it was chosen.

        Windows are walked upwards and then to the right, in which order the CPU adds too.
        """
        k = thread()
        if k < size:
            n, h, w, c = split(k, height, width, channels)
            h, w, total = i32(h + above), i32(w + before), real(0)  # in the padded input
            i, ahead = min(quotient(h, down), i32(rows - 1)), i32(w - (taps_right - 1) * apart_right)
            j0 = i32(quotient(i32(ahead - 1), right) + 1) if ahead > 0 else i32(0)
            while i >= 0 and i32(h - i * down) <= i32((taps_down - 1) * apart_down):
                p, j = tap_of(i32(h - i * down), taps_down, apart_down), j0
                while p >= 0 and j < columns and i32(j * right) <= w:
                    q = tap_of(i32(w - j * right), taps_right, apart_right)
                    at = i32(i32(i32(n * rows + i) * columns + j) * channels + c)
                    if q >= 0 and position_of(positions, at, code_bytes) == i32(p * taps_right + q):
                        total += g[at]
                    j = i32(j + 1)
                i = i32(i - 1)
            dx[k] = total

    return max_input_grad_plain


FORWARD, SELECT, INPUT_GRAD = (each(make, SINGLE, DOUBLE) for make in (_forward, _select, _input_grad))
