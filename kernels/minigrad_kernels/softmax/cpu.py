"""Softmax and cross entropy on the CPU: threads share the rows, and each row takes three steps.

    load    a formula over the row (toolchain/lines.py) adds up what its elements give, lane by lane
    join    the lanes become one number
    finish  another formula writes the row's results

The greatest element is subtracted before exp, so that nothing overflows. Sums are of float64. A row with NaN or +inf,
or of -inf alone, gives NaN, as in PyTorch. Losses and their gradients write nothing where a target is no class, and say
whether they did; so nothing is written into `wrong`.
"""

import math

import numpy as np

from ..toolchain import clear, elements, flat, jit, share, shared, stack_array
from ..toolchain.lines import LANES, lane_greatest, lane_total, line
from ..toolchain.maths import exp

SHORT = 1024  # losses that are added one by one
LIKE = np.zeros(1)  # the type of sums


# ---- formulas --------------------------------------------------------------------------------------------------------


@line(moving="x", totals="greatest")
def load_greatest(here):
    here.greatest = here.x.where(here.greatest <= here.x, here.greatest)  # written so that NaN is passed over


@line(moving="x", totals="total", numbers="by")
def load_exps(here):
    here.total += exp(here.x - here.by)


@line(moving="x", totals="total")
def load(here):
    here.total += here.x


@line(moving="x y", totals="total")
def load_products(here):
    here.total += here.x * here.y


@line(moving="x out", numbers="by factor")
def finish_exps(here):
    here.out = exp(here.x - here.by) * here.factor


@line(moving="x out", numbers="by further")
def finish_logs(here):
    here.out = (here.x - here.by) - here.further


@line(moving="g out dx", numbers="inner")
def finish_grad(here):
    here.dx = here.out * (here.g - here.inner)


@line(moving="g out dx", numbers="total")
def finish_log_grad(here):
    here.dx = here.g - exp(here.out) * here.total


# ---- rows ------------------------------------------------------------------------------------------------------------


@jit
def greatest_and_total(x, start, columns, like):
    """The greatest element of a row, and the sum of exp(x - greatest)."""
    lanes, sums = stack_array(LANES, x), stack_array(LANES, like)
    for k in range(LANES):
        lanes[k] = -np.inf
    load_greatest(start, columns, x, lanes)
    greatest = lane_greatest(lanes)
    clear(sums)
    load_exps(start, columns, x, sums, greatest)
    return greatest, lane_total(sums)


@shared
def forward(team, x, logs, like, out):
    kind, columns, x, out = x.dtype.type, x.shape[1], flat(x), flat(out)
    for n in share(x.size // columns, team):
        start = n * columns
        greatest, total = greatest_and_total(x, start, columns, like)
        if logs:
            finish_logs(start, columns, x, out, greatest, kind(math.log(total)))
        else:
            finish_exps(start, columns, x, out, greatest, kind(1 / total))


@shared
def grad(team, g, out, logs, like, dx):
    kind, columns, g, out, dx = g.dtype.type, g.shape[1], flat(g), flat(out), flat(dx)
    sums = stack_array(LANES, like)
    for n in share(g.size // columns, team):
        start = n * columns
        clear(sums)
        if logs:
            load(start, columns, g, sums)
            finish_log_grad(start, columns, g, out, dx, kind(lane_total(sums)))
        else:
            load_products(start, columns, g, out, sums)
            finish_grad(start, columns, g, out, dx, kind(lane_total(sums)))


@shared
def losses_of_rows(team, x, target, ignore_index, like, losses, logsumexp):
    columns = x.shape[1]
    for n in share(x.shape[0], team):
        greatest, total = greatest_and_total(flat(x), n * columns, columns, like)
        total = math.log(total)
        logsumexp[n] = greatest + total
        # Not logsumexp - x[target]: that would round the logarithm to the size of the logits first.
        losses[n] = 0 if target[n] == ignore_index else (greatest - x[n, target[n]]) + total


@shared
def grad_of_rows(team, g, divisor, x, target, ignore_index, logsumexp, dx):
    """g holds what arrived at each row, or one number for all."""
    columns = x.shape[1]
    for n in share(x.shape[0], team):
        weight = g[n % g.size] / divisor
        if target[n] == ignore_index:
            clear(dx[n])
        else:
            finish_exps(n * columns, columns, flat(x), flat(dx), logsumexp[n], weight)
            dx[n, target[n]] -= weight


@jit
def name_classes(target, ignore_index, classes):
    """Whether all targets that count are among so many classes."""
    good = True
    for n in range(target.size):
        # Without a sign a negative number is huge.
        good &= (np.uint64(target[n]) < np.uint64(classes)) | (target[n] == ignore_index)
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


# ---- what launchers call ---------------------------------------------------------------------------------------------


def softmax(x, logs, out):
    forward.over(x.size, x, logs, LIKE, out)


def softmax_grad(g, out, logs, dx):
    grad.over(g.size, g, out, logs, LIKE, dx)


def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong):
    good = name_classes(target, ignore_index, x.shape[1])
    if good:
        losses_of_rows.over(x.size, x, target, ignore_index, LIKE, losses, logsumexp)
    return good


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong):
    losses = elements(workspace, x, out.dtype, x.shape[0])
    good = cross_entropy(x, target, ignore_index, losses, logsumexp, wrong)
    if good:
        add_losses(losses, target, ignore_index, mean, out, divisor)
    return good


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, divisor, dx, wrong):
    good = name_classes(target, ignore_index, x.shape[1])
    if good:
        divisor = x.dtype.type(1) if divisor is None else divisor[()]
        grad_of_rows.over(x.size, g.reshape(-1), divisor, x, target, ignore_index, logsumexp, dx)
    return good
