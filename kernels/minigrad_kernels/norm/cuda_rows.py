"""Rows brought to mean 0 and variance 1: a team of threads owns a row (softmax/cuda_parts.py). float32 and float64.

Every row is taken about a shift, its first element, so that float32 keeps its digits where a mean is far larger than
the deviation from it; the sum of squares is about the mean. After the first pass rows are read from the cache.
"""

from ..softmax.cuda_parts import DOUBLE, SINGLE, THREADS, place_in_team
from ..toolchain.cuda import i32, i64, kernel, offset
from .cuda_parts import finite, inverse_deviation

__all__ = ["GRAD", "STANDARDIZE"]

SHAPE = "i32 rows, i32 columns, i32 bits"


def _standardize(own):
    _, kind, real, *_, team_sum, _ = own

    @kernel(f"{kind}* x, {kind}* out, {kind}* scale, {kind} eps, {SHAPE}", threads=THREADS, variant=kind)
    def standardize(x, out, scale, eps, rows, columns, bits):
        """x is read three times, out written once."""
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, out = offset(x, i64(row) * i64(columns)), offset(out, i64(row) * i64(columns))
        stop, mean, squares = columns if row < rows else i32(0), real(0), real(0)
        shift = finite(x[0]) if row < rows else real(0)
        for k in range(lane, stop, step):
            mean += x[k] - shift
        mean = team_sum(mean, bits) / real(columns)
        for k in range(lane, stop, step):
            squares += ((x[k] - shift) - mean) * ((x[k] - shift) - mean)
        factor = inverse_deviation(team_sum(squares, bits) / real(columns), eps)
        for k in range(lane, stop, step):
            out[k] = ((x[k] - shift) - mean) * factor
        if lane == 0 and row < rows:
            scale[row] = factor

    return standardize


def _grad(own):
    _, kind, real, *_, team_sum, _ = own

    @kernel(f"{kind}* g, {kind}* out, {kind}* scale, {kind}* dx, {SHAPE}", threads=THREADS, variant=kind)
    def standardize_grad(g, out, scale, dx, rows, columns, bits):
        """g and out are read twice, dx written once."""
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        start, stop = i64(row) * i64(columns), columns if row < rows else i32(0)
        g, out, dx, mean, slope = offset(g, start), offset(out, start), offset(dx, start), real(0), real(0)
        for k in range(lane, stop, step):
            mean += g[k]
            slope += g[k] * out[k]
        mean, slope = team_sum(mean, bits) / real(columns), team_sum(slope, bits) / real(columns)
        factor = scale[row] if row < rows else real(0)
        for k in range(lane, stop, step):
            dx[k] = factor * ((g[k] - mean) - out[k] * slope)

    return standardize_grad


STANDARDIZE, GRAD = ({own.name: make(own) for own in (SINGLE, DOUBLE)} for make in (_standardize, _grad))
