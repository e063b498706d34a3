"""Elements in order of size by definition: NumPy."""

import numpy

__all__ = ["argsort"]


def argsort(x, descending, size, xp=numpy):
    """The first `size` indices; of equal elements, and NaN equals NaN, the one that comes first is smaller."""
    x, columns = xp.array(x, dtype=float), numpy.arange(x.shape[1])
    return xp.array([sorted(columns, key=lambda c: _key(row[c], descending))[:size] for row in x], dtype=int).reshape(
        len(x), size
    )


def _key(value, descending):
    nan = value != value
    return (nan != descending, 0.0 if nan else -value if descending else value)
