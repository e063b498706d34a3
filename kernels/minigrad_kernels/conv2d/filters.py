"""The filter as plans read it where it lies otherwise, and the filter's gradient from its partial sums."""

import numpy as np

from ..toolchain import jit

__all__ = ["finite", "fold", "spread"]


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


@jit
def fold(sums, pixels, steps, dw):
    """dw, [p][q][c][o], from a partial sum; see plan.Way."""
    for p in range(dw.shape[0]):
        for q in range(dw.shape[1]):
            for c in range(dw.shape[2]):
                for o in range(dw.shape[3]):
                    place = p * steps[1] + q * steps[2] + c * steps[3] + o * steps[4]
                    total = sums[place]
                    for pixel in range(1, pixels):
                        total += sums[place + pixel * steps[0]]
                    dw[p, q, c, o] = total
