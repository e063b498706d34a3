"""Random numbers that are functions of a seed and a key, on every machine and in any order of asking."""

import math
import operator

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

__all__ = ["checked_integer", "checked_numbers", "random_generator"]


def random_generator(op, seed, *key):
    """The generator of this seed and key (integers from 0); each key has a stream of its own."""
    seed = checked_integer(op, "seed", seed, 0)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


def checked_integer(op, argument, value, least):
    """The value as an int, refused if it is no integer or below least."""
    if isinstance(value, bool | np.bool):
        raise KindError(f"{op}: {argument} is {value}, want an integer")
    try:
        value = operator.index(value)
    except TypeError:
        raise KindError(f"{op}: {argument} is {value!r}, want an integer") from None
    if value < least:
        raise ShapeError(f"{op}: {argument} is {value}, want at least {least}")
    return value


def checked_numbers(op, argument, values):
    """A tuple of floats, one a channel, from one number or several; refused if any is none or not finite."""
    try:
        found = tuple(float(value) for value in np.atleast_1d(values))
    except (TypeError, ValueError):
        raise KindError(f"{op}: {argument} is {values!r}, want a number a channel") from None
    if not all(map(math.isfinite, found)):
        raise ShapeError(f"{op}: {argument} is {found}, want finite numbers")
    return found
