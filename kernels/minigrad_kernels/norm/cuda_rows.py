"""Rows brought to mean 0 and variance 1: the plain rung, one thread a row (float32 and float64), and the warp rung.

Every row is taken about a shift, its first element, so that float32 keeps its digits where a mean is far larger than
the deviation from it; the sum of squares is about the mean.

The warp rung (float32) gives a row to a team of lanes, which reads it once where it fits into their registers (as
softmax/cuda_warp.py); longer rows are given to blocks, which read them once for each pass, mostly from cache.
"""

from ..bias.cuda_plain import thread
from ..elementwise.cuda_plain import both
from ..softmax.cuda_parts import LANES, THREADS, WHOLE, WIDTHS, block_sum, place_in_team, team_sum
from ..toolchain.cuda import cuda, f32, i32, i64, kernel, offset, unroll
from .cuda_parts import finite, inverse_deviation

__all__ = ["GRAD", "PLAIN", "PLAIN_GRAD", "STANDARDIZE", "standardize_block", "standardize_grad_block"]

SHAPE = "i32 rows, i32 columns, i32 bits"


# ---- plain -------------------------------------------------------------------------------------------------------


def _standardize_plain(kind, real):
    arrays = f"{kind}* x, {kind}* out, {kind}* scale"

    @kernel(f"{arrays}, {kind} eps, i32 rows, i32 columns", threads=128, variant=kind)
    def standardize_plain(x, out, scale, eps, rows, columns):
        """x is read three times, out written once."""
        row = thread()
        if row < rows:
            start = i32(row * columns)
            stop, shift, mean, squares = i32(start + columns), finite(x[start]), real(0), real(0)
            for k in range(start, stop):
                mean += x[k] - shift
            mean /= real(columns)
            for k in range(start, stop):
                squares += ((x[k] - shift) - mean) * ((x[k] - shift) - mean)
            factor = inverse_deviation(squares / real(columns), eps)
            for k in range(start, stop):
                out[k] = ((x[k] - shift) - mean) * factor
            scale[row] = factor

    return standardize_plain


def _grad_plain(kind, real):
    arrays = f"{kind}* g, {kind}* out, {kind}* scale, {kind}* dx"

    @kernel(f"{arrays}, i32 rows, i32 columns", threads=128, variant=kind)
    def standardize_grad_plain(g, out, scale, dx, rows, columns):
        """g and out are read twice, dx written once."""
        row = thread()
        if row < rows:
            start = i32(row * columns)
            stop, mean, slope = i32(start + columns), real(0), real(0)
            for k in range(start, stop):
                mean += g[k]
                slope += g[k] * out[k]
            mean /= real(columns)
            slope /= real(columns)
            for k in range(start, stop):
                dx[k] = scale[row] * ((g[k] - mean) - out[k] * slope)

    return standardize_grad_plain


PLAIN, PLAIN_GRAD = both(_standardize_plain), both(_grad_plain)

# ---- warp --------------------------------------------------------------------------------------------------------


def _standardize(width, count):
    @kernel(f"f32* x, f32* out, f32* scale, f32 eps, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def standardize_warp(x, out, scale, eps, rows, columns, bits):
        """x is read once, out written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, out = offset(x, i64(row) * i64(columns)), offset(out, i64(row) * i64(columns))
        own = columns if row < rows else i32(0)
        v, mean, squares = cuda.local.array(count, f32), f32(0), f32(0)
        shift = finite(x[0]) if row < rows else f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            v[j] = x[column] - shift if column < own else f32(0)
            mean += v[j]
        mean = team_sum(mean, bits) / f32(columns)
        for j in range(count):
            unroll(0)
            v[j] -= mean
            squares += v[j] * v[j] if i32(lane + step * j) < own else f32(0)
        factor = inverse_deviation(team_sum(squares, bits) / f32(columns), eps)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                out[column] = v[j] * factor
        if lane == 0 and row < rows:
            scale[row] = factor

    return standardize_warp


def _grad(width, count):
    @kernel(f"f32* g, f32* out, f32* scale, f32* dx, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def standardize_grad_warp(g, out, scale, dx, rows, columns, bits):
        """g and out are read once, dx written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        start = i64(row) * i64(columns)
        g, out, dx = offset(g, start), offset(out, start), offset(dx, start)
        own = columns if row < rows else i32(0)
        v, z, mean, slope = cuda.local.array(count, f32), cuda.local.array(count, f32), f32(0), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            v[j] = g[column] if column < own else f32(0)
            z[j] = out[column] if column < own else f32(0)
            mean += v[j]
            slope += v[j] * z[j]
        mean, slope = team_sum(mean, bits) / f32(columns), team_sum(slope, bits) / f32(columns)
        factor = scale[row] if row < rows else f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                dx[column] = factor * ((v[j] - mean) - z[j] * slope)

    return standardize_grad_warp


STANDARDIZE, GRAD = ({width: make(width, width // LANES) for width in WIDTHS} for make in (_standardize, _grad))


@kernel("f32* x, f32* out, f32* scale, f32 eps, i32 columns", threads=256)
def standardize_block(x, out, scale, eps, columns):
    """A row a block: x is read three times, out written once."""
    first, row = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
    x, out = offset(x, i64(row) * i64(columns)), offset(out, i64(row) * i64(columns))
    shift, mean, squares, column = finite(x[0]), f32(0), f32(0), first
    while column < columns:
        mean += x[column] - shift
        column = i32(column + THREADS)
    mean, column = block_sum(mean) / f32(columns), first
    while column < columns:
        d = (x[column] - shift) - mean
        squares += d * d
        column = i32(column + THREADS)
    factor, column = inverse_deviation(block_sum(squares) / f32(columns), eps), first
    while column < columns:
        out[column] = ((x[column] - shift) - mean) * factor
        column = i32(column + THREADS)
    if first == 0:
        scale[row] = factor


@kernel("f32* g, f32* out, f32* scale, f32* dx, i32 columns", threads=256)
def standardize_grad_block(g, out, scale, dx, columns):
    """A row a block: g and out are read twice, dx written once."""
    first, row = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
    start = i64(row) * i64(columns)
    g, out, dx = offset(g, start), offset(out, start), offset(dx, start)
    mean, slope, column = f32(0), f32(0), first
    while column < columns:
        mean += g[column]
        slope += g[column] * out[column]
        column = i32(column + THREADS)
    mean, slope, column = block_sum(mean) / f32(columns), block_sum(slope) / f32(columns), first
    while column < columns:
        dx[column] = scale[row] * ((g[column] - mean) - out[column] * slope)
        column = i32(column + THREADS)
