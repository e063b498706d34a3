"""Cross entropy with its gradient on CUDA: which rung runs, and how it is started.

Rungs: plain, one thread a row; warp, one warp a row, which it reads once where its classes fit into registers.
Targets on a GPU are not looked at before the launch: a row whose target is out of range becomes NaN.
"""

import numpy as np

from ..errors import ShapeError
from ..toolchain.cuda.rungs import choose
from . import cuda_plain, cuda_warp

__all__ = ["cross_entropy_with_grad"]

LIMIT = (1 << 31) - 32  # elements: places are 32-bit inside kernels, where lanes look 32 elements ahead
THREADS = 128
WARPS = 8  # rows of a block


def cross_entropy_with_grad(x, target, ignore_index, scale, losses, dx, rung=None):
    op = "cross_entropy_with_grad"
    rows, classes = x.shape
    if x.size >= LIMIT:
        raise ShapeError(f"{op}: x has shape {x.shape}, {x.size} elements, wants less than {LIMIT}; split the rows")
    rung = choose(op, rung, {"plain": None, "warp": None if x.dtype == np.float32 else "float32"})
    if not rows:
        return
    arguments = x, target, ignore_index, float(scale), losses, dx, rows, classes
    if rung == "plain":
        cuda_plain.PLAIN[x.dtype]((-(-rows // THREADS),), (THREADS,), arguments)
        return
    kernel = next((kernel for width, kernel in cuda_warp.WIDTHS.items() if classes <= width), cuda_warp.wide)
    kernel((-(-rows // WARPS),), (32 * WARPS,), arguments)
