"""Softmax and cross entropy on CUDA: how the kernels of cuda_rows.py are started.

Targets on a GPU are not looked at before the launch: a row whose target is out of range becomes NaN and is reported.
"""

import numpy as np

from ..toolchain import elements
from .cuda_rows import FORWARD, GRAD, LOSS, loss_grad, loss_sum
from .cuda_teams import THREADS, start


def softmax(x, logs, out):
    start(FORWARD, x, (x, out, int(logs)))


def softmax_grad(g, out, logs, dx):
    start(GRAD, g, (g, out, dx, int(logs)))


def _word(wrong):
    """A report as a kernel compares it: NO_WRONG_LABEL is the greatest number without a sign."""
    return None if wrong is None else wrong.view(np.uint64)


def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong=None):
    start(LOSS, x, (x, target, ignore_index, losses, logsumexp, _word(wrong)))


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong=None):
    losses = elements(workspace, x, out.dtype, x.shape[0])
    cross_entropy(x, target, ignore_index, losses, logsumexp, wrong)
    arguments = target, ignore_index, losses, out.reshape(1), divisor.reshape(1), int(mean)
    loss_sum[out.itemsize]((1,), (THREADS,), arguments)


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, divisor, dx, wrong=None):
    divisor = None if divisor is None else divisor.reshape(1)
    start(loss_grad, x, (g.reshape(-1), divisor, x, target, ignore_index, logsumexp, dx, _word(wrong)))
