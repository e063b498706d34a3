"""Gradients of cross entropy from logarithms that are known: nothing joins the elements of a row, so threads own
elements, not rows.

plain (float32 and float64): one element a thread. vector (float32): four neighbours of one row, in 128-bit accesses.
Each comes with a weight for every row, and with one number, g / divisor, for all.
"""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel, load4, store4, u32
from .cuda_parts import IGNORED, NAN, WRONG, exp32, place_of, record
from .cuda_plain import exp64
from .cuda_warp import slope

__all__ = ["PLAIN", "PLAIN_TOTAL", "loss_grad_vector", "loss_grad_vector_total"]


def _arrays(kind, weights):
    arrays = f"{kind}* x, i64* target, i64 ignore_index, {kind}* logsumexp, {kind}* dx, i64* wrong"
    return f"{weights}, {arrays}, i32 size, i32 classes"


@device
def row_of(i, classes):
    return i32(u32(u32(i) // u32(classes)))


# ---- plain -------------------------------------------------------------------------------------------------------


def _element(real, exp):
    @device
    def element(weight, x, target, ignore_index, logsumexp, dx, wrong, i, row, classes):
        column = i32(i - row * classes)
        place = place_of(target[row], ignore_index, classes)
        if place == IGNORED:
            dx[i] = real(0)
        else:
            weight = real(NAN) if place == WRONG else weight
            dx[i] = weight * (exp(x[i] - logsumexp[row]) - (real(1) if column == place else real(0)))
        if place == WRONG and column == 0:
            record(wrong, row, target[row])

    return element


def _plain(kind, real, exp):
    element = _element(real, exp)

    @kernel(_arrays(kind, f"{kind}* g"), threads=256, variant=kind)
    def loss_grad_plain(g, x, target, ignore_index, logsumexp, dx, wrong, size, classes):
        """x is read and dx written once; g, target and logsumexp are read for each element, nearly all from cache."""
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i < size:
            row = row_of(i, classes)
            element(g[row], x, target, ignore_index, logsumexp, dx, wrong, i, row, classes)

    return loss_grad_plain


def _plain_total(kind, real, exp):
    element = _element(real, exp)

    @kernel(_arrays(kind, f"{kind}* g, {kind}* divisor"), threads=256, variant=kind)
    def loss_grad_plain_total(g, divisor, x, target, ignore_index, logsumexp, dx, wrong, size, classes):
        """As loss_grad_plain, with one weight for all rows."""
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i < size:
            weight = g[0] / divisor[0]
            element(weight, x, target, ignore_index, logsumexp, dx, wrong, i, row_of(i, classes), classes)

    return loss_grad_plain_total


def _both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32, exp32), np.dtype(np.float64): make("f64", f64, exp64)}


PLAIN, PLAIN_TOTAL = _both(_plain), _both(_plain_total)


# ---- vector ------------------------------------------------------------------------------------------------------


@device
def four_elements(weight, x, target, ignore_index, logsumexp, dx, wrong, i, row, classes):
    column = i32(i - row * classes)
    v, far = load4(x, i), logsumexp[row]
    place = place_of(target[row], ignore_index, classes)
    weight = f32(NAN) if place == WRONG else weight
    four = (
        slope(place, weight, exp32(v[0] - far), column),
        slope(place, weight, exp32(v[1] - far), i32(column + 1)),
        slope(place, weight, exp32(v[2] - far), i32(column + 2)),
        slope(place, weight, exp32(v[3] - far), i32(column + 3)),
    )
    store4(dx, i, four)
    if place == WRONG and column == 0:
        record(wrong, row, target[row])


@kernel(_arrays("f32", "f32* g"), threads=256, opcodes=("LDG.E.128", "STG.E.128"))
def loss_grad_vector(g, x, target, ignore_index, logsumexp, dx, wrong, size, classes):
    """x is read and dx written once, four elements at a time; g, target and logsumexp are read for every four."""
    i = i32((cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 4)
    if i < size:
        row = row_of(i, classes)
        four_elements(g[row], x, target, ignore_index, logsumexp, dx, wrong, i, row, classes)


@kernel(_arrays("f32", "f32* g, f32* divisor"), threads=256, opcodes=("LDG.E.128", "STG.E.128"))
def loss_grad_vector_total(g, divisor, x, target, ignore_index, logsumexp, dx, wrong, size, classes):
    """As loss_grad_vector, with one weight for all rows."""
    i = i32((cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 4)
    if i < size:
        weight = g[0] / divisor[0]
        four_elements(weight, x, target, ignore_index, logsumexp, dx, wrong, i, row_of(i, classes), classes)
