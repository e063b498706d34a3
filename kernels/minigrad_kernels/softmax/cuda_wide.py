"""Rows that do not fit into the registers of a warp: read once for each pass, from memory or cache. float32.

`wide` gives a row to one warp; `block` to a whole block of 256 threads, for rows so long that a warp would be at
them for long while there may be few. Both are the same kernel but for who owns a row and how its sums are joined.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset
from .cuda_parts import (
    LANES,
    LEAST,
    NAN,
    THREADS,
    WRONG,
    block_greatest,
    block_sum,
    exp32,
    greater,
    log32,
    place_in_team,
    place_of,
    record,
    team_greatest,
    team_sum,
)
from .cuda_warp import loss_of, slope

__all__ = ["BLOCK", "FORWARD", "GRAD", "LOG", "LOG_GRAD", "LOSS", "WITH_GRAD"]

BLOCK = 4096  # classes; longer rows are given to blocks
SHAPE = "i32 rows, i32 classes"


@device
def place_in_warp():
    return place_in_team(i32(5))


@device
def warp_sum(v):
    return team_sum(v, i32(5))


@device
def warp_greatest(v):
    return team_greatest(v, i32(5))


@device
def place_in_block():
    return i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)


def _each(make):
    """{threads of a row: kernel}"""
    return {
        LANES: make("", LANES, place_in_warp, warp_sum, warp_greatest),
        THREADS: make("block", THREADS, place_in_block, block_sum, block_greatest),
    }


# ---- softmax -----------------------------------------------------------------------------------------------------


def _forward(name, step, own_place, joined_sum, joined_greatest):
    @kernel(f"f32* x, f32* out, {SHAPE}", threads=256, variant=name)
    def forward_wide(x, out, rows, classes):
        """x is read three times, out written once."""
        lane, row = own_place()
        if row >= rows:
            return
        x, out = offset(x, i64(row) * i64(classes)), offset(out, i64(row) * i64(classes))
        greatest, total, column = f32(LEAST), f32(0), lane
        while column < classes:
            greatest = greater(greatest, x[column])
            column = i32(column + step)
        greatest, column = joined_greatest(greatest), lane
        while column < classes:
            total += exp32(x[column] - greatest)
            column = i32(column + step)
        share, column = f32(1) / joined_sum(total), lane
        while column < classes:
            out[column] = exp32(x[column] - greatest) * share
            column = i32(column + step)

    return forward_wide


def _grad(name, step, own_place, joined_sum, joined_greatest):
    @kernel(f"f32* g, f32* out, f32* dx, {SHAPE}", threads=256, variant=name)
    def grad_wide(g, out, dx, rows, classes):
        """g and out are read twice, dx written once."""
        lane, row = own_place()
        if row >= rows:
            return
        start = i64(row) * i64(classes)
        g, out, dx = offset(g, start), offset(out, start), offset(dx, start)
        inner, column = f32(0), lane
        while column < classes:
            inner += g[column] * out[column]
            column = i32(column + step)
        inner, column = joined_sum(inner), lane
        while column < classes:
            dx[column] = out[column] * (g[column] - inner)
            column = i32(column + step)

    return grad_wide


def _log(name, step, own_place, joined_sum, joined_greatest):
    @kernel(f"f32* x, f32* out, {SHAPE}", threads=256, variant=name)
    def log_wide(x, out, rows, classes):
        """x is read three times, out written once."""
        lane, row = own_place()
        if row >= rows:
            return
        x, out = offset(x, i64(row) * i64(classes)), offset(out, i64(row) * i64(classes))
        greatest, total, column = f32(LEAST), f32(0), lane
        while column < classes:
            greatest = greater(greatest, x[column])
            column = i32(column + step)
        greatest, column = joined_greatest(greatest), lane
        while column < classes:
            total += exp32(x[column] - greatest)
            column = i32(column + step)
        total, column = log32(joined_sum(total)), lane
        while column < classes:
            out[column] = x[column] - greatest - total
            column = i32(column + step)

    return log_wide


def _log_grad(name, step, own_place, joined_sum, joined_greatest):
    @kernel(f"f32* g, f32* out, f32* dx, {SHAPE}", threads=256, variant=name)
    def log_grad_wide(g, out, dx, rows, classes):
        """g is read twice, out read and dx written once."""
        lane, row = own_place()
        if row >= rows:
            return
        start = i64(row) * i64(classes)
        g, out, dx = offset(g, start), offset(out, start), offset(dx, start)
        total, column = f32(0), lane
        while column < classes:
            total += g[column]
            column = i32(column + step)
        total, column = joined_sum(total), lane
        while column < classes:
            dx[column] = g[column] - exp32(out[column]) * total
            column = i32(column + step)

    return log_grad_wide


# ---- cross entropy -----------------------------------------------------------------------------------------------


def _loss(name, step, own_place, joined_sum, joined_greatest):
    arrays = "f32* x, i64* target, i64 ignore_index, f32* losses, f32* logsumexp, i64* wrong"

    @kernel(f"{arrays}, {SHAPE}", threads=256, variant=name)
    def loss_wide(x, target, ignore_index, losses, logsumexp, wrong, rows, classes):
        """x is read twice; a loss and a logarithm a row are written."""
        lane, row = own_place()
        if row >= rows:
            return
        x, place = offset(x, i64(row) * i64(classes)), place_of(target[row], ignore_index, classes)
        greatest, total, picked, column = f32(LEAST), f32(0), f32(0), lane
        while column < classes:
            greatest = greater(greatest, x[column])
            column = i32(column + step)
        greatest, column = joined_greatest(greatest), lane
        while column < classes:
            z = x[column] - greatest
            picked = z if place == column else picked
            total += exp32(z)
            column = i32(column + step)
        total, picked = log32(joined_sum(total)), joined_sum(picked)
        if lane == 0:
            losses[row] = loss_of(place, total, picked)
            logsumexp[row] = greatest + total
            if place == WRONG:
                record(wrong, row, target[row])

    return loss_wide


def _with_grad(name, step, own_place, joined_sum, joined_greatest):
    arrays = "f32* x, i64* target, i64 ignore_index, f32 scale, f32* losses, f32* dx, i64* wrong"

    @kernel(f"{arrays}, {SHAPE}", threads=256, variant=name)
    def wide(x, target, ignore_index, scale, losses, dx, wrong, rows, classes):
        """x is read three times, dx written once."""
        lane, row = own_place()
        if row >= rows:
            return
        x, dx = offset(x, i64(row) * i64(classes)), offset(dx, i64(row) * i64(classes))
        place = place_of(target[row], ignore_index, classes)
        greatest, total, picked, column = f32(LEAST), f32(0), f32(0), lane
        while column < classes:
            greatest = greater(greatest, x[column])
            column = i32(column + step)
        greatest, column = joined_greatest(greatest), lane
        while column < classes:
            z = x[column] - greatest
            picked = z if place == column else picked
            total += exp32(z)
            column = i32(column + step)
        total, picked, column = joined_sum(total), joined_sum(picked), lane
        weight, share = f32(NAN) if place == WRONG else scale, f32(1) / total
        while column < classes:
            dx[column] = slope(place, weight, exp32(x[column] - greatest) * share, column)
            column = i32(column + step)
        if lane == 0:
            losses[row] = loss_of(place, log32(total), picked)
            if place == WRONG:
                record(wrong, row, target[row])

    return wide


FORWARD, GRAD, LOG, LOG_GRAD = _each(_forward), _each(_grad), _each(_log), _each(_log_grad)
LOSS, WITH_GRAD = _each(_loss), _each(_with_grad)
