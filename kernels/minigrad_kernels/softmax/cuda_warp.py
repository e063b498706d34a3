"""The warp rung: a team of lanes, at most a warp, owns a row whose elements fit into its registers. float32.

Lane l of a team of T owns the classes l, l + T, l + 2T, ..., so neighbouring lanes read neighbouring memory; what
belongs to the whole row goes round the lanes by shuffles. So x is read once. Rows of few classes are given to teams
of fewer lanes, several in a warp: ten classes leave 6 lanes of 16 idle, not 22 of 32.

Lanes past the last row take part in all shuffles with no classes of their own.
"""

from ..toolchain.cuda import cuda, f32, i32, i64, kernel, offset, unroll
from .cuda_parts import (
    ALL,
    IGNORED,
    LANES,
    LEAST,
    NAN,
    WHOLE,
    WIDTHS,
    WRONG,
    device,
    exp32,
    greater,
    log32,
    place_in_team,
    place_of,
    record,
    team_greatest,
    team_sum,
)

__all__ = ["FORWARD", "GRAD", "LOG", "LOG_GRAD", "LOSS", "WITH_GRAD", "from_lane", "loss_of", "slope"]

SHAPE = "i32 rows, i32 classes, i32 bits"


def _each(make):
    """{width: kernel}, where a lane holds width / LANES elements."""
    return {width: make(width, width // LANES) for width in WIDTHS}


# ---- softmax -----------------------------------------------------------------------------------------------------


def _forward(width, count):
    @kernel(f"f32* x, f32* out, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def forward_warp(x, out, rows, classes, bits):
        """x is read once, out written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, out = offset(x, i64(row) * i64(classes)), offset(out, i64(row) * i64(classes))
        own = classes if row < rows else i32(0)
        v, greatest, total = cuda.local.array(count, f32), f32(LEAST), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            v[j] = x[column] if column < own else f32(LEAST)
            greatest = greater(greatest, v[j])
        greatest = team_greatest(greatest, bits)
        for j in range(count):
            unroll(0)
            v[j] = exp32(v[j] - greatest)
            total += v[j]
        share = f32(1) / team_sum(total, bits)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                out[column] = v[j] * share

    return forward_warp


def _grad(width, count):
    @kernel(f"f32* g, f32* out, f32* dx, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def grad_warp(g, out, dx, rows, classes, bits):
        """g and out are read once, dx written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        start = i64(row) * i64(classes)
        g, out, dx = offset(g, start), offset(out, start), offset(dx, start)
        own = classes if row < rows else i32(0)
        slopes, p, inner = cuda.local.array(count, f32), cuda.local.array(count, f32), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            slopes[j] = g[column] if column < own else f32(0)
            p[j] = out[column] if column < own else f32(0)
            inner += slopes[j] * p[j]
        inner = team_sum(inner, bits)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                dx[column] = p[j] * (slopes[j] - inner)

    return grad_warp


def _log(width, count):
    @kernel(f"f32* x, f32* out, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def log_warp(x, out, rows, classes, bits):
        """x is read once, out written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, out = offset(x, i64(row) * i64(classes)), offset(out, i64(row) * i64(classes))
        own = classes if row < rows else i32(0)
        v, greatest, total = cuda.local.array(count, f32), f32(LEAST), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            v[j] = x[column] if column < own else f32(LEAST)
            greatest = greater(greatest, v[j])
        greatest = team_greatest(greatest, bits)
        for j in range(count):
            unroll(0)
            v[j] -= greatest
            total += exp32(v[j])
        total = log32(team_sum(total, bits))
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                out[column] = v[j] - total

    return log_warp


def _log_grad(width, count):
    @kernel(f"f32* g, f32* out, f32* dx, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def log_grad_warp(g, out, dx, rows, classes, bits):
        """g and out are read once, dx written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        start = i64(row) * i64(classes)
        g, out, dx = offset(g, start), offset(out, start), offset(dx, start)
        own = classes if row < rows else i32(0)
        slopes, total = cuda.local.array(count, f32), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            slopes[j] = g[column] if column < own else f32(0)
            total += slopes[j]
        total = team_sum(total, bits)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                dx[column] = slopes[j] - exp32(out[column]) * total

    return log_grad_warp


# ---- cross entropy -----------------------------------------------------------------------------------------------


@device
def loss_of(place, total, picked):
    """From x - greatest at the target; the difference first, so that the size of x does not round the logarithm."""
    loss = total - picked if place >= 0 else f32(NAN)
    return f32(0) if place == IGNORED else loss


@device
def slope(place, weight, probability, column):
    """An element of dx; 0 in ignored rows, whatever x is."""
    d = weight * (probability - (f32(1) if column == place else f32(0)))
    return f32(0) if place == IGNORED else d


@device
def from_lane(v, lane, place, bits):
    """The v of the lane of this team that owns a class."""
    return cuda.shfl_sync(ALL, v, i32((cuda.threadIdx.x & 31) - lane + (place & i32((1 << bits) - 1))))


def _loss(width, count):
    arrays = "f32* x, i64* target, i64 ignore_index, f32* losses, f32* logsumexp, i64* wrong"

    @kernel(f"{arrays}, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def loss_warp(x, target, ignore_index, losses, logsumexp, wrong, rows, classes, bits):
        """x is read once; a loss and a logarithm a row are written."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x = offset(x, i64(row) * i64(classes))
        label = target[row] if row < rows else ignore_index
        place, own = place_of(label, ignore_index, classes), classes if row < rows else i32(0)
        v, greatest, total, picked = cuda.local.array(count, f32), f32(LEAST), f32(0), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            v[j] = x[column] if column < own else f32(LEAST)
            greatest = greater(greatest, v[j])
        greatest = team_greatest(greatest, bits)
        for j in range(count):
            unroll(0)
            z = v[j] - greatest
            picked = z if place == i32(lane + step * j) else picked
            total += exp32(z)
        total, picked = log32(team_sum(total, bits)), from_lane(picked, lane, place, bits)
        if lane == 0 and row < rows:
            losses[row] = loss_of(place, total, picked)
            logsumexp[row] = greatest + total
            if place == WRONG:
                record(wrong, row, label)

    return loss_warp


def _with_grad(width, count):
    arrays = "f32* x, i64* target, i64 ignore_index, f32 scale, f32* losses, f32* dx, i64* wrong"

    @kernel(f"{arrays}, {SHAPE}", threads=256, blocks=2, variant=str(width))
    def warp(x, target, ignore_index, scale, losses, dx, wrong, rows, classes, bits):
        """x is read once, dx written once."""
        bits = i32(WHOLE) if count > 1 else bits
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, dx = offset(x, i64(row) * i64(classes)), offset(dx, i64(row) * i64(classes))
        label = target[row] if row < rows else ignore_index
        place, own = place_of(label, ignore_index, classes), classes if row < rows else i32(0)
        v, greatest, total, picked = cuda.local.array(count, f32), f32(LEAST), f32(0), f32(0)
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            v[j] = x[column] if column < own else f32(LEAST)
            greatest = greater(greatest, v[j])
        greatest = team_greatest(greatest, bits)
        for j in range(count):
            unroll(0)
            z = v[j] - greatest
            picked = z if place == i32(lane + step * j) else picked
            v[j] = exp32(z)
            total += v[j]
        total, picked = team_sum(total, bits), from_lane(picked, lane, place, bits)
        weight, share = f32(NAN) if place == WRONG else scale, f32(1) / total
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                dx[column] = slope(place, weight, v[j] * share, column)
        if lane == 0 and row < rows:
            losses[row] = loss_of(place, log32(total), picked)
            if place == WRONG:
                record(wrong, row, label)

    return warp


FORWARD, GRAD, LOG, LOG_GRAD = _each(_forward), _each(_grad), _each(_log), _each(_log_grad)
LOSS, WITH_GRAD = _each(_loss), _each(_with_grad)
