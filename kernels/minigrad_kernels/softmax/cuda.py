"""Softmax and cross entropy on CUDA: which rung runs, and how it is started.

Rungs: plain, in which the threads of a row join in shared memory; warp, in which they shuffle, for float32. Both are
written once, in cuda_rows.py.

Targets on a GPU are not looked at before the launch: a row whose target is out of range becomes NaN and is reported.
"""

import numpy as np

from ..toolchain import elements
from .cuda_rows import ROWS, loss_grad, loss_sum
from .cuda_teams import THREADS, start, start_rung

FORWARD, GRAD, LOSS = range(3)


def softmax(x, logs, out, rung=None):
    start_rung("softmax", rung, ROWS, FORWARD, x, out, int(logs))


def softmax_grad(g, out, logs, dx, rung=None):
    start_rung("softmax_grad", rung, ROWS, GRAD, g, out, dx, int(logs))


def _word(wrong):
    """A report as a kernel compares it: NO_WRONG_LABEL is the greatest number without a sign."""
    return None if wrong is None else wrong.view(np.uint64)


def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong=None, rung=None):
    start_rung("cross_entropy", rung, ROWS, LOSS, x, target, ignore_index, losses, logsumexp, _word(wrong))


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong=None, rung=None):
    losses = elements(workspace, x, out.dtype, x.shape[0])
    cross_entropy(x, target, ignore_index, losses, logsumexp, wrong, rung)
    arguments = target, ignore_index, losses, out.reshape(1), divisor.reshape(1), int(mean)
    loss_sum[out.itemsize]((1,), (THREADS,), arguments)


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, divisor, dx, wrong=None):
    divisor = None if divisor is None else divisor.reshape(1)
    start(loss_grad, x, (g.reshape(-1), divisor, x, target, ignore_index, logsumexp, dx, _word(wrong)))
