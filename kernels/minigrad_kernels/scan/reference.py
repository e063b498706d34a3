"""Running sums by definition: NumPy."""

import numpy

__all__ = ["cumsum"]


def cumsum(x, reverse, xp=numpy):
    """Each sum by itself, as the product with a matrix of ones on one side of its diagonal."""
    x = xp.array(x, dtype=float)
    places = numpy.arange(x.shape[1])
    taken = places[:, None] <= places if reverse else places[:, None] >= places
    return xp.sum(xp.where(taken[None, :, :, None], x[:, None], 0.0), axis=2)
