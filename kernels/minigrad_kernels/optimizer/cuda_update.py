"""The walk of an update over all parameters, made into kernels by the formula of a rule.

A formula takes one element of the parameter, its gradient and up to three states, and gives the new ones. The
parameter and each state are read and written once, the gradient is read once. `present` has bit k set where state k
is there; one that is not there is neither read nor written.
The arithmetic is that of cpu.py, but for products that are added without being rounded first.
"""

from typing import NamedTuple

import numpy as np

from ..toolchain.cuda import cuda, device, f32, i32, kernel, load4, store4
from .cuda_parts import SKIP, THREADS, chunk_of_block, first_of

__all__ = ["COEFFICIENTS", "KINDS", "Update", "update"]

COEFFICIENTS = 10  # room for those of any rule, and SKIP
KINDS = 5  # of arrays: parameters, gradients, three states
ARGUMENTS = "u64* addresses, i32* chunks, {0}* coefficients, i32 tensors, i32 present"


class Update(NamedTuple):
    """The kernels of a rule."""

    plain: dict  # {element type: kernel}
    vector: object


@device
def nine(c):
    return c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]


def _element(formula):
    """The update of element k."""

    @device
    def element(p, g, first, second, third, k, present, c):
        before, gradient = p[k], g[k]
        a = b = d = type(before)(0)
        if present & 1:
            a = first[k]
        if present & 2:
            b = second[k]
        if present & 4:
            d = third[k]
        after, a, b, d = formula(before, gradient, a, b, d, present, c)
        if present & 1:
            first[k] = a
        if present & 2:
            second[k] = b
        if present & 4:
            third[k] = d
        p[k] = after

    return element


def _plain(rule, kind, element, always, possible):
    @kernel(ARGUMENTS.format(kind), threads=THREADS, variant=f"{rule}_{kind}")
    def plain(addresses, chunks, coefficients, tensors, present):
        """Thread i of a block owns the elements i, i + 256, ... of its chunk."""
        t, start, count = chunk_of_block(chunks)
        count = i32(0 if coefficients[SKIP] else count)
        c, present = nine(coefficients), i32((present | always) & possible)
        p = first_of(addresses, tensors, 0, t, start, coefficients)
        g = first_of(addresses, tensors, 1, t, start, coefficients)
        first = first_of(addresses, tensors, 2, t, start, coefficients)
        second = first_of(addresses, tensors, 3, t, start, coefficients)
        third = first_of(addresses, tensors, 4, t, start, coefficients)
        k = i32(cuda.threadIdx.x)
        while k < count:
            element(p, g, first, second, third, k, present, c)
            k = i32(k + THREADS)

    return plain


def _four(formula):
    """The update of elements k to k+3: all loads, then all stores, each of 128 bits."""

    @device
    def four(p, g, first, second, third, k, present, c):
        x0, x1, x2, x3 = load4(p, k)
        y0, y1, y2, y3 = load4(g, k)
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = d0 = d1 = d2 = d3 = f32(0)
        if present & 1:
            a0, a1, a2, a3 = load4(first, k)
        if present & 2:
            b0, b1, b2, b3 = load4(second, k)
        if present & 4:
            d0, d1, d2, d3 = load4(third, k)
        x0, a0, b0, d0 = formula(x0, y0, a0, b0, d0, present, c)
        x1, a1, b1, d1 = formula(x1, y1, a1, b1, d1, present, c)
        x2, a2, b2, d2 = formula(x2, y2, a2, b2, d2, present, c)
        x3, a3, b3, d3 = formula(x3, y3, a3, b3, d3, present, c)
        if present & 1:
            store4(first, k, (a0, a1, a2, a3))
        if present & 2:
            store4(second, k, (b0, b1, b2, b3))
        if present & 4:
            store4(third, k, (d0, d1, d2, d3))
        store4(p, k, (x0, x1, x2, x3))

    return four


def _vector(rule, element, four, always, possible):
    # blocks: 64 registers at the most, so that enough loads are on their way.
    @kernel(ARGUMENTS.format("f32"), threads=THREADS, blocks=4, opcodes=("LDG.E.128", "STG.E.128"), variant=rule)
    def vector(addresses, chunks, coefficients, tensors, present):
        """As plain, but thread i owns the elements 4i to 4i+3, then those 1024 further on; one at a time where the
        arrays of a chunk do not all lie at multiples of 16 bytes, and at its end."""
        t, start, count = chunk_of_block(chunks)
        count = i32(0 if coefficients[SKIP] else count)
        c, present = nine(coefficients), i32((present | always) & possible)
        places = addresses[t] | addresses[i32(tensors + t)] | addresses[i32(2 * tensors + t)]
        places |= addresses[i32(3 * tensors + t)] | addresses[i32(4 * tensors + t)]
        p = first_of(addresses, tensors, 0, t, start, coefficients)
        g = first_of(addresses, tensors, 1, t, start, coefficients)
        first = first_of(addresses, tensors, 2, t, start, coefficients)
        second = first_of(addresses, tensors, 3, t, start, coefficients)
        third = first_of(addresses, tensors, 4, t, start, coefficients)
        k, whole = i32(4 * cuda.threadIdx.x), i32(0 if i32(places) & 15 else count & -4)
        while k < whole:
            four(p, g, first, second, third, k, present, c)
            k = i32(k + 4 * THREADS)
        k = i32(whole + cuda.threadIdx.x)
        while k < count:
            element(p, g, first, second, third, k, present, c)
            k = i32(k + THREADS)

    return vector


def update(rule, formula, always, possible):
    """The kernels of a rule. Bits of `always`: states that it has in any case; of `possible`: those it may have."""
    element = _element(formula)
    kinds = {"f32": np.float32, "f64": np.float64}
    plain = {np.dtype(t): _plain(rule, kind, element, always, possible) for kind, t in kinds.items()}
    return Update(plain, _vector(rule, element, _four(formula), always, possible))
