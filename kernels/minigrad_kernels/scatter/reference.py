"""Rows added where indices say, by definition: NumPy, float64."""

import numpy


def add_rows(x, places, order, size, xp=numpy):
    """The sums alone, of so many rows; order does not matter here."""
    x = xp.array(x, dtype=float)
    chosen = numpy.arange(size)[:, None] == numpy.array(places)
    return xp.sum(xp.where(chosen[:, :, None], x[None], 0.0), axis=1)
