"""The vector rung of dropout: thread i owns elements 4i to 4i+3, one block of Philox, which it draws once.

float32, in 128-bit accesses. What is left at the end of an array, the last thread does one by one.
"""

from ..toolchain.cuda import device, f32, i32, kernel, load4, store4, u32, u64
from .cuda_plain import philox, thread

__all__ = ["dropout_vector"]


@device
def kept(v, word, threshold, scale):
    return v * (scale if word >= threshold else f32(0))


@kernel(
    "f32* x, f32* out, i32 size, u32 threshold, f32 scale, u64* key, u64 step, u64 block",
    threads=256,
    opcodes=("LDG.E.128", "STG.E.128"),
)
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
        out[k] = kept(x[k], word, threshold, scale)
        k = i32(k + 1)
        word = w1 if u32(k) & u32(3) == u32(1) else w2 if u32(k) & u32(3) == u32(2) else w3
