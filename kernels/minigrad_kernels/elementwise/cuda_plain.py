"""The plain rung: thread i owns element i. Every array is read or written once. float32 and float64."""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel, u32, u64, unroll

__all__ = [
    "DROPOUT", "ERF", "LEAKY_RELU", "LEAKY_RELU_GRAD", "RELU", "RELU_GRAD", "both", "philox", "thread",
]  # fmt: skip


@device
def thread():
    """The number of this thread in the whole grid."""
    return i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)


def _relu(kind, real):
    @kernel(f"{kind}* x, {kind}* out, i32 size", threads=256, variant=kind)
    def relu_plain(x, out, size):
        i = thread()
        if i < size:
            v = x[i]
            out[i] = real(0) if v <= real(0) else v  # written so that NaN passes

    return relu_plain


def _relu_grad(kind, real):
    @kernel(f"{kind}* g, {kind}* out, {kind}* dx, i32 size", threads=256, variant=kind)
    def relu_grad_plain(g, out, dx, size):
        i = thread()
        if i < size:
            v = g[i]  # read in any case, so that no load waits for the other
            dx[i] = real(0) if out[i] <= real(0) else v

    return relu_grad_plain


def _leaky_relu(kind, real):
    @kernel(f"{kind}* x, {kind}* out, i32 size, {kind} slope", threads=256, variant=kind)
    def leaky_relu_plain(x, out, size, slope):
        i = thread()
        if i < size:
            v = x[i]
            out[i] = v if v > real(0) else v * slope

    return leaky_relu_plain


def _leaky_relu_grad(kind, real):
    @kernel(f"{kind}* g, {kind}* x, {kind}* dx, i32 size, {kind} slope", threads=256, variant=kind)
    def leaky_relu_grad_plain(g, x, dx, size, slope):
        i = thread()
        if i < size:
            v = g[i]
            dx[i] = v if x[i] > real(0) else v * slope

    return leaky_relu_grad_plain


@device
def erf32(v):
    return cuda.libdevice.erff(v)


@device
def erf64(v):
    return cuda.libdevice.erf(v)


def _erf(kind, real):
    function = erf32 if real is f32 else erf64

    @kernel(f"{kind}* x, {kind}* out, i32 size", threads=256, variant=kind)
    def erf_plain(x, out, size):
        i = thread()
        if i < size:
            out[i] = function(x[i])

    return erf_plain


@device
def philox(block, seed, step):
    """The four words of 32 bits that Philox4x32-10 gives for counter (block, step) and key seed, 64 bits each."""
    c0, c1, c2, c3 = u32(block), u32(block >> u64(32)), u32(step), u32(step >> u64(32))
    k0, k1 = u32(seed), u32(seed >> u64(32))
    for _ in range(10):
        unroll(0)
        a = u64(c0) * u64(0xD2511F53)  # 64 bits of two times 32: one instruction
        b = u64(c2) * u64(0xCD9E8D57)
        c0, c1 = u32(u32(b >> u64(32)) ^ c1 ^ k0), u32(b)
        c2, c3 = u32(u32(a >> u64(32)) ^ c3 ^ k1), u32(a)
        k0, k1 = u32(k0 + u32(0x9E3779B9)), u32(k1 + u32(0xBB67AE85))
    return c0, c1, c2, c3


def _dropout(kind, real):
    numbers = f"u32 threshold, {kind} scale, u64* key, u64 step, u64 block"

    @kernel(f"{kind}* x, {kind}* out, i32 size, {numbers}", threads=256, variant=kind)
    def dropout_plain(x, out, size, threshold, scale, key, step, block):
        """`block` is the number of the Philox block whose first word belongs to the first element; `key` holds the seed
        and what is added to the step, which may change between two replays of a graph."""
        i = thread()
        if i < size:
            w0, w1, w2, w3 = philox(block + u64(i >> 2), key[0], key[1] + step)
            low, high = w1 if i & 1 else w0, w3 if i & 1 else w2
            word = high if i & 2 else low
            out[i] = x[i] * (scale if word >= threshold else real(0))

    return dropout_plain


def both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


RELU, RELU_GRAD, LEAKY_RELU, LEAKY_RELU_GRAD, ERF, DROPOUT = (
    both(make) for make in (_relu, _relu_grad, _leaky_relu, _leaky_relu_grad, _erf, _dropout)
)
