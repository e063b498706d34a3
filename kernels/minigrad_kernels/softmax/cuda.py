"""Softmax and cross entropy on CUDA: which rung runs, and how it is started.

Rungs: plain (cuda_plain.py), one thread a row; warp, lanes of a warp own a row, which they read once where it fits
into their registers (cuda_warp.py), else once for each pass (cuda_wide.py: a warp, or a block for very long rows).
The gradient of cross entropy from known logarithms belongs to single elements (cuda_flat.py): plain and vector.
Losses are added up by one kernel, which has no rungs (cuda_total.py). Of few rows and classes the gradient is written
in the pass that computes the losses (cuda_ready.py).

Targets on a GPU are not looked at before the launch: a row whose target is out of range becomes NaN and is reported.
"""

import numpy as np

from ..errors import ShapeError
from ..toolchain.cuda.memory import VECTOR, address, aligned, kept
from ..toolchain.cuda.rungs import choose
from . import cuda_flat, cuda_plain, cuda_ready, cuda_total, cuda_warp, cuda_wide
from .cuda_parts import LANES, THREADS, WIDTHS
from .plan import READY_CLASSES, READY_ROWS, SHARE, parts

__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "cross_entropy_total",
    "cross_entropy_total_grad",
    "cross_entropy_total_with_grad",
    "cross_entropy_with_grad",
    "log_softmax",
    "log_softmax_grad",
    "softmax",
    "softmax_grad",
]

LIMIT = (1 << 31) - THREADS  # elements: places are 32-bit inside kernels, where threads look that far ahead
PLAIN = 128  # threads of a block of the plain rung


def _check_size(op, x):
    if x.size >= LIMIT:
        raise ShapeError(f"{op}: x has shape {x.shape}, {x.size} elements, wants less than {LIMIT}; split the rows")


