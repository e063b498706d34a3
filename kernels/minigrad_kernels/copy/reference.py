"""Copies by definition: NumPy."""

import numpy

__all__ = ["copy"]


def copy(x, xp=numpy):
    return xp.array(x)
