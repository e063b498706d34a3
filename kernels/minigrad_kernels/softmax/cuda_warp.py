"""The warp rung of cross entropy with its gradient: one warp a row. float32.

Lane l owns the classes l, l + 32, l + 64 ..., so neighbouring lanes read neighbouring memory; what belongs to the
whole row goes round the lanes by shuffles. Where the classes of a lane fit into its registers, x is read once.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, unroll
from .cuda_plain import exp32, greater, log32

__all__ = ["WIDTHS", "wide"]

ALL, LANES = 0xFFFFFFFF, 32
NAN, LEAST = float("nan"), float("-inf")
ARGUMENTS = "f32* x, i64* target, i64 ignore_index, f32 scale, f32* losses, f32* dx, i32 rows, i32 classes"


@device
def greatest_of_warp(v):
    for step in (16, 8, 4, 2, 1):
        v = greater(v, cuda.shfl_xor_sync(ALL, v, step))
    return v


@device
def sum_of_warp(v):
    for step in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(ALL, v, step)
    return v


@device
def place_of(chosen, ignore_index, classes):
    """The class of a row, -1 if it is ignored, -2 if there is no such class."""
    if chosen == ignore_index:
        return i32(-1)
    return i32(chosen) if 0 <= chosen < classes else i32(-2)


@device
def loss_of(place, total, picked):
    """From x - greatest at the target; the difference first, so that the size of x does not round the logarithm."""
    loss = log32(total) - picked if place >= 0 else f32(NAN)
    return f32(0) if place == -1 else loss


@device
def slope(place, weight, probability, column):
    """An element of dx; 0 in ignored rows, whatever x is."""
    d = weight * (probability - (f32(1) if column == place else f32(0)))
    return f32(0) if place == -1 else d


def _fitting(width):
    count = width // LANES

    @kernel(ARGUMENTS, threads=256, blocks=2, variant=str(width))
    def warp(x, target, ignore_index, scale, losses, dx, rows, classes):
        """Up to `width` classes: x is read once, dx written once."""
        lane, row = i32(cuda.threadIdx.x & 31), i32(cuda.blockIdx.x * 8 + (cuda.threadIdx.x >> 5))
        if row >= rows:
            return
        x, dx = offset(x, i64(row) * i64(classes)), offset(dx, i64(row) * i64(classes))
        place = place_of(target[row], ignore_index, classes)
        v, greatest = cuda.local.array(count, f32), f32(LEAST)
        for j in range(count):
            unroll(0)
            column = i32(lane + LANES * j)
            v[j] = x[column] if column < classes else f32(LEAST)
            greatest = greater(greatest, v[j])
        greatest, total, picked = greatest_of_warp(greatest), f32(0), f32(0)
        for j in range(count):
            unroll(0)
            z = v[j] - greatest
            picked = z if place == i32(lane + LANES * j) else picked
            v[j] = exp32(z)
            total += v[j]
        total = sum_of_warp(total)
        picked = cuda.shfl_sync(ALL, picked, place & 31)
        weight, share = f32(NAN) if place == -2 else scale, f32(1) / total
        for j in range(count):
            unroll(0)
            column = i32(lane + LANES * j)
            if column < classes:
                dx[column] = slope(place, weight, v[j] * share, column)
        if lane == 0:
            losses[row] = loss_of(place, total, picked)

    return warp


WIDTHS = {width: _fitting(width) for width in (32, 128, 1024)}


@kernel(ARGUMENTS, threads=256)
def wide(x, target, ignore_index, scale, losses, dx, rows, classes):
    """Any number of classes: x is read three times, the last two mostly from cache; dx written once."""
    lane, row = i32(cuda.threadIdx.x & 31), i32(cuda.blockIdx.x * 8 + (cuda.threadIdx.x >> 5))
    if row >= rows:
        return
    x, dx = offset(x, i64(row) * i64(classes)), offset(dx, i64(row) * i64(classes))
    place = place_of(target[row], ignore_index, classes)
    greatest, total, picked = f32(LEAST), f32(0), f32(0)
    column = lane
    while column < classes:
        greatest = greater(greatest, x[column])
        column = i32(column + LANES)
    greatest, column = greatest_of_warp(greatest), lane
    while column < classes:
        z = x[column] - greatest
        picked = z if place == column else picked
        total += exp32(z)
        column = i32(column + LANES)
    total, picked, column = sum_of_warp(total), cuda.shfl_sync(ALL, picked, place & 31), lane
    weight, share = f32(NAN) if place == -2 else scale, f32(1) / total
    while column < classes:
        dx[column] = slope(place, weight, exp32(x[column] - greatest) * share, column)
        column = i32(column + LANES)
    if lane == 0:
        losses[row] = loss_of(place, total, picked)
