"""What kernels share whose threads own rows together: sums over a team of lanes, and labels.

A team is 1, 2, 4, ... or 32 lanes of one warp that lie side by side; its size is 1 << bits. Shuffles carry what
belongs to a whole row from lane to lane, so that every lane of the team ends with the same bits.
"""

from ..toolchain.cuda import cuda, device, f32, global_address, i32, i64, inline_ptx, u64

__all__ = [
    "ALL", "IGNORED", "LANES", "LEAST", "NAN", "THREADS", "WHOLE", "WIDTHS", "WRONG", "block_greatest", "block_sum",
    "exp32", "greater", "log32", "place_in_team", "place_of", "record", "team_greatest", "team_sum",
]  # fmt: skip

ALL, LANES, THREADS = 0xFFFFFFFF, 32, 256
WARPS = THREADS // LANES
WIDTHS = (32, 128, 1024)  # elements that a warp holds in registers, at most: a lane holds 1, 4 or 32 of them
WHOLE = 5  # bits of a team that is a whole warp; as a constant, it makes constants of the places of columns
NAN, LEAST = float("nan"), float("-inf")
IGNORED, WRONG = -1, -2  # in place of a class
LEAST_LABEL, GREATEST_LABEL = -(1 << 31), (1 << 31) - 1  # that a report has room for


@device
def exp32(v):
    return cuda.libdevice.expf(v)


@device
def log32(v):
    return cuda.libdevice.logf(v)


@device
def greater(a, b):
    return b if b > a else a


# ---- rows --------------------------------------------------------------------------------------------------------


@device
def place_in_team(bits):
    """(lane, row) of this thread, where each team owns a row."""
    thread, share = i32(cuda.threadIdx.x), i32(THREADS >> bits)
    return i32(thread & i32((1 << bits) - 1)), i32(cuda.blockIdx.x * share + (thread >> bits))


@device
def team_sum(v, bits):
    step = i32((1 << bits) >> 1)
    while step:
        v += cuda.shfl_xor_sync(ALL, v, step)
        step = i32(step >> 1)
    return v


@device
def team_greatest(v, bits):
    step = i32((1 << bits) >> 1)
    while step:
        v = greater(v, cuda.shfl_xor_sync(ALL, v, step))
        step = i32(step >> 1)
    return v


@device
def block_sum(v):
    """The sum over a block of THREADS, the same in all of them: first within warps, then of the warps in order."""
    sums, thread = cuda.shared.array(WARPS, f32), i32(cuda.threadIdx.x)
    v = team_sum(v, 5)
    if thread & 31 == 0:
        sums[thread >> 5] = v
    cuda.syncthreads()
    total = sums[0]
    for warp in range(1, WARPS):
        total += sums[warp]
    return total


@device
def block_greatest(v):
    found, thread = cuda.shared.array(WARPS, f32), i32(cuda.threadIdx.x)
    v = team_greatest(v, 5)
    if thread & 31 == 0:
        found[thread >> 5] = v
    cuda.syncthreads()
    greatest = found[0]
    for warp in range(1, WARPS):
        greatest = greater(greatest, found[warp])
    return greatest


# ---- labels ------------------------------------------------------------------------------------------------------


@device
def place_of(label, ignore_index, classes):
    """The class of a row, IGNORED, or WRONG where there is no such class."""
    if label == ignore_index:
        return i32(IGNORED)
    return i32(label) if 0 <= label < classes else i32(WRONG)


_minimum = inline_ptx("minimum", "red.global.min.u64 [$0], $1;", None, [u64, u64], effects=True)


@device
def record(wrong, row, label):
    """Report a wrong label: of all that do, the smallest row stays, whichever comes first. Nowhere if wrong is null.

    The row is in the upper 32 bits, the label in the lower, as near as it fits: see wrong_label.
    """
    place = global_address(wrong, 0)
    if place != u64(0):
        near = min(max(label, i64(LEAST_LABEL)), i64(GREATEST_LABEL))
        _minimum(place, u64(i64(i64(row) << i64(32)) | i64(near & i64(0xFFFFFFFF))))
