"""The vector rung: thread i owns elements 4i to 4i+3, which it reads and writes at once: float32 in 128-bit accesses,
float16 and bfloat16 in 64-bit ones, computed in float32 and rounded once.

Every array is read or written once, as by the plain rung, in a quarter of the requests. Four elements are one block
of Philox, so dropout draws each block once. What is left at the end of an array, the last thread does one by one.
"""

from ..toolchain.cuda import device, f32, i32, u32, u64
from ..toolchain.cuda.halves import HALVES, SINGLE, each
from .cuda_plain import erf32, philox, thread

__all__ = ["KERNELS", "passed", "positive"]


@device
def positive(v):
    return f32(0) if v <= f32(0) else v  # written so that NaN passes


@device
def passed(g, out):
    return f32(0) if out <= f32(0) else g


@device
def leaky(v, x, slope):
    return v if x > f32(0) else v * slope


@device
def kept(v, word, threshold, scale):
    return v * (scale if word >= threshold else f32(0))


def _relu(half):
    load4, store4, widen, narrow = half.load4, half.store4, half.widen, half.narrow

    @half.vector("_* x, _* out, i32 size")
    def relu_vector(x, out, size):
        k = i32(4 * thread())
        if i32(k + 4) <= size:
            v0, v1, v2, v3 = load4(x, k)
            store4(out, k, (positive(v0), positive(v1), positive(v2), positive(v3)))
            return
        while k < size:
            out[k] = narrow(positive(widen(x[k])))
            k = i32(k + 1)

    return relu_vector


def _relu_grad(half):
    load4, store4, widen, narrow = half.load4, half.store4, half.widen, half.narrow

    @half.vector("_* g, _* out, _* dx, i32 size")
    def relu_grad_vector(g, out, dx, size):
        k = i32(4 * thread())
        if i32(k + 4) <= size:
            g0, g1, g2, g3 = load4(g, k)
            y0, y1, y2, y3 = load4(out, k)
            store4(dx, k, (passed(g0, y0), passed(g1, y1), passed(g2, y2), passed(g3, y3)))
            return
        while k < size:
            dx[k] = narrow(passed(widen(g[k]), widen(out[k])))
            k = i32(k + 1)

    return relu_grad_vector


def _leaky_relu(half):
    load4, store4, widen, narrow = half.load4, half.store4, half.widen, half.narrow

    @half.vector("_* x, _* out, i32 size, f32 slope")
    def leaky_relu_vector(x, out, size, slope):
        k = i32(4 * thread())
        if i32(k + 4) <= size:
            v0, v1, v2, v3 = load4(x, k)
            store4(out, k, (leaky(v0, v0, slope), leaky(v1, v1, slope), leaky(v2, v2, slope), leaky(v3, v3, slope)))
            return
        while k < size:
            out[k] = narrow(leaky(widen(x[k]), widen(x[k]), slope))
            k = i32(k + 1)

    return leaky_relu_vector


def _leaky_relu_grad(half):
    load4, store4, widen, narrow = half.load4, half.store4, half.widen, half.narrow

    @half.vector("_* g, _* x, _* dx, i32 size, f32 slope")
    def leaky_relu_grad_vector(g, x, dx, size, slope):
        k = i32(4 * thread())
        if i32(k + 4) <= size:
            g0, g1, g2, g3 = load4(g, k)
            v0, v1, v2, v3 = load4(x, k)
            store4(dx, k, (leaky(g0, v0, slope), leaky(g1, v1, slope), leaky(g2, v2, slope), leaky(g3, v3, slope)))
            return
        while k < size:
            dx[k] = narrow(leaky(widen(g[k]), widen(x[k]), slope))
            k = i32(k + 1)

    return leaky_relu_grad_vector


def _erf(half):
    load4, store4, widen, narrow = half.load4, half.store4, half.widen, half.narrow

    @half.vector("_* x, _* out, i32 size")
    def erf_vector(x, out, size):
        k = i32(4 * thread())
        if i32(k + 4) <= size:
            v0, v1, v2, v3 = load4(x, k)
            store4(out, k, (erf32(v0), erf32(v1), erf32(v2), erf32(v3)))
            return
        while k < size:
            out[k] = narrow(erf32(widen(x[k])))
            k = i32(k + 1)

    return erf_vector


def _dropout(half):
    load4, store4, widen, narrow = half.load4, half.store4, half.widen, half.narrow

    @half.vector("_* x, _* out, i32 size, u32 threshold, f32 scale, u64* key, u64 step, u64 block")
    def dropout_vector(x, out, size, threshold, scale, key, step, block):
        """`block` is the number of the Philox block whose first word belongs to the first element."""
        t = thread()
        k = i32(4 * t)
        w0, w1, w2, w3 = philox(block + u64(t), key[0], key[1] + step)
        if i32(k + 4) <= size:
            v0, v1, v2, v3 = load4(x, k)
            low = kept(v0, w0, threshold, scale), kept(v1, w1, threshold, scale)
            store4(out, k, (*low, kept(v2, w2, threshold, scale), kept(v3, w3, threshold, scale)))
            return
        word = w0
        while k < size:
            out[k] = narrow(kept(widen(x[k]), word, threshold, scale))
            k = i32(k + 1)
            word = w1 if u32(k) & u32(3) == u32(1) else w2 if u32(k) & u32(3) == u32(2) else w3

    return dropout_vector


MAKERS = {
    "relu": _relu,
    "relu_grad": _relu_grad,
    "leaky_relu": _leaky_relu,
    "leaky_relu_grad": _leaky_relu_grad,
    "erf": _erf,
    "dropout": _dropout,
}
KERNELS = {op: each(make, SINGLE, *HALVES) for op, make in MAKERS.items()}
