"""Sizes that follow the batch, found by comparing what runs on batches of different sizes did.

A number that was the same in all runs is that number. One that changed is taken for slope * batch + offset, which the
first two runs determine and every further one checks.
"""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ..errors import StateError

__all__ = ["BATCHES", "ExportError", "Size", "merged"]

BATCHES = (2, 3, 5)  # of the runs; 1 would make broadcasting out of what is none


class ExportError(StateError):
    """A network that cannot be written in the other format."""


@dataclass(frozen=True)
class Size:
    """slope * batch + offset."""

    slope: int
    offset: int = 0

    def __add__(self, other):
        return Size(self.slope, self.offset + other) if isinstance(other, int) else NotImplemented

    def __sub__(self, other):
        return self + -other if isinstance(other, int) else NotImplemented

    def __mul__(self, other):
        return Size(self.slope * other, self.offset * other) if isinstance(other, int) else NotImplemented

    __radd__, __rmul__ = __add__, __mul__

    def __str__(self):
        return f"{self.slope} * batch + {self.offset}" if self.offset else f"{self.slope} * batch"


def merged(values):
    """What the runs have in common: a value that is the same in all, with a Size for each integer that changed.

    Errors  ExportError for what differs otherwise
    """
    first = values[0]
    if any(type(value) is not type(first) for value in values) and not all(isinstance(v, Integral) for v in values):
        raise ExportError(f"it is {first!r} in one run and of another type in the next")
    if isinstance(first, slice):
        return slice(*[merged([getattr(one, name) for one in values]) for name in ("start", "stop", "step")])
    if isinstance(first, tuple | list):
        if any(len(value) != len(first) for value in values):
            raise ExportError(f"its length changes with the batch, as in {first!r}")
        return tuple([merged(each) for each in zip(*values, strict=True)])
    if isinstance(first, np.ndarray):
        if not all(np.array_equal(first, value) for value in values):
            raise ExportError("it is an array that changes with the batch or its elements")
        return first
    if all(value == first or value != value != first for value in values):  # NaN is as good as NaN
        return first
    if all(isinstance(value, Integral | float) and value == value // 1 for value in values):
        values = [int(value) for value in values]
        first = values[0]
        slope, rest = divmod(values[1] - first, BATCHES[1] - BATCHES[0])
        size = Size(slope, first - slope * BATCHES[0])
        if not rest and all(size.slope * n + size.offset == v for n, v in zip(BATCHES, values, strict=True)):
            return size
    raise ExportError(f"it changes with the batch or its elements: {', '.join(map(repr, values))}")
