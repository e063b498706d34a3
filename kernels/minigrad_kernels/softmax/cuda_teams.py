"""Rows on CUDA: a team of threads owns a row, and what they found is joined in one of two ways.

A block has blockDim.y teams of blockDim.x lanes: 1, 2, 4, ... or 32 for rows of no more elements, 256 for long ones.
Its lanes take every blockDim.x-th element, so that neighbours read neighbouring memory. Then they join:

    plain  of float64, in shared memory: half of the lanes take what the other half has, then half of those; a barrier
           each time
    warp   of float32, by shuffles: within a warp a lane reads another one's register, so no memory and no barrier; of a
           team that is a whole block, the results of the warps are then joined in order

Source  Harris 2007, "Optimizing parallel reduction in CUDA"
"""

from ..toolchain.cuda import cuda, device, i32

ALL, LANES, THREADS = 0xFFFFFFFF, 32, 256
WARPS = THREADS // LANES
LONG = 4096  # elements; longer rows are given to blocks, as a warp would be at them for long while there may be few


def start(kernels, x, arguments):
    """Start the kernel of the type of x with a team for each of its rows."""
    rows, columns = x.shape
    lanes = THREADS if columns > LONG else min(1 << (columns - 1).bit_length(), LANES)
    if rows:
        kernels[x.itemsize]((-(-rows * lanes // THREADS),), (lanes, THREADS // lanes), arguments)


def of_both(rows_of, *joints):
    """The kernels that rows_of(way, kinds, joint) makes for each way to join, by the bytes of an element."""
    ways = zip(("plain", "warp"), (("f64",), ("f32",)), joints, strict=True)
    return [wide | single for wide, single in zip(*(rows_of(*way) for way in ways), strict=True)]


@device
def own_row(x):
    """(the row of this thread's team, how many elements it has: none beyond the last row)"""
    n = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    return n, i32(x.shape[1] if n < x.shape[0] else 0)  # of 32 bits, as the lanes: a loop over both then divides such


@device
def sum_of(a, b):
    return a + b


@device
def greater(a, b):
    return b if b > a else a


def treed(join):
    @device
    def joined(v, like):
        """The v of all lanes of a team joined; all threads of the block take part."""
        lane, half = cuda.threadIdx.x, cuda.blockDim.x // 2
        own = cuda.threadIdx.y * cuda.blockDim.x + lane
        found = cuda.shared.array(THREADS, like.dtype)
        cuda.syncthreads()  # nobody reads what was joined before
        found[own] = v
        while half:
            cuda.syncthreads()
            if lane < half:
                found[own] = join(found[own], found[own + half])
            half //= 2
        cuda.syncthreads()
        return found[own - lane]

    return joined


def shuffled(join):
    @device
    def joined(v, like):
        """As of `treed`."""
        lane, step = cuda.threadIdx.x, min(cuda.blockDim.x, LANES) // 2
        while step:
            v = join(v, cuda.shfl_xor_sync(ALL, v, step))
            step //= 2
        if cuda.blockDim.x > LANES:
            found = cuda.shared.array(WARPS, like.dtype)
            cuda.syncthreads()  # nobody reads what was joined before
            if lane % LANES == 0:
                found[lane // LANES] = v
            cuda.syncthreads()
            v = found[0]
            for warp in range(1, WARPS):
                v = join(v, found[warp])
        return v

    return joined
