"""The kernels of Adam: `addresses` is (kinds, tensors), parameters, gradients, m, v and, for AMSGrad, the greatest v.

Each parameter and its state is read and written once, its gradient read once: 7 numbers an element, 9 with AMSGrad.
The arithmetic is that of cpu.py, but for products that are added without being rounded first.
"""

import numpy as np

from ..toolchain.cuda import cuda, device, i32, kernel, load4, offset, pointer_at, store4

__all__ = ["CHUNK", "PLAIN", "adam_vector"]

CHUNK = 4096  # elements
THREADS = 256
SIGN, DECAY, FRESH1, BETA2, FRESH2, KEEP, RATE, CORRECTION, EPS = range(9)  # places of the coefficients
ARGUMENTS = "u64* addresses, i32* chunks, {0}* coefficients, i32 tensors, i32 has_greatest"


@device
def sqrt32(v):
    return cuda.libdevice.fsqrt_rn(v)


@device
def sqrt64(v):
    return cuda.libdevice.dsqrt_rn(v)


@device
def nine(c):
    return c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]


@device
def first_of(addresses, tensors, which, tensor, start, like):
    """Where a chunk begins in the array of that kind."""
    return offset(pointer_at(addresses[i32(which * tensors + tensor)], like), start)


@device
def moments(p, g, m, v, c):
    """New m and v of an element."""
    d = c[SIGN] * g
    if c[DECAY]:  # one of 0 is left out: 0 * inf would be NaN
        d += c[DECAY] * p
    # From the nearer end, so that a large difference does not swallow d.
    share, one = c[FRESH1], type(p)(1)
    m = m + share * (d - m) if abs(share) < type(p)(0.5) else d - (one - share) * (d - m)
    return m, c[BETA2] * v + c[FRESH2] * d * d


@device
def raised(old, new):
    return new if new > old or new != new else old  # written so that NaN enters, and stays


def _element(sqrt):
    """The update of one element, for one element type."""

    @device
    def element(p, g, m, v, greatest, has_greatest, k, c):
        before = p[k]
        m_new, v_new = moments(before, g[k], m[k], v[k], c)
        m[k], v[k] = m_new, v_new
        square = v_new
        if has_greatest:
            square = raised(greatest[k], v_new)
            greatest[k] = square
        p[k] = c[KEEP] * before - c[RATE] * (m_new / (sqrt(square) * c[CORRECTION] + c[EPS]))

    return element


single, double = _element(sqrt32), _element(sqrt64)


def _plain(kind, element):
    @kernel(ARGUMENTS.format(kind), threads=THREADS, variant=kind)
    def adam_plain(addresses, chunks, coefficients, tensors, has_greatest):
        """Each block owns a chunk, its thread i the elements i, i + 256, ... of it."""
        at = i32(3 * cuda.blockIdx.x)
        t, start, count, c = chunks[at], chunks[i32(at + 1)], chunks[i32(at + 2)], nine(coefficients)
        p = first_of(addresses, tensors, 0, t, start, coefficients)
        g = first_of(addresses, tensors, 1, t, start, coefficients)
        m = first_of(addresses, tensors, 2, t, start, coefficients)
        v = first_of(addresses, tensors, 3, t, start, coefficients)
        greatest = first_of(addresses, tensors, 4 if has_greatest else 3, t, start, coefficients)
        k = i32(cuda.threadIdx.x)
        while k < count:
            element(p, g, m, v, greatest, has_greatest, k, c)
            k = i32(k + THREADS)

    return adam_plain


PLAIN = {np.dtype(np.float32): _plain("f32", single), np.dtype(np.float64): _plain("f64", double)}


@device
def step(p, m, square, c):
    return c[KEEP] * p - c[RATE] * (m / (sqrt32(square) * c[CORRECTION] + c[EPS]))


@device
def four(p, g, m, v, greatest, has_greatest, k, c):
    """The update of elements k to k+3: all loads, then all stores, each of 128 bits."""
    p0, p1, p2, p3 = load4(p, k)
    g0, g1, g2, g3 = load4(g, k)
    m0, m1, m2, m3 = load4(m, k)
    v0, v1, v2, v3 = load4(v, k)
    m0, v0 = moments(p0, g0, m0, v0, c)
    m1, v1 = moments(p1, g1, m1, v1, c)
    m2, v2 = moments(p2, g2, m2, v2, c)
    m3, v3 = moments(p3, g3, m3, v3, c)
    w0, w1, w2, w3 = v0, v1, v2, v3
    if has_greatest:
        u0, u1, u2, u3 = load4(greatest, k)
        w0, w1, w2, w3 = raised(u0, v0), raised(u1, v1), raised(u2, v2), raised(u3, v3)
        store4(greatest, k, (w0, w1, w2, w3))
    store4(m, k, (m0, m1, m2, m3))
    store4(v, k, (v0, v1, v2, v3))
    store4(p, k, (step(p0, m0, w0, c), step(p1, m1, w1, c), step(p2, m2, w2, c), step(p3, m3, w3, c)))


@kernel(ARGUMENTS.format("f32"), threads=THREADS, opcodes=("LDG.E.128", "STG.E.128"))
def adam_vector(addresses, chunks, coefficients, tensors, has_greatest):
    """As adam_plain, but thread i owns the elements 4i to 4i+3, then those 1024 further on; one at a time where the
    arrays of a chunk do not all lie at multiples of 16 bytes, and at its end."""
    at = i32(3 * cuda.blockIdx.x)
    t, start, count, c = chunks[at], chunks[i32(at + 1)], chunks[i32(at + 2)], nine(coefficients)
    all_places = addresses[t] | addresses[i32(tensors + t)] | addresses[i32(2 * tensors + t)]
    all_places |= addresses[i32(3 * tensors + t)]
    if has_greatest:
        all_places |= addresses[i32(4 * tensors + t)]
    p = first_of(addresses, tensors, 0, t, start, coefficients)
    g = first_of(addresses, tensors, 1, t, start, coefficients)
    m = first_of(addresses, tensors, 2, t, start, coefficients)
    v = first_of(addresses, tensors, 3, t, start, coefficients)
    greatest = first_of(addresses, tensors, 4 if has_greatest else 3, t, start, coefficients)
    k, whole = i32(4 * cuda.threadIdx.x), i32(0 if i32(all_places) & 15 else count & -4)
    while k < whole:
        four(p, g, m, v, greatest, has_greatest, k, c)
        k = i32(k + 4 * THREADS)
    k = i32(whole + cuda.threadIdx.x)
    while k < count:
        single(p, g, m, v, greatest, has_greatest, k, c)
        k = i32(k + THREADS)
