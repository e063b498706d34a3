"""Thread i owns element i; of dropout four elements. Every array is read or written once. float32 and float64."""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel, u32, u64, unroll

__all__ = ["DROPOUT", "ERF", "RECTIFY", "RECTIFY_GRAD", "both", "philox", "thread"]


@device
def thread():
    """The number of this thread in the whole grid."""
    return i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)


def _rectify(kind, real):
    @kernel(f"{kind}* x, {kind}* out, i32 size, {kind} slope, i32 leaky", threads=256, variant=kind)
    def rectify(x, out, size, slope, leaky):
        """ReLU, and leaky ReLU, which multiplies what is negative by the slope. NaN passes."""
        i = thread()
        if i < size:
            v = x[i]
            if leaky:
                out[i] = v if v > real(0) else v * slope
            else:
                out[i] = real(0) if v <= real(0) else v

    return rectify


def _rectify_grad(kind, real):
    @kernel(f"{kind}* g, {kind}* beside, {kind}* dx, i32 size, {kind} slope, i32 leaky", threads=256, variant=kind)
    def rectify_grad(g, beside, dx, size, slope, leaky):
        """beside: what ReLU gave, or what leaky ReLU got."""
        i = thread()
        if i < size:
            v, y = g[i], beside[i]  # read in any case, so that no load waits for the other
            if leaky:
                dx[i] = v if y > real(0) else v * slope
            else:
                dx[i] = real(0) if y <= real(0) else v

    return rectify_grad


@device
def erf32(v):
    return cuda.libdevice.erff(v)


@device
def erf64(v):
    return cuda.libdevice.erf(v)


def _erf(kind, real):
    function = erf32 if real is f32 else erf64

    @kernel(f"{kind}* x, {kind}* out, i32 size", threads=256, variant=kind)
    def erf(x, out, size):
        i = thread()
        if i < size:
            out[i] = function(x[i])

    return erf


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
    def dropout(x, out, size, threshold, scale, key, step, block):
        """Thread i owns elements 4i to 4i+3, one block of Philox, which it draws once.

        `block` is the number of the Philox block whose first word belongs to the first element; `key` holds the seed
        and what is added to the step, which may change between two replays of a graph.
        """
        t = thread()
        words = philox(block + u64(t), key[0], key[1] + step)
        for n in range(4):
            unroll(0)
            k, word = i32(4 * t + n), words[0] if n == 0 else words[1] if n == 1 else words[2] if n == 2 else words[3]
            if k < size:
                out[k] = x[k] * (scale if word >= threshold else real(0))

    return dropout


def both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


RECTIFY, RECTIFY_GRAD, ERF, DROPOUT = (both(make) for make in (_rectify, _rectify_grad, _erf, _dropout))
