"""What the kernels of all tile rungs share: their arguments, the part of the product that a block works on, the end.

blockIdx.x counts tiles down the rows of out (y and z end at 65535, x does not), y tiles across its columns. z counts
the slices of K of the first matrix of a batch, then those of the next one; the last slice of each may be shorter.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, load4, offset, u32

__all__ = [
    "BIAS", "NOTHING", "RELU", "RESIDENT", "RESIDUAL", "SIGNATURE", "WIDE", "bias_of", "finish", "finish_beside",
    "least_of", "operand", "residual4", "slice_of", "steps_of",
]  # fmt: skip

# k: the length of all sums; depth: of a slice of them, at most; slices: how many there are
# a_m ... b_n: strides in elements; a_z, b_z: from one matrix of the batch to the next; out_z: from one z to the next
# flags: a sum of the following
SIGNATURE = (
    "f32* a, f32* b, f32* bias, f32* residual, f32* out, i32 m, i32 n, i32 k, i32 depth, i32 slices, "
    "i32 a_m, i32 a_k, i32 b_k, i32 b_n, i64 a_z, i64 b_z, i64 out_z, i32 flags"
)
BIAS, RELU, WIDE = 1, 2, 4  # add the bias; then ReLU; rows of out may be written in 128-bit stores
RESIDUAL = 16  # before ReLU, add an array that lies as out does
LOWEST, NOTHING = float("-inf"), -0.0  # what changes no bit of the number that it is compared with, or added to
RESIDENT = 512  # threads that a multiprocessor has room for at least: 128 of its 65536 registers for each


@device
def slice_of(slices):
    """The matrix of this block in the batch, and the slice of its sums."""
    z, count = u32(cuda.blockIdx.z), u32(slices)
    if count == u32(1):  # as mostly, and a division takes long
        return i32(z), i32(0)
    matrix = u32(z // count)
    return i32(matrix), i32(z - u32(matrix * count))


@device
def operand(first, place, apart, slice_apart):
    """Where this block's part of a or b begins; place: what slice_of gives."""
    return offset(first, i64(place[0]) * apart + i64(place[1]) * slice_apart)


@device
def steps_of(k, depth, place):
    """How many terms of each sum this block adds."""
    return min(depth, i32(k - i32(place[1] * depth)))


@device
def bias_of(bias, column, flags):
    """What to add to the sums of a column."""
    return bias[column] if flags & BIAS else f32(0)


@device
def least_of(flags):
    """The least value that a result may have. Comparing with it leaves no branch in the loop that writes results."""
    return f32(0) if flags & RELU else f32(LOWEST)


@device
def finish(total, added, least):
    """A sum with bias and ReLU, written so that NaN passes."""
    total += added
    return least if total <= least else total


@device
def finish_beside(total, added, least, residual, place, flags):
    """finish, with an element of the residual, if there is one, in between."""
    total += added
    if flags & RESIDUAL:
        total += residual[place]
    return least if total <= least else total


@device
def residual4(residual, place, left, flags):
    """Four neighbours of the residual, of which so many are left in the row."""
    first, second, third, fourth = f32(0), f32(0), f32(0), f32(0)
    if flags & WIDE:
        if left > 0:
            four = load4(residual, place)
            first, second, third, fourth = four[0], four[1], four[2], four[3]
    else:
        first = residual[place] if left > 0 else f32(0)
        second = residual[place + 1] if left > 1 else f32(0)
        third = residual[place + 2] if left > 2 else f32(0)
        fourth = residual[place + 3] if left > 3 else f32(0)
    return first, second, third, fourth
