"""Beside the ladder of the matrix product: sums in slices, for few results with long sums."""

from ..toolchain.cuda import bits, cuda, f32, i32, i64, kernel, offset, u16, u32, unroll
from ..toolchain.cuda.halves import BF16, F16, SINGLE
from ..toolchain.cuda.memory import address, aligned
from .cuda_end import BIAS, RELU, RESIDUAL, SUMS, WIDE, finish, least_of

WIDTH, HEIGHT = 32, 8  # of a block of threads: results at least, and threads for each of them at most
THREADS = WIDTH * HEIGHT


def make_add(half):
    pointer, single, widen, narrow = half.pointer, half is SINGLE, half.widen, half.narrow
    arrays = ", ".join(f"{pointer} {name}" for name in ("bias", "residual", "out"))
    signature = f"f32* partial, {arrays}, i32 size, i32 n, i32 slices, i64 out_z, i32 flags"

    @kernel(signature, threads=THREADS, lowest=half.lowest, variant="" if single else half.name)
    def add(partial, bias, residual, out, size, n, slices, out_z, flags):
        """One idea: slices of each sum are products of their own, and fill a GPU that the tiles alone would not.

        Any tile rung writes the products of the slices to the workspace. Here row y of a block's threads, of which
        there are h, adds every h-th slice; then the h sums of a result are added pairwise. That order follows from the
        number of slices alone, and so do the bits. blockIdx.y is the matrix of the batch; size is M * N, and out_z how
        far the matrices of out lie apart.

        Traffic    that of the tile rung; besides, slices * M * N floats are written once and read once
        """
        sums = cuda.shared.array(THREADS, f32)
        y, height = i32(cuda.threadIdx.y), i32(cuda.blockDim.y)
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        matrix, total = i64(cuda.blockIdx.y), f32(0)
        if i < size:
            part = offset(partial, (matrix * slices + y) * size + i)
            while y < slices:
                unroll(4)  # loads that are on their way together
                total += part[0]
                part = offset(part, height * i64(size))
                y = i32(y + height)
        own = i32(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
        sums[own] = total
        y, half = i32(cuda.threadIdx.y), i32(height >> 1)
        while half:
            cuda.syncthreads()
            if y < half:
                sums[own] += sums[i32(own + half * cuda.blockDim.x)]
            half = i32(half >> 1)
        if y == 0 and i < size:
            column, place = i32(u32(u32(i) % u32(n))), matrix * out_z + i
            added = widen(bias[column]) if flags & BIAS else f32(0)
            more = widen(residual[place]) if flags & RESIDUAL else f32(0)
            found = finish(sums[own] + added, more, least_of(flags))
            if not single and flags & SUMS:
                word = bits(found)
                out[2 * place] = u16(word & u32(0xFFFF))
                out[2 * place + 1] = u16(word >> u32(16))
            else:
                out[place] = narrow(found)

    return add


ADD = {half.name: make_add(half) for half in (SINGLE, F16, BF16)}  # by the type of bias and out


# ---- launches --------------------------------------------------------------------------------------------------------


def in_slices(plan, arguments, like, bias, relu, residual, out, workspace, columns, groups=1, count=1):
    """Launches (kernel, grid, block, arguments, dynamic shared memory) of a plan's kernel: alone, or before `add`.

    arguments: from (bias, residual, out, flags), see cuda_end.py, to those of the kernel; 0: such an array is not there
    like: an operand; columns: of out, in so many groups; count: of matrices in out

    Pointers of the kernel have elements such as those of the operands, so a larger out is given by its address.
    """
    size, quads = out.size // count, columns // groups % 4 == 0
    flags = BIAS * (bias is not None) + RELU * bool(relu) + RESIDUAL * (residual is not None)
    flags += WIDE * (quads and aligned(out) and (residual is None or aligned(residual)))
    if out.itemsize > like.itemsize:
        out, flags = address(out), flags + SUMS
    end = 0 if bias is None else bias, 0 if residual is None else residual, out
    if plan.slices == 1:
        yield plan.kernel, plan.grid, plan.block, arguments(*end, flags), plan.shared
        return
    partial = workspace(4 * count * plan.slices * size, like)
    own = WIDE * quads + SUMS * (like.itemsize == 2)
    yield plan.kernel, plan.grid, plan.block, arguments(0, 0, partial, own), plan.shared
    height = min(HEIGHT, 1 << (plan.slices - 1).bit_length())  # no thread without a slice of its own
    given = partial, *end, size, columns, plan.slices, size, flags
    width = THREADS // height
    yield ADD[like.dtype.name], (-(-size // width), count), (width, height), given, 0
