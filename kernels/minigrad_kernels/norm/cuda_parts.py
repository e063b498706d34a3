"""What the rungs of batch normalisation share: samples described by their count, sum and squares, and joined."""

import math

from ..toolchain.cuda import device

__all__ = ["finite", "inverse_deviation", "joined"]


@device
def finite(v):
    """A number as a shift: 0 for what would make NaN of every other element."""
    return v if v - v == type(v)(0) else type(v)(0)


@device
def joined(n, s, q, m, t, r):
    """Count, sum and sum of squares about the mean of two samples together, (n, s, q) and (m, t, r); 0 for none."""
    zero, both = type(s)(0), n + m
    apart = t / m - s / n
    between = apart * apart * (n * m / both) if n > zero and m > zero else zero
    return both, s + t, q + r + between


@device
def inverse_deviation(variance, eps):
    return type(eps)(1) / math.sqrt(variance + eps)
