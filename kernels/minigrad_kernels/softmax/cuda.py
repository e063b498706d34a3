"""Softmax and cross entropy on CUDA: how their kernels are started.

A team of threads owns a row (cuda_rows.py): some lanes of a warp, or a block for very long rows. The gradient of cross
entropy from known logarithms belongs to single elements, and one block adds losses up (cuda_losses.py).

Targets on a GPU are not looked at before the launch: a row whose target is out of range becomes NaN and is reported.
"""

from ..errors import ShapeError
from ..toolchain.cuda.memory import address
from .cuda_losses import LOSS_GRAD, LOSS_SUM
from .cuda_parts import THREADS, bits_of, blocks_of
from .cuda_rows import FORWARD, GRAD, LOSS

__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "cross_entropy_total",
    "cross_entropy_total_grad",
    "log_softmax",
    "log_softmax_grad",
    "softmax",
    "softmax_grad",
]

LIMIT = (1 << 31) - THREADS  # elements: places are 32-bit inside kernels, where threads look that far ahead


def _check_size(op, x):
    if x.size >= LIMIT:
        raise ShapeError(f"{op}: x has shape {x.shape}, {x.size} elements, wants less than {LIMIT}; split the rows")


def _start(op, kernels, x, arguments):
    """Start the kernel of the type of x on its rows."""
    (rows, classes), kernel = x.shape, kernels[x.dtype.name]
    _check_size(op, x)
    if rows:
        bits = bits_of(classes)
        kernel((blocks_of(rows, bits),), (THREADS,), (*arguments, rows, classes, bits))


def softmax(x, out):
    _start("softmax", FORWARD, x, (x, out, 0))


def softmax_grad(g, out, dx):
    _start("softmax_grad", GRAD, g, (g, out, dx, 0))


def log_softmax(x, out):
    _start("log_softmax", FORWARD, x, (x, out, 1))


def log_softmax_grad(g, out, dx):
    _start("log_softmax_grad", GRAD, g, (g, out, dx, 1))


def _pointer(wrong):
    """What kernels take for null where nobody wants reports."""
    return 0 if wrong is None else wrong


def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong=None):
    _start("cross_entropy", LOSS, x, (x, target, ignore_index, losses, logsumexp, _pointer(wrong)))


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong=None):
    start = -address(workspace) % out.itemsize
    losses = workspace[start:] if start else workspace  # kernels look at its bytes as numbers
    _start("cross_entropy_total", LOSS, x, (x, target, ignore_index, losses, logsumexp, _pointer(wrong)))
    arguments = target, ignore_index, losses, out, divisor, x.shape[0], int(mean)
    LOSS_SUM[x.dtype.name]((1,), (THREADS,), arguments)


def _start_grad(op, g, divisor, x, target, ignore_index, logsumexp, dx, wrong, each):
    _check_size(op, x)
    if x.size:
        arguments = g, divisor, x, target, ignore_index, logsumexp, dx, _pointer(wrong), x.size, x.shape[1], each
        LOSS_GRAD[x.dtype.name]((-(-x.size // THREADS),), (THREADS,), arguments)


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, dx, wrong=None):
    _start_grad("cross_entropy_grad", g, g, x, target, ignore_index, logsumexp, dx, wrong, 1)


def cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong=None):
    _start_grad("cross_entropy_total_grad", g, divisor, x, target, ignore_index, logsumexp, dx, wrong, 0)
