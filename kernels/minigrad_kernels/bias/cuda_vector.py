"""The vector rung: four elements in one access by threads that keep to their columns: 128 bits of float32, 64 of
float16 and bfloat16, whose sums are float32.

A line (plan.py) is a run of whole rows in memory. Each thread owns four neighbouring elements of a piece of LINE
elements of it, and the same four of the lines below: the same columns every time. So its sums stay in registers, and
neighbouring threads read neighbouring memory however narrow the rows are.
"""

from ..elementwise import formulas
from ..toolchain.cuda import cuda, device, f32, i32, store4, u32
from ..toolchain.cuda.halves import HALVES, SINGLE
from .plan import LINE

PLACES = "i32 size, i32 columns, i32 fold, i32 tiles, i32 share"

passed = device(formulas.passed)


@device
def own_lines(size, columns, fold, tiles, share):
    """(part, tile, place, line, first, count) of this thread: `count` lines from `first` on, 0 if it has no place."""
    part = i32(u32(u32(cuda.blockIdx.x) // u32(tiles)))
    tile = i32(cuda.blockIdx.x - part * tiles)
    place, line, first = i32(tile * LINE + 4 * cuda.threadIdx.x), i32(fold * columns), i32(part * share)
    lines = i32((u32(size) + u32(line) - u32(1)) // u32(line))
    count = min(share, i32(lines - first))
    if place >= i32(size - i32(first + count - 1) * line):  # the last line may be short
        count = i32(count - 1)
    return part, tile, place, line, first, count if place < line else i32(0)


@device
def add4(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


@device
def passed4(g, out):
    return passed(g[0], out[0]), passed(g[1], out[1]), passed(g[2], out[2]), passed(g[3], out[3])


@device
def fold_and_write(sums, total, partial, columns, fold, part, tile):
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


def _sums(half):
    load, store = half.load4, half.store4

    @half.vector(f"_* g, _* out, _* dx, f32* partial, i32 relu, {PLACES}")
    def sums_vector(g, out, dx, partial, relu, size, columns, fold, tiles, share):
        """g is read once, four elements at a time; each block writes its part's sums. With relu, out is read and dx
        written once as well."""
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        total = f32(0), f32(0), f32(0), f32(0)
        k = i32(first * line + place)
        while count >= 2:
            g0, g1 = load(g, k), load(g, i32(k + line))
            if relu:
                g0, g1 = passed4(g0, load(out, k)), passed4(g1, load(out, i32(k + line)))
                store(dx, k, g0)
                store(dx, i32(k + line), g1)
            total = add4(total, add4(g0, g1))
            k = i32(k + 2 * line)
            count = i32(count - 2)
        if count > 0:
            g0 = load(g, k)
            if relu:
                g0 = passed4(g0, load(out, k))
                store(dx, k, g0)
            total = add4(total, g0)
        fold_and_write(cuda.shared.array(LINE, f32, alignment=16), total, partial, columns, fold, part, tile)

    return sums_vector


SUMS = {half.name: _sums(half) for half in (SINGLE, *HALVES)}
