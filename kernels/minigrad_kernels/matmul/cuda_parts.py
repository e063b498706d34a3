"""What the kernels of all tile rungs share: their arguments, the part of the product that a block works on, the end.

blockIdx.x counts tiles down the rows of out (y and z end at 65535, x does not), y tiles across its columns, z the
matrices of a batch. Slices of K are a batch too: their matrices lie so many k apart, and the last may be shorter.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, offset

__all__ = ["BIAS", "RELU", "RESIDENT", "SIGNATURE", "WIDE", "bias_of", "finish", "least_of", "matrix", "steps_of"]

# k: the length of all sums; depth: of those of one z, at most; apart: how many k further the next z begins
# a_m ... b_n: strides in elements; a_z, b_z, out_z: from one z to the next; flags: a sum of the following
SIGNATURE = (
    "f32* a, f32* b, f32* bias, f32* out, i32 m, i32 n, i32 k, i32 depth, i32 apart, "
    "i32 a_m, i32 a_k, i32 b_k, i32 b_n, i64 a_z, i64 b_z, i64 out_z, i32 flags"
)
BIAS, RELU, WIDE = 1, 2, 4  # add the bias; then ReLU; rows of out may be written in 128-bit stores
LOWEST = float("-inf")
RESIDENT = 512  # threads that a multiprocessor has room for at least: 128 of its 65536 registers for each


@device
def matrix(first, apart):
    """This block's matrix of an operand, or of out."""
    return offset(first, i64(cuda.blockIdx.z) * apart)


@device
def steps_of(k, depth, apart):
    """How many terms of each sum this block adds."""
    return min(depth, i32(k - i32(i32(cuda.blockIdx.z) * apart)))


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
