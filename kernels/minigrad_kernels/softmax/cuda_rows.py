"""Softmax, its gradients and the losses of rows: a team of threads owns a row. float32 and float64.

Rows are read once for each pass over them, after the first from the cache.
"""

from ..toolchain.cuda import i32, i64, kernel, offset
from .cuda_parts import DOUBLE, IGNORED, LEAST, NAN, SINGLE, THREADS, WRONG, greater, place_in_team, place_of, record

__all__ = ["FORWARD", "GRAD", "LOSS"]

SHAPE = "i32 rows, i32 classes, i32 bits"


def _forward(own):
    _, kind, real, exp, log, team_sum, team_greatest = own

    @kernel(f"{kind}* x, {kind}* out, i32 logs, {SHAPE}", threads=THREADS, variant=kind)
    def forward(x, out, logs, rows, classes, bits):
        """The shares of the exponentials of each row, or their logarithms. x is read three times, out written once."""
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, out = offset(x, i64(row) * i64(classes)), offset(out, i64(row) * i64(classes))
        stop, greatest, total = classes if row < rows else i32(0), real(LEAST), real(0)
        for k in range(lane, stop, step):
            greatest = greater(greatest, x[k])
        greatest = team_greatest(greatest, bits)
        for k in range(lane, stop, step):
            total += exp(x[k] - greatest)
        total = team_sum(total, bits)
        shift, share = log(total), real(1) / total
        for k in range(lane, stop, step):
            z = x[k] - greatest
            out[k] = z - shift if logs else exp(z) * share

    return forward


def _grad(own):
    _, kind, real, exp, _, team_sum, _ = own

    @kernel(f"{kind}* g, {kind}* out, {kind}* dx, i32 logs, {SHAPE}", threads=THREADS, variant=kind)
    def grad(g, out, dx, logs, rows, classes, bits):
        """g and out are read twice, out of logarithms once; dx is written once."""
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        start, stop = i64(row) * i64(classes), classes if row < rows else i32(0)
        g, out, dx, inner = offset(g, start), offset(out, start), offset(dx, start), real(0)
        for k in range(lane, stop, step):
            inner += g[k] if logs else g[k] * out[k]
        inner = team_sum(inner, bits)
        for k in range(lane, stop, step):
            dx[k] = g[k] - exp(out[k]) * inner if logs else out[k] * (g[k] - inner)

    return grad


def _loss(own):
    _, kind, real, exp, log, team_sum, team_greatest = own
    arrays = f"{kind}* x, i64* target, i64 ignore_index, {kind}* losses, {kind}* logsumexp, i64* wrong"

    @kernel(f"{arrays}, {SHAPE}", threads=THREADS, variant=kind)
    def loss(x, target, ignore_index, losses, logsumexp, wrong, rows, classes, bits):
        """x is read twice; a loss and a logarithm a row are written.

        A loss comes from x - greatest at the target, so that the size of x does not round the logarithm.
        """
        (lane, row), step = place_in_team(bits), i32(1 << bits)
        x, stop = offset(x, i64(row) * i64(classes)), classes if row < rows else i32(0)
        label = target[row] if row < rows else ignore_index
        place = place_of(label, ignore_index, classes)
        greatest, total, picked = real(LEAST), real(0), real(0)
        for k in range(lane, stop, step):
            greatest = greater(greatest, x[k])
        greatest = team_greatest(greatest, bits)
        for k in range(lane, stop, step):
            z = x[k] - greatest
            picked = z if place == k else picked
            total += exp(z)
        total, picked = log(team_sum(total, bits)), team_sum(picked, bits)
        if lane == 0 and row < rows:
            found = total - picked if place >= 0 else real(NAN)
            losses[row] = real(0) if place == IGNORED else found
            logsumexp[row] = greatest + total
            if place == WRONG:
                record(wrong, row, label)

    return loss


FORWARD, GRAD, LOSS = ({own.name: make(own) for own in (SINGLE, DOUBLE)} for make in (_forward, _grad, _loss))
