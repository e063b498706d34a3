"""The plain rung: one thread a row. float32 and float64.

Every element is read as often as the formula names it, so rows cost one read for each pass over them.
"""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel
from .cuda_parts import IGNORED, NAN, WRONG, exp32, greater, log32, place_of, record

__all__ = ["FORWARD", "GRAD", "LOG", "LOG_GRAD", "LOSS", "PLAIN"]


@device
def exp64(v):
    return cuda.libdevice.exp(v)


@device
def log64(v):
    return cuda.libdevice.log(v)


def _both(make):
    """{element type: kernel}"""
    return {
        np.dtype(np.float32): make("f32", f32, exp32, log32),
        np.dtype(np.float64): make("f64", f64, exp64, log64),
    }


@device
def own_row(classes):
    """(row, start, stop) of this thread."""
    row = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    start = i32(row * classes)
    return row, start, i32(start + classes)


# ---- softmax -----------------------------------------------------------------------------------------------------


def _forward(kind, real, exp, log):
    @kernel(f"{kind}* x, {kind}* out, i32 rows, i32 classes", threads=128, variant=kind)
    def forward_plain(x, out, rows, classes):
        """x is read three times, out written once."""
        row, start, stop = own_row(classes)
        if row < rows:
            greatest, total = x[start], real(0)
            for k in range(start, stop):
                greatest = greater(greatest, x[k])
            for k in range(start, stop):
                total += exp(x[k] - greatest)
            for k in range(start, stop):
                out[k] = exp(x[k] - greatest) / total

    return forward_plain


def _grad(kind, real, exp, log):
    @kernel(f"{kind}* g, {kind}* out, {kind}* dx, i32 rows, i32 classes", threads=128, variant=kind)
    def grad_plain(g, out, dx, rows, classes):
        """g and out are read twice, dx written once."""
        row, start, stop = own_row(classes)
        if row < rows:
            inner = real(0)
            for k in range(start, stop):
                inner += g[k] * out[k]
            for k in range(start, stop):
                dx[k] = out[k] * (g[k] - inner)

    return grad_plain


def _log(kind, real, exp, log):
    @kernel(f"{kind}* x, {kind}* out, i32 rows, i32 classes", threads=128, variant=kind)
    def log_plain(x, out, rows, classes):
        """x is read three times, out written once."""
        row, start, stop = own_row(classes)
        if row < rows:
            greatest, total = x[start], real(0)
            for k in range(start, stop):
                greatest = greater(greatest, x[k])
            for k in range(start, stop):
                total += exp(x[k] - greatest)
            total = log(total)
            for k in range(start, stop):
                out[k] = x[k] - greatest - total

    return log_plain


def _log_grad(kind, real, exp, log):
    @kernel(f"{kind}* g, {kind}* out, {kind}* dx, i32 rows, i32 classes", threads=128, variant=kind)
    def log_grad_plain(g, out, dx, rows, classes):
        """g is read twice, out read and dx written once."""
        row, start, stop = own_row(classes)
        if row < rows:
            total = real(0)
            for k in range(start, stop):
                total += g[k]
            for k in range(start, stop):
                dx[k] = g[k] - exp(out[k]) * total

    return log_grad_plain


# ---- cross entropy -----------------------------------------------------------------------------------------------


def _loss(kind, real, exp, log):
    arrays = f"{kind}* x, i64* target, i64 ignore_index, {kind}* losses, {kind}* logsumexp, i64* wrong"

    @kernel(f"{arrays}, i32 rows, i32 classes", threads=128, variant=kind)
    def loss_plain(x, target, ignore_index, losses, logsumexp, wrong, rows, classes):
        """x is read twice, and once more where the target is."""
        row, start, stop = own_row(classes)
        if row >= rows:
            return
        greatest, total = x[start], real(0)
        for k in range(start, stop):
            greatest = greater(greatest, x[k])
        for k in range(start, stop):
            total += exp(x[k] - greatest)
        total, place = log(total), place_of(target[row], ignore_index, classes)
        logsumexp[row] = greatest + total
        if place >= 0:
            losses[row] = (greatest - x[i32(start + place)]) + total
        else:
            losses[row] = real(0) if place == IGNORED else real(NAN)
        if place == WRONG:
            record(wrong, row, target[row])

    return loss_plain


def _with_grad(kind, real, exp, log):
    arrays = f"{kind}* x, i64* target, i64 ignore_index, {kind} scale, {kind}* losses, {kind}* dx, i64* wrong"

    @kernel(f"{arrays}, i32 rows, i32 classes", threads=128, variant=kind)
    def plain(x, target, ignore_index, scale, losses, dx, wrong, rows, classes):
        """x is read three times, and once more where the target is; dx is written once."""
        row, start, stop = own_row(classes)
        if row >= rows:
            return
        place = place_of(target[row], ignore_index, classes)
        if place == IGNORED:
            losses[row] = real(0)
            for k in range(start, stop):
                dx[k] = real(0)
            return
        greatest, total = x[start], real(0)
        for k in range(start, stop):
            greatest = greater(greatest, x[k])
        for k in range(start, stop):
            total += exp(x[k] - greatest)
        known, chosen = place != WRONG, i32(start + place)
        losses[row] = (greatest - x[chosen]) + log(total) if known else real(NAN)
        weight, share = scale if known else real(NAN), real(1) / total
        for k in range(start, stop):
            dx[k] = weight * (exp(x[k] - greatest) * share - (real(1) if k == chosen else real(0)))
        if not known:
            record(wrong, row, target[row])

    return plain


FORWARD, GRAD, LOG, LOG_GRAD = _both(_forward), _both(_grad), _both(_log), _both(_log_grad)
LOSS, PLAIN = _both(_loss), _both(_with_grad)
