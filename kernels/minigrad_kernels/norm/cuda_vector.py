"""The vector rung of batch normalisation: four elements in one access by threads that keep to their columns: 128 bits
of float32, 64 of float16 and bfloat16. Statistics, parameters, sums and all arithmetic are float32 beside all three.

As in bias/cuda_vector.py, a line is a run of whole rows in memory, and a thread owns four neighbouring elements of a
piece of it and the same four of the lines below: the same columns every time. So what belongs to its channels, and
its sums, stay in registers.

A ReLU that followed is part of both passes of the gradients: each masks g by what the ReLU gave, so that the masked g
is written only where it is wanted itself, as the gradient of a residual; the second pass then reads that.
"""

from ..bias.cuda_vector import PLACES, add4, fold_and_write, own_lines, passed4
from ..bias.plan import LINE
from ..toolchain.cuda import cuda, device, f32, i32, u32, unroll
from ..toolchain.cuda.halves import HALVES, SINGLE
from .cuda_plain import median

LEAST = float("-inf")


@device
def after(c, columns):
    """The next column of a row, the first one after the last."""
    return i32(0) if i32(c + 1) == columns else i32(c + 1)


@device
def columns_of(place, columns):
    """The columns of four neighbouring places of a line."""
    c0 = i32(u32(u32(place) % u32(columns)))
    c1 = after(c0, columns)
    c2 = after(c1, columns)
    return c0, c1, c2, after(c2, columns)


@device
def gather4(vector, c):
    return vector[c[0]], vector[c[1]], vector[c[2]], vector[c[3]]


@device
def sub4(a, b):
    return a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]


@device
def mul4(a, b):
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@device
def times4(a, factor):
    return a[0] * factor, a[1] * factor, a[2] * factor, a[3] * factor


@device
def scales4(variance, eps):
    """1 / deviation, by the instruction that gives it within 2 roundings."""
    return (
        cuda.libdevice.rsqrtf(variance[0] + eps),
        cuda.libdevice.rsqrtf(variance[1] + eps),
        cuda.libdevice.rsqrtf(variance[2] + eps),
        cuda.libdevice.rsqrtf(variance[3] + eps),
    )


@device
def at_least(v, low):
    return low if v <= low else v  # written so that NaN passes


@device
def at_least4(v, low):
    return at_least(v[0], low), at_least(v[1], low), at_least(v[2], low), at_least(v[3], low)


def _sums(half):
    load4, store4, widen = half.load4, half.store4, half.widen

    @device
    def pivot(x, c, middle, last):
        return median(widen(x[c]), widen(x[i32(middle + c)]), widen(x[i32(last + c)]))

    arrays = "_* x, _* g, _* out, f32* mean, f32* sums, f32* products, _* masked"

    @half.vector(f"{arrays}, i32 has_g, i32 has_relu, i32 has_masked, {PLACES}")
    def sums_vector(
        x, g, out, mean, sums, products, masked, has_g, has_relu, has_masked, size, columns, fold, tiles, share
    ):  # fmt: skip
        """As sums_plain: x, g and, if there was a ReLU, out are read once, four elements at a time, and the masked g
        is written if it is wanted; each block writes the sums of its part, and reads three rows more for pivots."""
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        total, product = (f32(0), f32(0), f32(0), f32(0)), (f32(0), f32(0), f32(0), f32(0))
        if count > 0:
            k, c = i32(first * line + place), columns_of(place, columns)
            if has_g:
                centre = gather4(mean, c)
            else:
                last = i32(size - columns)
                middle = i32(i32(u32(u32(size) // u32(columns)) >> u32(1)) * columns)
                centre = (
                    pivot(x, c[0], middle, last),
                    pivot(x, c[1], middle, last),
                    pivot(x, c[2], middle, last),
                    pivot(x, c[3], middle, last),
                )
                if part == 0:  # of the copies of a column in a line, the first one
                    for j in range(4):
                        unroll(0)
                        if i32(place + j) < columns:
                            mean[i32(place + j)] = centre[j]
            for _ in range(count):
                unroll(4)
                d = sub4(load4(x, k), centre)
                v = load4(g, k) if has_g else d
                if has_relu:
                    v = passed4(v, load4(out, k))
                if has_masked:
                    store4(masked, k, v)
                total, product = add4(total, v), add4(product, mul4(v, d))
                k = i32(k + line)
        fold_and_write(cuda.shared.array(LINE, f32, alignment=16), total, sums, columns, fold, part, tile)
        fold_and_write(cuda.shared.array(LINE, f32, alignment=16), product, products, columns, fold, part, tile)

    return sums_vector


def _finish(half):
    load4, store4 = half.load4, half.store4
    arrays = "_* x, _* more, _* passed, f32* mean, f32* variance, f32* weight, f32* bias, f32* dw, _* out"
    flags = "i32 has_more, i32 has_relu, i32 has_weight, i32 has_bias, i32 has_dw, i32 relu"

    @half.vector(f"{arrays}, f32 eps, f32 rows, {flags}, {PLACES}")
    def finish_vector(
        x, more, passed, mean, variance, weight, bias, dw, out, eps, rows,
        has_more, has_relu, has_weight, has_bias, has_dw, relu, size, columns, fold, tiles, share,
    ):  # fmt: skip
        """As finish_plain: x, `more` and `passed` are read and out is written once, four elements at a time; a thread
        reads up to 20 numbers for `share` lines.

        Math    out = (x - mean) scale + shift + more gain
        """
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        if count > 0:
            c, k = columns_of(place, columns), i32(first * line + place)
            centre, scale = gather4(mean, c), scales4(gather4(variance, c), eps)
            shift, gain = (f32(0), f32(0), f32(0), f32(0)), (f32(1), f32(1), f32(1), f32(1))
            each = scale
            if has_weight:
                scale = mul4(scale, gather4(weight, c))
            if has_bias:
                shift = gather4(bias, c)
            if has_dw:
                gain, scale = scale, times4(scale, f32(-1) / rows)
                shift, scale = mul4(scale, shift), mul4(mul4(scale, each), gather4(dw, c))
            low = f32(0) if relu else f32(LEAST)
            for _ in range(count):
                unroll(4)
                v = add4(mul4(sub4(load4(x, k), centre), scale), shift)
                if has_more:
                    m = load4(more, k)
                    if has_relu:
                        m = passed4(m, load4(passed, k))
                    v = add4(v, mul4(m, gain))
                store4(out, k, at_least4(v, low))
                k = i32(k + line)

    return finish_vector


SUMS, FINISH = ({half.name: make(half) for half in (SINGLE, *HALVES)} for make in (_sums, _finish))