def _start(op, rung, x, arguments, plain, warp, wide):
    """Start the kernel of a rung on the rows of x: that of its type, of its width, or of its threads a row."""
    rows, classes = x.shape
    _check_size(op, x)
    rung = choose(op, rung, {"plain": None, "warp": None if x.dtype == np.float32 else "float32"})
    if not rows:
        return
    if rung == "plain":
        plain[x.dtype]((-(-rows // PLAIN),), (PLAIN,), (*arguments, rows, classes))
        return
    width = next((width for width in WIDTHS if classes <= width), None)
    if width is None:
        own = THREADS if classes > cuda_wide.BLOCK else LANES
        wide[own]((-(-rows * own // THREADS),), (THREADS,), (*arguments, rows, classes))
        return
    bits = min((classes - 1).bit_length(), 5)
    warp[width]((-((-rows << bits) // THREADS),), (THREADS,), (*arguments, rows, classes, bits))


def softmax(x, out, rung=None):
    _start("softmax", rung, x, (x, out), cuda_plain.FORWARD, cuda_warp.FORWARD, cuda_wide.FORWARD)


def softmax_grad(g, out, dx, rung=None):
    _start("softmax_grad", rung, g, (g, out, dx), cuda_plain.GRAD, cuda_warp.GRAD, cuda_wide.GRAD)


def log_softmax(x, out, rung=None):
    _start("log_softmax", rung, x, (x, out), cuda_plain.LOG, cuda_warp.LOG, cuda_wide.LOG)


def log_softmax_grad(g, out, dx, rung=None):
    _start("log_softmax_grad", rung, g, (g, out, dx), cuda_plain.LOG_GRAD, cuda_warp.LOG_GRAD, cuda_wide.LOG_GRAD)


def _pointer(wrong):
    """What kernels take for null where nobody wants reports."""
    return 0 if wrong is None else wrong


def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong=None, rung=None):
    arguments = x, target, ignore_index, losses, logsumexp, _pointer(wrong)
    _start("cross_entropy", rung, x, arguments, cuda_plain.LOSS, cuda_warp.LOSS, cuda_wide.LOSS)


def _start_flat(op, rung, weights, x, arguments, dx, wrong, plain, vector):
    """Start the kernel of a rung on the elements of x."""
    _check_size(op, x)
    fits = x.dtype == np.float32 and x.shape[1] % 4 == 0 and aligned(x, dx)
    wish = f"float32, a number of classes that is a multiple of 4, and addresses that are multiples of {VECTOR}"
    rung = choose(op, rung, {"plain": None, "vector": None if fits else wish})
    if x.size:
        kernel, each = (plain[x.dtype], 1) if rung == "plain" else (vector, 4)
        arguments = *weights, x, *arguments, dx, _pointer(wrong), x.size, x.shape[1]
        kernel((-(-x.size // (THREADS * each)),), (THREADS,), arguments)


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, dx, wrong=None, rung=None):
    kernels = cuda_flat.PLAIN, cuda_flat.loss_grad_vector
    _start_flat("cross_entropy_grad", rung, (g,), x, (target, ignore_index, logsumexp), dx, wrong, *kernels)


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong=None, rung=None):
    count, size = parts(x.shape[0]), out.itemsize
    start = -address(workspace) % size
    losses = workspace[start:] if start else workspace  # kernels look at its bytes as numbers
    arguments = x, target, ignore_index, losses, logsumexp, _pointer(wrong)
    _start("cross_entropy_total", rung, x, arguments, cuda_plain.LOSS, cuda_warp.LOSS, cuda_wide.LOSS)
    _add(x, target, ignore_index, mean, out, divisor, losses, count)


def _add(x, target, ignore_index, mean, out, divisor, losses, count):
    """Start what adds up losses, in so many parts; the workspace begins with the losses."""
    rows, size = x.shape[0], out.itemsize
    add, wish = cuda_total.SUMS[x.dtype], cuda_total.MEAN if mean else cuda_total.SUM
    if count == 1:
        add((1,), (THREADS,), (target, ignore_index, losses, out, divisor, rows, SHARE, wish))
        return
    sums = losses[size * rows :]
    counts = sums[size * count :]
    add((count,), (THREADS,), (target, ignore_index, losses, sums, counts, rows, SHARE, cuda_total.PART))
    cuda_total.JOINED[x.dtype]((1,), (THREADS,), (out, divisor, sums, counts, count, wish))


def cross_entropy_total_with_grad(
    x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong, dx, rung=None
):
    op, (rows, classes) = "cross_entropy_total_with_grad", x.shape
    fits = x.dtype == np.float32 and classes <= READY_CLASSES and rows <= READY_ROWS
    rung = choose(op, rung, {"plain": None, "warp": None if fits else "float32, few rows and few classes"})
    if rung == "plain" or not rows:
        cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong)
        one = kept(np.ones((), x.dtype), x)
        cross_entropy_total_grad(one, divisor, x, target, ignore_index, logsumexp, dx, wrong)
        return
    width, bits = next(width for width in cuda_ready.READY if classes <= width), min((classes - 1).bit_length(), 5)
    losses = workspace[-address(workspace) % out.itemsize :]
    arguments = x, target, ignore_index, losses, logsumexp, dx, _pointer(wrong), int(mean), rows, classes, bits
    cuda_ready.READY[width]((-((-rows << bits) // THREADS),), (THREADS,), arguments)
    _add(x, target, ignore_index, mean, out, divisor, losses, 1)


def cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong=None, rung=None):
    kernels, op = (cuda_flat.PLAIN_TOTAL, cuda_flat.loss_grad_vector_total), "cross_entropy_total_grad"
    _start_flat(op, rung, (g, divisor), x, (target, ignore_index, logsumexp), dx, wrong, *kernels)


def cross_entropy_with_grad(x, target, ignore_index, scale, losses, dx, wrong=None, rung=None):
    arguments = x, target, ignore_index, float(scale), losses, dx, _pointer(wrong)
    op = "cross_entropy_with_grad"
    _start(op, rung, x, arguments, cuda_plain.PLAIN, cuda_warp.WITH_GRAD, cuda_wide.WITH_GRAD)
