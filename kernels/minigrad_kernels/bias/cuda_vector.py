"""The vector rung: four elements of float32 in one access of 128 bits, by threads that keep to their columns.

A line (plan.py) is a run of whole rows in memory. Each thread owns four neighbouring elements of a piece of LINE
elements of it, and the same four of the lines below: the same columns every time. So its biases and its sums stay in
registers, and neighbouring threads read neighbouring memory however narrow the rows are.
"""

from ..toolchain.cuda import cuda, device, f32, i32, load4, store4, u32
from ..toolchain.cuda.halves import SINGLE
from .plan import LINE, LINES

__all__ = ["add4", "fold_and_write", "grad_vector", "lines_below", "passed4", "relu_vector", "sums_vector"]


@device
def positive(v):
    return f32(0) if v <= f32(0) else v  # written so that NaN passes


@device
def passed(g, out):
    return f32(0) if out <= f32(0) else g


@device
def lines_below(first, most, lines, line, place, size):
    """How many lines from `first` on, `most` at the most, have elements at this place: the last may be short."""
    count = min(most, i32(lines - first))
    return i32(count - 1) if place >= i32(size - i32(first + count - 1) * line) else count


@device
def positive4(v, b):
    return positive(v[0] + b[0]), positive(v[1] + b[1]), positive(v[2] + b[2]), positive(v[3] + b[3])


@device
def add4(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


@device
def passed4(g, out):
    return passed(g[0], out[0]), passed(g[1], out[1]), passed(g[2], out[2]), passed(g[3], out[3])


@SINGLE.vector("_* x, f32* bias, _* out, i32 size, u32 columns, i32 line, i32 lines, i32 tiles")
def relu_vector(x, bias, out, size, columns, line, lines, tiles):
    """x is read and out written once, four elements at a time; a thread reads four biases for LINES lines."""
    group = i32(u32(u32(cuda.blockIdx.x) // u32(tiles)))
    place = i32(i32(cuda.blockIdx.x - group * tiles) * LINE + 4 * cuda.threadIdx.x)
    first = i32(group * LINES)
    count = lines_below(first, i32(LINES), lines, line, place, size)
    if place < line and count > 0:
        c = u32(place)
        b = (
            bias[u32(c % columns)],
            bias[u32((c + 1) % columns)],
            bias[u32((c + 2) % columns)],
            bias[u32((c + 3) % columns)],
        )
        k = i32(first * line + place)
        while count >= 4:
            v0, v1 = load4(x, k), load4(x, i32(k + line))
            v2, v3 = load4(x, i32(k + 2 * line)), load4(x, i32(k + 3 * line))
            store4(out, k, positive4(v0, b))
            store4(out, i32(k + line), positive4(v1, b))
            store4(out, i32(k + 2 * line), positive4(v2, b))
            store4(out, i32(k + 3 * line), positive4(v3, b))
            k = i32(k + 4 * line)
            count = i32(count - 4)
        while count > 0:
            store4(out, k, positive4(load4(x, k), b))
            k = i32(k + line)
            count = i32(count - 1)


@device
def fold_and_write(sums, total, partial, columns, fold, tiles, part, tile):
    """Add the rows of a line pairwise, which lie one behind the other in `sums`, and write the sums of the columns."""
    thread = i32(cuda.threadIdx.x)
    store4(sums, i32(4 * thread), total)
    rows = fold
    while rows > 1:
        half = i32((rows + 1) >> 1)
        cuda.syncthreads()
        k = thread
        while k < i32((rows - half) * columns):
            sums[k] += sums[i32(k + half * columns)]
            k = i32(k + 256)
        rows = half
    cuda.syncthreads()
    k, start = thread, i32(tile * LINE)
    while k < min(LINE, i32(columns - start)):
        partial[i32(part * columns + start + k)] = sums[k]
        k = i32(k + 256)


@SINGLE.vector("_* x, f32* partial, i32 size, i32 columns, i32 fold, i32 tiles, i32 share", SINGLE.words[:1])
def sums_vector(x, partial, size, columns, fold, tiles, share):
    """x is read once, four elements at a time; each block writes the sums of its part."""
    part = i32(u32(u32(cuda.blockIdx.x) // u32(tiles)))
    tile = i32(cuda.blockIdx.x - part * tiles)
    place, line, first = i32(tile * LINE + 4 * cuda.threadIdx.x), i32(fold * columns), i32(part * share)
    lines = i32((u32(size) + u32(line) - u32(1)) // u32(line))
    count = lines_below(first, share, lines, line, place, size)
    total = f32(0), f32(0), f32(0), f32(0)
    if place < line:
        k = i32(first * line + place)
        while count >= 4:
            v0, v1 = load4(x, k), load4(x, i32(k + line))
            v2, v3 = load4(x, i32(k + 2 * line)), load4(x, i32(k + 3 * line))
            total = add4(total, add4(add4(v0, v1), add4(v2, v3)))
            k = i32(k + 4 * line)
            count = i32(count - 4)
        while count > 0:
            total = add4(total, load4(x, k))
            k = i32(k + line)
            count = i32(count - 1)
    fold_and_write(cuda.shared.array(LINE, f32, alignment=16), total, partial, columns, fold, tiles, part, tile)


@SINGLE.vector("_* g, _* out, _* dx, f32* partial, i32 size, i32 columns, i32 fold, i32 tiles, i32 share")
def grad_vector(g, out, dx, partial, size, columns, fold, tiles, share):
    """g and out are read and dx is written once, four elements at a time; each block writes its part's sums."""
    part = i32(u32(u32(cuda.blockIdx.x) // u32(tiles)))
    tile = i32(cuda.blockIdx.x - part * tiles)
    place, line, first = i32(tile * LINE + 4 * cuda.threadIdx.x), i32(fold * columns), i32(part * share)
    lines = i32((u32(size) + u32(line) - u32(1)) // u32(line))
    count = lines_below(first, share, lines, line, place, size)
    total = f32(0), f32(0), f32(0), f32(0)
    if place < line:
        k = i32(first * line + place)
        while count >= 2:
            g0, g1 = load4(g, k), load4(g, i32(k + line))
            d0, d1 = passed4(g0, load4(out, k)), passed4(g1, load4(out, i32(k + line)))
            store4(dx, k, d0)
            store4(dx, i32(k + line), d1)
            total = add4(total, add4(d0, d1))
            k = i32(k + 2 * line)
            count = i32(count - 2)
        if count > 0:
            d0 = passed4(load4(g, k), load4(out, k))
            store4(dx, k, d0)
            total = add4(total, d0)
    fold_and_write(cuda.shared.array(LINE, f32, alignment=16), total, partial, columns, fold, tiles, part, tile)
