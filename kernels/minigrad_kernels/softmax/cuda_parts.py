"""What kernels share whose threads own rows together: sums over a team of threads, and labels.

A team is 1, 2, 4, ... or 32 lanes of one warp that lie side by side, or a whole block; its size is 1 << bits. Shuffles
carry what belongs to a whole row from lane to lane, so that every thread of the team ends with the same bits; in a
block the sums of the warps are then added in order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..toolchain.cuda import cuda, device, f32, f64, global_address, i32, i64, inline_ptx, u64

__all__ = [
    "DOUBLE", "IGNORED", "LEAST", "NAN", "SINGLE", "THREADS", "WRONG", "Real", "bits_of", "blocks_of", "greater",
    "place_in_team", "place_of", "record",
]  # fmt: skip

ALL, LANES, THREADS = 0xFFFFFFFF, 32, 256
WARPS = THREADS // LANES
LONG = 4096  # elements; longer rows are given to blocks, as a warp would be at them for long while there may be few
NAN, LEAST = float("nan"), float("-inf")
IGNORED, WRONG = -1, -2  # in place of a class
LEAST_LABEL, GREATEST_LABEL = -(1 << 31), (1 << 31) - 1  # that a report has room for


# ---- rows --------------------------------------------------------------------------------------------------------


def bits_of(columns):
    """The team of rows of so many elements."""
    return 8 if columns > LONG else min((columns - 1).bit_length(), 5)


def blocks_of(rows, bits):
    """How many blocks so many rows take."""
    return -((-rows << bits) // THREADS)


@device
def place_in_team(bits):
    """(number of this thread in its team, row of the team)"""
    thread, share = i32(cuda.threadIdx.x), i32(THREADS >> bits)
    return i32(thread & i32((1 << bits) - 1)), i32(cuda.blockIdx.x * share + (thread >> bits))


@device
def greater(a, b):
    return b if b > a else a


@device
def added(a, b):
    return a + b


def _make_joined(real, join):
    @device
    def joined(v, bits):
        """The v of all threads of a team joined; all threads of the block take part."""
        step = i32((1 << min(bits, 5)) >> 1)
        while step:
            v = join(v, cuda.shfl_xor_sync(ALL, v, step))
            step = i32(step >> 1)
        if bits > 5:
            found, thread = cuda.shared.array(WARPS, real), i32(cuda.threadIdx.x)
            cuda.syncthreads()  # nobody reads what was joined before
            if thread & 31 == 0:
                found[thread >> 5] = v
            cuda.syncthreads()
            v = found[0]
            for warp in range(1, WARPS):
                v = join(v, found[warp])
        return v

    return joined


@device
def _exp32(v):
    return cuda.libdevice.expf(v)


@device
def _log32(v):
    return cuda.libdevice.logf(v)


@device
def _exp64(v):
    return cuda.libdevice.exp(v)


@device
def _log64(v):
    return cuda.libdevice.log(v)


class Real(NamedTuple):
    """An element type: its names in NumPy and in signatures, and functions of it; sum and greatest join teams."""

    name: str
    kind: str
    real: Any
    exp: Callable
    log: Callable
    sum: Callable
    greatest: Callable


SINGLE = Real("float32", "f32", f32, _exp32, _log32, _make_joined(f32, added), _make_joined(f32, greater))
DOUBLE = Real("float64", "f64", f64, _exp64, _log64, _make_joined(f64, added), _make_joined(f64, greater))


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
