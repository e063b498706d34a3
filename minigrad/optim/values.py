"""Options as Python's own values, and state as a checkpoint takes it."""

import math

import numpy as np

from .. import device

__all__ = ["array_of", "plain", "saved"]


def plain(value):
    """One number in a Tensor or in NumPy's wrapping as Python's; a list, which JSON makes of a tuple, as a tuple.

    Anything else is returned as it is, to be refused by whoever knows what is wanted. One bool in an array is no flag.
    """
    if isinstance(value, list | tuple):
        return tuple(plain(entry) for entry in value)
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or math.prod(shape) != 1 or not hasattr(value, "item"):
        return value
    number = value.item()
    return value if isinstance(number, bool) and not isinstance(value, np.generic) else number


def array_of(value):
    """A value of a saved state as NumPy's array; of a ragged list, one without numbers, to be refused as such."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        return np.asarray(None)


def saved(value):
    """A number itself, an array as a copy in logical (C) order, NumPy's."""
    return value if isinstance(value, int | float) else device.host(device.copy(value))
