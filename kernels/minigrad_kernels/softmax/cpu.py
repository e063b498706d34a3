"""Softmax and cross entropy on the CPU: every thread owns blocks of rows.

The greatest element is subtracted before exp, so that nothing overflows. A row with NaN or +inf, or of -inf alone,
gives NaN, as in PyTorch. The launcher has looked at the targets, so nothing is written into `wrong`. It need not have
for cross_entropy_total and its gradient: they write nothing where a target is no class, and say whether they did.
"""

import numpy as np

from ..toolchain import clear, copy, elements, flat, jit, share, shared, stack_array
from ..toolchain.lines import row_shift
from .cpu_parts import BLOCK, block, blocks, exps, exps_of_rows, logs, shift, sum_of, sums_of_exps
from .plan import FEW, SMALL, alone

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

SHORT = 1024  # losses that are added one by one


@jit
def softmax_rows(x, out):
    greatest, totals = stack_array(BLOCK, x), stack_array(BLOCK, x)
    exps_of_rows(x, greatest, totals, flat(out))
    for n in range(x.shape[0]):
        row, total = out[n], totals[n]
        for k in range(row.size):
            row[k] /= total


@shared
def softmax(team, x, out):
    for number in share(blocks(x), team):
        here = block(x, number)
        softmax_rows(x[here], out[here])


@jit
def product_sum(g, out, products):
    """The sum of g * out, which products has room for."""
    for k in range(g.size):
        products[k] = g[k] * out[k]
    return sum_of(products)


@jit
def softmax_grad_row(g, out, dx):
    inner = product_sum(g, out, dx)
    for k in range(g.size):
        dx[k] = out[k] * (g[k] - inner)


@shared
def softmax_grad(team, g, out, dx):
    for n in share(g.shape[0], team):
        softmax_grad_row(g[n], out[n], dx[n])


@jit
def log_softmax_rows(x, out):
    greatest, totals = stack_array(BLOCK, x), stack_array(BLOCK, x)
    sums_of_exps(x, greatest, totals)
    logs(totals[: x.shape[0]])
    for n in range(x.shape[0]):
        row_shift(x[n], greatest[n], totals[n], out[n])


@shared
def log_softmax(team, x, out):
    for number in share(blocks(x), team):
        here = block(x, number)
        log_softmax_rows(x[here], out[here])


@jit
def log_softmax_grad_rows(g, out, dx):
    copy(flat(out), flat(dx))
    exps(flat(dx))
    for n in range(g.shape[0]):
        g_row, row, total = g[n], dx[n], sum_of(g[n])
        for k in range(row.size):
            row[k] = g_row[k] - row[k] * total


@shared
def log_softmax_grad(team, g, out, dx):
    for number in share(blocks(g), team):
        here = block(g, number)
        log_softmax_grad_rows(g[here], out[here], dx[here])


@jit
def cross_entropy_rows(x, target, ignore_index, losses, logsumexp):
    greatest, totals = stack_array(BLOCK, x), stack_array(BLOCK, x)
    sums_of_exps(x, greatest, totals)
    logs(totals[: x.shape[0]])
    for n in range(x.shape[0]):
        t = target[n]
        logsumexp[n] = greatest[n] + totals[n]
        # Not logsumexp - x[target]: that would round the logarithm to the size of the logits first.
        losses[n] = losses.dtype.type(0) if t == ignore_index else (greatest[n] - x[n, t]) + totals[n]


@shared
def cross_entropy(team, x, target, ignore_index, losses, logsumexp, wrong):
    for number in share(blocks(x), team):
        here = block(x, number)
        cross_entropy_rows(x[here], target[here], ignore_index, losses[here], logsumexp[here])


@jit
def cross_entropy_grad_rows(g, step, x, target, ignore_index, logsumexp, dx):
    """g[n * step] is what arrived at row n."""
    one = dx.dtype.type(1)
    for n in range(x.shape[0]):
        shift(x[n], logsumexp[n], dx[n])
    exps(flat(dx))
    for n in range(x.shape[0]):
        row, weight, t = dx[n], g[n * step], target[n]
        if t == ignore_index:
            clear(row)
        else:
            row[t] -= one
            for k in range(row.size):
                row[k] *= weight


@shared
def cross_entropy_grad(team, g, x, target, ignore_index, logsumexp, dx, wrong):
    for number in share(blocks(x), team):
        here = block(x, number)
        cross_entropy_grad_rows(g[here], 1, x[here], target[here], ignore_index, logsumexp[here], dx[here])


@jit
def name_classes(target, ignore_index, classes):
    """Whether all targets that count are among so many classes."""
    good = True
    for n in range(target.size):
        # Without a sign a negative number is huge.
        good &= (np.uint64(target[n]) < np.uint64(classes)) | (target[n] == ignore_index)
    return good


@jit
def total_grad_rows(weight, x, target, ignore_index, logsumexp, dx):
    g = stack_array(1, x)
    g[0] = weight
    cross_entropy_grad_rows(g, 0, x, target, ignore_index, logsumexp, dx)


@shared
def cross_entropy_grad_blocks(team, g, divisor, x, target, ignore_index, logsumexp, dx):
    weight = g[()] / divisor[()]
    for number in share(blocks(x), team):
        here = block(x, number)
        total_grad_rows(weight, x[here], target[here], ignore_index, logsumexp[here], dx[here])


@jit
def cross_entropy_grad_alone(g, divisor, x, target, ignore_index, logsumexp, dx):
    if not name_classes(target, ignore_index, x.shape[1]):
        return False
    weight = g[()] / divisor[()]
    for number in range(blocks(x)):
        here = block(x, number)
        total_grad_rows(weight, x[here], target[here], ignore_index, logsumexp[here], dx[here])
    return True


def cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong):
    if x.size < SMALL:
        return cross_entropy_grad_alone(g, divisor, x, target, ignore_index, logsumexp, dx)
    good = name_classes(target, ignore_index, x.shape[1])
    if good:
        cross_entropy_grad_blocks(g, divisor, x, target, ignore_index, logsumexp, dx)
    return good


@jit
def add_losses(losses, target, ignore_index, mean, out, divisor):
    """In float64; every SHORT of them first by themselves, so that a long sum of float64 loses little."""
    total, count = 0.0, 0
    for start in range(0, losses.size, SHORT):
        short = 0.0
        for n in range(start, min(start + SHORT, losses.size)):
            short += losses[n]
            count += target[n] != ignore_index
        total += short
    divisor[()] = count if mean else 1
    out[()] = total / divisor[()]


@jit
def cross_entropy_alone(x, target, ignore_index, mean, out, divisor, logsumexp):
    """cross_entropy_total of few enough rows that their losses stay on the stack."""
    if not name_classes(target, ignore_index, x.shape[1]):
        return False
    losses = stack_array(FEW, x, x.shape[0])
    for number in range(blocks(x)):
        here = block(x, number)
        cross_entropy_rows(x[here], target[here], ignore_index, losses[here], logsumexp[here])
    add_losses(losses, target, ignore_index, mean, out, divisor)
    return True


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong):
    if alone(*x.shape):
        return cross_entropy_alone(x, target, ignore_index, mean, out, divisor, logsumexp)
    good = name_classes(target, ignore_index, x.shape[1])
    if good:
        losses = elements(workspace, out.dtype, x.shape[0])
        kernel = cross_entropy.alone if x.size < SMALL else cross_entropy
        kernel(x, target, ignore_index, losses, logsumexp, wrong)
        add_losses(losses, target, ignore_index, mean, out, divisor)
    return good
