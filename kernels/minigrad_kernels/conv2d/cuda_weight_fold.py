"""The end of the rungs whose threads share the pixels of one element of dw: their sums are added within the block."""

from ..matmul.cuda_vector import QUAD
from ..toolchain.cuda import cuda, device, i32, load4, store4, unroll

__all__ = ["make_fold"]


def make_fold(rows):
    """A function that adds the sums of the lanes pairwise; each thread has those of `rows` rows of four columns."""

    @device
    def fold(memory, total, lane, lanes, member, unit):
        """Leaves them with lane 0. A lane has `unit` threads; memory: of lanes // 2 of them, for all their sums."""
        while lanes > 1:
            half = i32((lanes + 1) >> 1)
            apart = i32(i32((lanes - half) * unit) * QUAD)  # from one row to the next
            cuda.syncthreads()
            if half <= lane and lane < lanes:
                place = i32(i32(i32((lane - half) * unit) + member) * QUAD)
                for i in range(rows):
                    unroll(0)
                    k = i * QUAD
                    store4(memory, place, (total[k], total[k + 1], total[k + 2], total[k + 3]))
                    place = i32(place + apart)
            cuda.syncthreads()
            if lane < i32(lanes - half):
                place = i32(i32(i32(lane * unit) + member) * QUAD)
                for i in range(rows):
                    unroll(0)
                    k, four = i * QUAD, load4(memory, place)
                    total[k] += four[0]
                    total[k + 1] += four[1]
                    total[k + 2] += four[2]
                    total[k + 3] += four[3]
                    place = i32(place + apart)
            lanes = half

    return fold
