"""Copies by definition: NumPy."""

import numpy

__all__ = ["copy", "take_rows"]


def copy(x, xp=numpy):
    return xp.array(x)


def take_rows(x, places, xp=numpy):
    """As a sum over all rows, of which one is taken."""
    x = xp.array(x, dtype=float)
    chosen = numpy.array(places)[:, None] == numpy.arange(len(x))
    return xp.sum(xp.where(chosen[:, :, None], x[None], 0.0), axis=1)
