"""The plain rung of greatest elements: thread k owns element k of the result and gathers what belongs there.

So nothing is added by two threads. Arrays are (N, H, W, C) in memory; any number of channels and any
type; elements of 16 bits, which windows of up to 256 taps alone have kernels for, are added up in float32.
The geometry of windows is, vertical then horizontal: taps of a window, stride (down, right), padding (above, before),
and how far its taps lie apart (dilation).
"""

from functools import partial

from ..elementwise.cuda_plain import thread
from ..toolchain.cuda import device, i32, kernel, u32
from ..toolchain.cuda.halves import BF16, DOUBLE, F16, SINGLE, each

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


def _plain(number, half, signature):
    """The declaration of a kernel for one type of positions and one of elements, for which `_` stands."""
    signature, variant = f"{signature}, {ARGUMENTS}".replace("_*", half.pointer), f"{half.short}_{number}"
    return kernel(signature, threads=256, lowest=half.lowest, variant=variant)


def _forward(number, half):
    real, widen, narrow = half.real, half.widen, half.narrow

    @_plain(number, half, f"_* x, _* out, {number}* positions")
    def max_forward_plain(
        x, out, positions, size, height, width, channels, rows, columns,
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
                        v = widen(x[i32(i32(i32(n * height + h) * width + w) * channels + c)])
                        if greater(v, best, first):
                            best, chosen = v, i32(p * taps_right + q)
                        first = False
            out[k] = narrow(best)
            positions[k] = chosen

    return max_forward_plain


def _select(number, half):
    @_plain(number, half, f"_* x, {number}* positions, _* out")
    def max_select_plain(
        x, positions, out, size, height, width, channels, rows, columns,
        taps_down, taps_right, down, right, above, before, apart_down, apart_right,
    ):  # fmt: skip
        """positions are read and out is written once; of x one element is read for each of out."""
        k = thread()
        if k < size:
            n, i, j, c = split(k, rows, columns, channels)
            p = quotient(positions[k], taps_right)
            q = i32(positions[k] - p * taps_right)
            h, w = i32(i * down - above + p * apart_down), i32(j * right - before + q * apart_right)
            out[k] = x[i32(i32(i32(n * height + h) * width + w) * channels + c)]

    return max_select_plain


def _input_grad(number, half):
    real, widen, narrow = half.real, half.widen, half.narrow

    @_plain(number, half, f"_* g, {number}* positions, _* dx")
    def max_input_grad_plain(
        g, positions, dx, size, height, width, channels, rows, columns,
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
                    if q >= 0 and i32(positions[at]) == i32(p * taps_right + q):
                        total += widen(g[at])
                    j = i32(j + 1)
                i = i32(i - 1)
            dx[k] = narrow(total)

    return max_input_grad_plain


def _each(make, *halves):
    """{type of positions: {element type: kernel}}; a byte numbers the taps of most windows."""
    bytes_, numbers = each(partial(make, "u8"), SINGLE, DOUBLE, *halves), each(partial(make, "i32"), SINGLE, DOUBLE)
    return {"u1": bytes_, "i4": numbers}


FORWARD, SELECT, INPUT_GRAD = _each(_forward, F16, BF16), _each(_select), _each(_input_grad, F16, BF16)
