"""Sums of squares of many arrays, in float64, the factor that brings a norm down, and scaling, on the CPU."""

import math

import numpy as np

from ..toolchain import elements, jit, share, shared, stack_array
from .cpu_parts import CHUNK, SMALL, chunks, find, part

__all__ = ["LANES", "clip_factor", "scale", "squared_norms"]

LANES = 16  # independent sums of squares


@jit
def sum_squares(a, sums):
    """The sum of the squares of a, in float64; `sums` has LANES elements of scratch."""
    for lane in range(LANES):
        sums[lane] = 0.0
    whole = a.size // LANES * LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            v = np.float64(a[start + lane])
            sums[lane] += v * v
    for k in range(whole, a.size):
        v = np.float64(a[k])
        sums[k - whole] += v * v
    total = 0.0
    for lane in range(LANES):
        total += sums[lane]
    return total


@jit
def square_chunk(a, partial, chunk):
    partial[chunk] = sum_squares(a, stack_array(LANES, partial))


@shared
def square_chunks(team, addresses, sizes, partial, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        square_chunk(part(addresses, 0, t, start, stop, like), partial, chunk)


@jit
def add_chunks(sizes, partial, out):
    chunk = 0
    for t in range(sizes.size):
        out[t] = 0.0
        for _ in range((sizes[t] + CHUNK - 1) // CHUNK):
            out[t] += partial[chunk]
            chunk += 1


def squared_norms(plan, out, workspace):
    addresses, sizes, like, _ = plan.tables
    partial = elements(workspace, np.dtype(np.float64), chunks(sizes))
    square_chunks(addresses, sizes, partial, like)
    add_chunks(sizes, partial, out)


def clip_factor(squares, max_norm, norm, factor, inverse, found_inf):
    unscaled = 1.0 if inverse is None else float(inverse[0])
    total = math.sqrt(math.fsum(squares.tolist())) * unscaled
    share = max_norm / (total + 1e-6)
    norm[...], factor[0] = total, unscaled if share >= 1 else share * unscaled
    if found_inf is not None and not total < math.inf:
        found_inf[0] = 1


@jit
def scale_run(a, factor):
    for k in range(a.size):
        a[k] *= factor


@shared
def scale_chunks(team, addresses, sizes, factor, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        scale_run(part(addresses, 0, t, start, stop, like), like.dtype.type(factor))


def scale(plan, factor):
    addresses, sizes, like, _ = plan.tables
    factor = factor if isinstance(factor, float) else float(factor[0])
    (scale_chunks.alone if plan.elements < SMALL else scale_chunks)(addresses, sizes, factor, like)
