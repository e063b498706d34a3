"""The vector rung of batch normalisation: four elements in one access by threads that keep to their columns: 128 bits
of float32, 64 of float16 and bfloat16. Statistics, parameters, sums and all arithmetic are float32 beside all three.

As in bias/cuda_vector.py, a line is a run of whole rows in memory, and a thread owns four neighbouring elements of a
piece of it and the same four of the lines below: the same columns every time. So what belongs to its channels, and
its sums, stay in registers. Gradients are in cuda_vector_grads.py.
"""

from ..bias.cuda_vector import add4, lines_below
from ..bias.plan import LINE
from ..toolchain.cuda import cuda, device, f32, i32, store4, u32
from ..toolchain.cuda.halves import HALVES, SINGLE
from .cuda_parts import finite, joined

__all__ = [
    "NORMALIZE",
    "PLACES",
    "STATISTICS",
    "VECTORS",
    "columns_of",
    "gather4",
    "mul4",
    "own_lines",
    "scales4",
    "sub4",
    "times4",
]

NOTHING = -0.0  # which changes nothing that it is added to
PLACES = "i32 size, i32 columns, i32 fold, i32 tiles, i32 share"


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
def own_lines(size, columns, fold, tiles, share):
    """(part, tile, place, line, first, count) of this thread: `count` lines from `first` on, 0 if it has no place."""
    part = i32(u32(u32(cuda.blockIdx.x) // u32(tiles)))
    tile = i32(cuda.blockIdx.x - part * tiles)
    place, line, first = i32(tile * LINE + 4 * cuda.threadIdx.x), i32(fold * columns), i32(part * share)
    lines = i32((u32(size) + u32(line) - u32(1)) // u32(line))
    count = lines_below(first, share, lines, line, place, size)
    return part, tile, place, line, first, count if place < line else i32(0)


# ---- statistics --------------------------------------------------------------------------------------------------


@device
def fold_statistics(n, s, q, sums, squares, columns, fold, tiles, part, tile):
    """Join the rows of a line pairwise and write the sums and squares of the columns."""
    counts, all_sums = cuda.shared.array(LINE, f32, alignment=16), cuda.shared.array(LINE, f32, alignment=16)
    all_squares, thread = cuda.shared.array(LINE, f32, alignment=16), i32(cuda.threadIdx.x)
    store4(counts, i32(4 * thread), (n, n, n, n))
    store4(all_sums, i32(4 * thread), s)
    store4(all_squares, i32(4 * thread), q)
    rows = fold
    while rows > 1:
        half = i32((rows + 1) >> 1)
        cuda.syncthreads()
        k = thread
        while k < i32((rows - half) * columns):
            o = i32(k + half * columns)
            counts[k], all_sums[k], all_squares[k] = joined(
                counts[k], all_sums[k], all_squares[k], counts[o], all_sums[o], all_squares[o]
            )
            k = i32(k + 256)
        rows = half
    cuda.syncthreads()
    k, start = thread, i32(tile * LINE)
    while k < min(LINE, i32(columns - start)):
        sums[i32(part * columns + start + k)] = all_sums[k]
        squares[i32(part * columns + start + k)] = all_squares[k]
        k = i32(k + 256)


def _gather(half):
    """gather4 from a row of elements."""
    widen = half.widen

    @device
    def gather(x, c):
        return widen(x[c[0]]), widen(x[c[1]]), widen(x[c[2]]), widen(x[c[3]])

    return gather


def _statistics(half):
    load4, gather = half.load4, _gather(half)

    @half.vector(f"_* x, f32* sums, f32* squares, {PLACES}", half.words[:1])
    def statistics_vector(x, sums, squares, size, columns, fold, tiles, share):
        """x is read once, four elements at a time, and its first row by each block: four lines, their means and squares
        about them in registers, are joined to the lines before."""
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        n, s, q = f32(0), (f32(0), f32(0), f32(0), f32(0)), (f32(0), f32(0), f32(0), f32(0))
        if count > 0:
            k, shift = i32(first * line + place), gather(x, columns_of(place, columns))
            shift = finite(shift[0]), finite(shift[1]), finite(shift[2]), finite(shift[3])
            while count >= 4:
                v0, v1 = sub4(load4(x, k), shift), sub4(load4(x, i32(k + line)), shift)
                v2, v3 = sub4(load4(x, i32(k + 2 * line)), shift), sub4(load4(x, i32(k + 3 * line)), shift)
                t = add4(add4(v0, v1), add4(v2, v3))
                mean = times4(t, f32(0.25))
                v0, v1, v2, v3 = sub4(v0, mean), sub4(v1, mean), sub4(v2, mean), sub4(v3, mean)
                within = add4(add4(mul4(v0, v0), mul4(v1, v1)), add4(mul4(v2, v2), mul4(v3, v3)))
                apart = sub4(mean, times4(s, f32(1) / max(n, f32(1))))
                between = times4(mul4(apart, apart), n * f32(4) / (n + f32(4)))
                n, s, q = n + f32(4), add4(s, t), add4(q, add4(within, between))
                k = i32(k + 4 * line)
                count = i32(count - 4)
            while count > 0:
                v0 = sub4(load4(x, k), shift)
                apart = sub4(v0, times4(s, f32(1) / max(n, f32(1))))
                n, s, q = n + f32(1), add4(s, v0), add4(q, times4(mul4(apart, apart), n / (n + f32(1))))
                k = i32(k + line)
                count = i32(count - 1)
        fold_statistics(n, s, q, sums, squares, columns, fold, tiles, part, tile)

    return statistics_vector


# ---- forward -----------------------------------------------------------------------------------------------------


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
def normal4(v, centre, scale, shift):
    return add4(mul4(sub4(v, centre), scale), shift)


VECTORS = "f32* mean, f32* variance, f32* weight"


@device
def finished(v, relu):
    return f32(0) if relu and v <= f32(0) else v  # written so that NaN passes


@device
def finished4(v, centre, scale, shift, r, relu):
    z = add4(normal4(v, centre, scale, shift), r)
    return finished(z[0], relu), finished(z[1], relu), finished(z[2], relu), finished(z[3], relu)


def _normalize(half):
    load4, store4 = half.load4, half.store4
    numbers = f"f32 eps, i32 has_weight, i32 has_bias, i32 has_residual, i32 relu, {PLACES}"

    @half.vector(f"_* x, {VECTORS}, f32* bias, _* residual, _* out, {numbers}")
    def normalize_vector(
        x, mean, variance, weight, bias, residual, out, eps, has_weight, has_bias, has_residual, relu,
        size, columns, fold, tiles, share,
    ):  # fmt: skip
        """x and the residual are read and out is written once, four elements at a time; a thread reads up to 16
        numbers for `share` lines."""
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        if count > 0:
            c = columns_of(place, columns)
            centre, scale = gather4(mean, c), scales4(gather4(variance, c), eps)
            shift = f32(0), f32(0), f32(0), f32(0)
            if has_weight:
                scale = mul4(scale, gather4(weight, c))
            if has_bias:
                shift = gather4(bias, c)
            k = i32(first * line + place)
            r0 = r1 = r2 = r3 = f32(NOTHING), f32(NOTHING), f32(NOTHING), f32(NOTHING)
            while count >= 4:
                v0, v1 = load4(x, k), load4(x, i32(k + line))
                v2, v3 = load4(x, i32(k + 2 * line)), load4(x, i32(k + 3 * line))
                if has_residual:
                    r0, r1 = load4(residual, k), load4(residual, i32(k + line))
                    r2, r3 = load4(residual, i32(k + 2 * line)), load4(residual, i32(k + 3 * line))
                store4(out, k, finished4(v0, centre, scale, shift, r0, relu))
                store4(out, i32(k + line), finished4(v1, centre, scale, shift, r1, relu))
                store4(out, i32(k + 2 * line), finished4(v2, centre, scale, shift, r2, relu))
                store4(out, i32(k + 3 * line), finished4(v3, centre, scale, shift, r3, relu))
                k = i32(k + 4 * line)
                count = i32(count - 4)
            while count > 0:
                v0 = load4(x, k)
                if has_residual:
                    r0 = load4(residual, k)
                store4(out, k, finished4(v0, centre, scale, shift, r0, relu))
                k = i32(k + line)
                count = i32(count - 1)

    return normalize_vector


STATISTICS, NORMALIZE = ({half.name: make(half) for half in (SINGLE, *HALVES)} for make in (_statistics, _normalize))
