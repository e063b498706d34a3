"""Losses and, in the same pass, their gradient for a mean or a sum with weight 1. float32.

The mean wants to know how many rows count before the first gradient is written, so every block counts them itself:
a few thousand targets, which lie in the cache. What is written has the bits of the kernels that do one thing each.
"""

from ..toolchain.cuda import cuda, f32, i32, i64, kernel, offset, unroll
from .cuda_parts import (
    LANES,
    LEAST,
    NAN,
    THREADS,
    WHOLE,
    WRONG,
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
from .cuda_warp import from_lane, loss_of, slope

__all__ = ["READY"]

ARRAYS = "f32* x, i64* target, i64 ignore_index, f32* losses, f32* logsumexp, f32* dx, i64* wrong"


def _ready(width, count):
    @kernel(f"{ARRAYS}, i32 mean, i32 rows, i32 classes, i32 bits", threads=256, blocks=2, variant=str(width))
    def loss_ready(x, target, ignore_index, losses, logsumexp, dx, wrong, mean, rows, classes, bits):
        """As loss_warp, with dx; x is read once, target once by each block."""
        bits, n, used = i32(WHOLE) if count > 1 else bits, i32(cuda.threadIdx.x), f32(0)
        while mean and n < rows:
            used += f32(0) if target[n] == ignore_index else f32(1)
            n = i32(n + THREADS)
        weight = f32(1) / (block_sum(used) if mean else f32(1))
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
            total += exp32(z)
        total, picked = log32(team_sum(total, bits)), from_lane(picked, lane, place, bits)
        far, weight = greatest + total, f32(NAN) if place == WRONG else weight
        for j in range(count):
            unroll(0)
            column = i32(lane + step * j)
            if column < own:
                dx[column] = slope(place, weight, exp32(v[j] - far), column)
        if lane == 0 and row < rows:
            losses[row] = loss_of(place, total, picked)
            logsumexp[row] = far
            if place == WRONG:
                record(wrong, row, label)

    return loss_ready


READY = {width: _ready(width, width // LANES) for width in (32, 128)}  # by the classes that a warp holds
