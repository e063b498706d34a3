"""The filter as plans read it where it lies otherwise, and the filter's gradient from its partial sums."""

import numpy as np

from ..toolchain import jit
from ..toolchain.product import flat

__all__ = ["finite", "fold", "spread", "turned"]


@jit
def spread(w, picks, out):
    """The spread filter: w[picks[k]], or 0 where that is -1."""
    for k in range(picks.size):
        place = picks[k]
        out[k] = 0 if place < 0 else w[place]


@jit
def _within(x, largest):
    good = True
    for k in range(x.size):
        good &= abs(x[k]) <= largest
    return good


def finite(x):
    """Whether a 1-D array holds neither infinity nor NaN."""
    return _within(x, np.finfo(x.dtype).max)


def turned(w, row, out):
    """The filter as [p][o][q][c], with so many elements from a row (q, c) to the next."""
    made, depth, height, width = w.shape
    lines = flat(w).reshape(height, width * depth, made)
    np.copyto(out.reshape(height, made, row)[..., : width * depth], lines.transpose(0, 2, 1))


@jit
def fold(sums, pixels, steps, dw):
    """dw, [p][q][c][o], from a partial sum; see plan.Way."""
    for p in range(dw.shape[0]):
        for q in range(dw.shape[1]):
            for c in range(dw.shape[2]):
                for o in range(dw.shape[3]):
                    place = p * steps[0] + q * steps[1] + c * steps[2] + o * steps[3]
                    total = sums[place]
                    for pixel in range(1, pixels):
                        total += sums[place + pixel * steps[4]]
                    dw[p, q, c, o] = total
