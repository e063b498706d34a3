"""How sums over the rows of a matrix are split, by its shape alone, and the workspace that this takes.

The CPU folds narrow matrices: a few rows beside each other as one, so that the innermost loops are long. GPUs split
as bias/plan.py says.
"""

from ..bias.plan import cut

__all__ = ["ALIGNMENT", "SUMS", "folding", "pieces", "workspace"]

ALIGNMENT = 16  # bytes: what 128-bit accesses want
WIDE = 256  # columns; narrower matrices are folded
SUMS = {"channel_sum": 1, "batch_statistics": 1, "batch_norm_grads": 2}  # of each channel that the CPU takes at once


def folding(count, channels):
    """How many rows of channels lie beside each other in one row of the matrix that kernels of the CPU see."""
    fold = 1
    while 2 * fold * channels <= WIDE and count % (2 * fold) == 0 and count:
        fold *= 2
    return fold


def pieces(rows):
    """How many pieces the CPU cuts the rows into: at least 64 rows each, and no more than 64 pieces."""
    return min(64, max(1, rows // 64))


def workspace(function, count, channels):
    """The bytes that any device wants; sums in float64, and room to move to a multiple of the alignment."""
    fold = folding(count, channels)
    cpu = SUMS[function] * pieces(count // fold) * fold * channels
    cuda = 2 * cut(count, channels).parts * channels if count else 0
    return 8 * max(cpu, cuda) + ALIGNMENT - 1
