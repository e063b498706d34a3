"""Gradients of cross entropy from logarithms that are known: nothing joins the elements of a row, so threads own
elements, not rows.

plain (float32 and float64): one element a thread. vector (float32): four neighbours of one row, in 128-bit accesses.
"""

import numpy as np

from ..toolchain.cuda import cuda, f32, f64, i32, kernel, load4, store4, u32
from .cuda_parts import IGNORED, NAN, WRONG, exp32, place_of, record
from .cuda_plain import exp64
from .cuda_warp import slope

__all__ = ["PLAIN", "loss_grad_vector"]


def _plain(kind, real, exp):
    arrays = f"{kind}* g, {kind}* x, i64* target, i64 ignore_index, {kind}* logsumexp, {kind}* dx, i64* wrong"

    @kernel(f"{arrays}, i32 size, i32 classes", threads=256, variant=kind)
    def loss_grad_plain(g, x, target, ignore_index, logsumexp, dx, wrong, size, classes):
        """x is read and dx written once; g, target and logsumexp are read for each element, nearly all from cache."""
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i < size:
            row = i32(u32(u32(i) // u32(classes)))
            column = i32(i - row * classes)
            place = place_of(target[row], ignore_index, classes)
            if place == IGNORED:
                dx[i] = real(0)
            else:
                weight = real(NAN) if place == WRONG else g[row]
                dx[i] = weight * (exp(x[i] - logsumexp[row]) - (real(1) if column == place else real(0)))
            if place == WRONG and column == 0:
                record(wrong, row, target[row])

    return loss_grad_plain


PLAIN = {np.dtype(np.float32): _plain("f32", f32, exp32), np.dtype(np.float64): _plain("f64", f64, exp64)}


@kernel(
    "f32* g, f32* x, i64* target, i64 ignore_index, f32* logsumexp, f32* dx, i64* wrong, i32 size, i32 classes",
    threads=256,
    opcodes=("LDG.E.128", "STG.E.128"),
)
def loss_grad_vector(g, x, target, ignore_index, logsumexp, dx, wrong, size, classes):
    """x is read and dx written once, four elements at a time; g, target and logsumexp are read for every four."""
    i = i32((cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 4)
    if i < size:
        row = i32(u32(u32(i) // u32(classes)))
        column = i32(i - row * classes)
        v, far = load4(x, i), logsumexp[row]
        place = place_of(target[row], ignore_index, classes)
        weight = f32(NAN) if place == WRONG else g[row]
        four = (
            slope(place, weight, exp32(v[0] - far), column),
            slope(place, weight, exp32(v[1] - far), i32(column + 1)),
            slope(place, weight, exp32(v[2] - far), i32(column + 2)),
            slope(place, weight, exp32(v[3] - far), i32(column + 3)),
        )
        store4(dx, i, four)
        if place == WRONG and column == 0:
            record(wrong, row, target[row])
