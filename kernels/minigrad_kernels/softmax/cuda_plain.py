"""The plain rung of cross entropy with its gradient: one thread a row. float32 and float64."""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel

__all__ = ["PLAIN", "exp32", "greater", "log32"]

NAN = float("nan")


@device
def exp32(v):
    return cuda.libdevice.expf(v)


@device
def log32(v):
    return cuda.libdevice.logf(v)


@device
def exp64(v):
    return cuda.libdevice.exp(v)


@device
def log64(v):
    return cuda.libdevice.log(v)


@device
def greater(a, b):
    return b if b > a else a


def _plain(kind, real, exp, log):
    arrays = f"{kind}* x, i64* target, i64 ignore_index, {kind} scale, {kind}* losses, {kind}* dx"

    @kernel(f"{arrays}, i32 rows, i32 classes", threads=128, variant=kind)
    def plain(x, target, ignore_index, scale, losses, dx, rows, classes):
        """Thread i owns row i. x is read three times, and once more where the target is; dx is written once."""
        row = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if row >= rows:
            return
        start, chosen = i32(row * classes), target[row]
        stop = i32(start + classes)
        if chosen == ignore_index:
            losses[row] = real(0)
            for k in range(start, stop):
                dx[k] = real(0)
            return
        greatest, total = x[start], real(0)
        for k in range(start, stop):
            greatest = greater(greatest, x[k])
        for k in range(start, stop):
            total += exp(x[k] - greatest)
        known, place = 0 <= chosen < classes, i32(start + chosen)
        losses[row] = (greatest - x[place]) + log(total) if known else real(NAN)
        weight, share = scale if known else real(NAN), real(1) / total
        for k in range(start, stop):
            dx[k] = weight * (exp(x[k] - greatest) * share - (real(1) if k == place else real(0)))

    return plain


PLAIN = {
    np.dtype(np.float32): _plain("f32", f32, exp32, log32),
    np.dtype(np.float64): _plain("f64", f64, exp64, log64),
}
