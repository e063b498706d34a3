"""Softmax, cross entropy and their gradients on CUDA: a team of threads owns a row (cuda_teams.py).

Rows are read once for each pass over them, after the first from the cache. `rows_of` writes each kernel once for both
ways in which a team joins what its lanes found.
"""

import math

from ..toolchain.cuda import cuda, device, each_float
from .cuda_teams import THREADS, greater, of_both, own_row, shuffled, sum_of, treed

LEAST, NAN = float("-inf"), float("nan")
IGNORED, WRONG = -1, -2  # in place of a class
LEAST_LABEL, GREATEST_LABEL = -(1 << 31), (1 << 31) - 1  # that a report has room for


# ---- labels ----------------------------------------------------------------------------------------------------------


@device
def place_of(label, ignore_index, classes):
    """The class of a row, IGNORED, or WRONG where there is no such class."""
    if label == ignore_index:
        return IGNORED
    return label if 0 <= label < classes else WRONG


@device
def record(wrong, row, label):
    """Report a wrong label: of all that do, the smallest row stays, whichever comes first.

    The row is in the upper 32 bits, the label in the lower, as near as it fits: see wrong_label.
    """
    if wrong.size:
        near = min(max(label, LEAST_LABEL), GREATEST_LABEL)
        cuda.atomic.min(wrong, 0, wrong.dtype.type(row << 32 | near & 0xFFFFFFFF))


# ---- rows ------------------------------------------------------------------------------------------------------------


def rows_of(way, kinds, joined):
    """(forward, grad, loss) whose teams join in this way."""
    team_sum, team_greatest = joined(sum_of), joined(greater)
    settings = dict(threads=THREADS, variant=way, kinds=kinds)

    @each_float("_[:,:] x, _[:,:] out, i32 logs", **settings)
    def forward(x, out, logs):
        """The shares of the exponentials of each row, or their logarithms. x is read three times, out written once."""
        (n, columns), lane, lanes = own_row(x), cuda.threadIdx.x, cuda.blockDim.x
        greatest, total = x.dtype.type(LEAST), x.dtype.type(0)
        for c in range(lane, columns, lanes):
            greatest = greater(greatest, x[n, c])
        greatest = team_greatest(greatest, x)
        for c in range(lane, columns, lanes):
            total += math.exp(x[n, c] - greatest)
        total = team_sum(total, x)
        if columns:
            shift, share = math.log(total), x.dtype.type(1) / total
            for c in range(lane, columns, lanes):
                z = x[n, c] - greatest
                out[n, c] = z - shift if logs else math.exp(z) * share

    @each_float("_[:,:] g, _[:,:] out, _[:,:] dx, i32 logs", **settings)
    def grad(g, out, dx, logs):
        """g and out are read twice, out of logarithms once; dx is written once."""
        (n, columns), lane, lanes = own_row(g), cuda.threadIdx.x, cuda.blockDim.x
        inner = g.dtype.type(0)
        for c in range(lane, columns, lanes):
            inner += g[n, c] if logs else g[n, c] * out[n, c]
        inner = team_sum(inner, g)
        for c in range(lane, columns, lanes):
            dx[n, c] = g[n, c] - math.exp(out[n, c]) * inner if logs else out[n, c] * (g[n, c] - inner)

    @each_float("_[:,:] x, i64[:] target, i64 ignore_index, _[:] losses, _[:] logsumexp, u64[:] wrong", **settings)
    def loss(x, target, ignore_index, losses, logsumexp, wrong):
        """x is read twice; a loss and a logarithm a row are written.

        A loss comes from x - greatest at the target, so that the size of x does not round the logarithm.
        """
        (n, columns), lane, lanes = own_row(x), cuda.threadIdx.x, cuda.blockDim.x
        greatest, total = x.dtype.type(LEAST), x.dtype.type(0)
        for c in range(lane, columns, lanes):
            greatest = greater(greatest, x[n, c])
        greatest = team_greatest(greatest, x)
        for c in range(lane, columns, lanes):
            total += math.exp(x[n, c] - greatest)
        total = team_sum(total, x)
        if lane == 0 and columns:
            logarithm, place = math.log(total), place_of(target[n], ignore_index, columns)
            logsumexp[n] = greatest + logarithm
            losses[n] = NAN if place == WRONG else 0
            if place >= 0:
                losses[n] = logarithm - (x[n, place] - greatest)
            if place == WRONG:
                record(wrong, n, target[n])

    return forward, grad, loss


FORWARD, GRAD, LOSS = of_both(rows_of, treed, shuffled)


@each_float(
    "_[:] g, _[:] divisor, _[:,:] x, i64[:] target, i64 ignore_index, _[:] logsumexp, _[:,:] dx, u64[:] wrong",
    threads=THREADS,
)
def loss_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong):
    """Nothing joins the elements of a row: x is read and dx written once.

    g holds what arrived at each row, or one number for all; without a divisor it is 1.
    """
    (n, columns), lane, lanes = own_row(x), cuda.threadIdx.x, cuda.blockDim.x
    if columns:
        place, weight = place_of(target[n], ignore_index, columns), g[n if g.size > 1 else 0]
        if divisor.size:
            weight /= divisor[0]
        if place == WRONG:
            weight = x.dtype.type(NAN)
        for c in range(lane, columns, lanes):
            d = math.exp(x[n, c] - logsumexp[n]) - x.dtype.type(1 if c == place else 0)
            dx[n, c] = 0 if place == IGNORED else weight * d  # in ignored rows whatever x is
        if lane == 0 and place == WRONG:
            record(wrong, n, target[n])


# ---- all losses ------------------------------------------------------------------------------------------------------

block_sum = treed(sum_of)


@each_float("i64[:] target, i64 ignore_index, _[:] losses, _[:] out, _[:] divisor, i32 mean", threads=THREADS)
def loss_sum(target, ignore_index, losses, out, divisor, mean):
    """The only block reads losses and targets once: its threads take every 256th, their sums are joined pairwise. Of
    each addition a thread keeps what rounding took or gave, as Kahan does.

    It writes the sum and 1, or the mean and how many rows count.
    """
    zero = losses.dtype.type(0)
    total, lost, count = zero, zero, zero
    for n in range(cuda.threadIdx.x, losses.size, THREADS):
        before, term = total, losses[n] - lost
        total += term
        rounded = (total - before) - term  # what the sum has too much: the next loss makes up for it
        lost = rounded if rounded == rounded else zero  # an infinite loss stays infinite
        count += losses.dtype.type(0 if target[n] == ignore_index else 1)
    total, count = block_sum(total, losses), block_sum(count, losses)
    if cuda.threadIdx.x == 0:
        divisor[0] = count if mean else 1
        out[0] = total / divisor[0]
