"""What checks of arguments gave, kept, so that a step that repeats does not make them again."""

from collections.abc import Callable
from operator import is_
from typing import NamedTuple

from numpy import ndarray

__all__ = ["Call", "Checked", "layouts"]


class Call(NamedTuple):
    """What a launcher keeps of a call that has passed all checks."""

    bytes: int  # of workspace that it wants
    run: Callable  # with its arrays


class Checked:
    """Results of checks, found again by shapes and by the settings themselves, the very same objects.

    Objects and not their values: 1 == True == 1.0, but they are not all right. Only what cannot change is kept, whole
    numbers, texts, None, and tuples of whole numbers; it is kept alive, so that no other object can take its place.
    """

    MOST = 1024
    MOST_SETTINGS = 16  # for one set of shapes

    def __init__(self):
        self._kept = {}

    def found(self, shapes, settings):
        """What was kept for equal shapes, all of one kind, and the same settings; else None."""
        for given, result in self._kept.get(shapes, ()):
            if all(map(is_, given, settings)):
                return result
        return None

    def keep(self, shapes, settings, result):
        """Keep a result that is not None, unless a setting could change; returns it."""
        if all(map(_is_constant, settings)):
            if len(self._kept) >= self.MOST:
                self._kept.clear()
            known = self._kept.get(shapes, ())
            self._kept[shapes] = ((settings, result), *known[: self.MOST_SETTINGS - 1])
        return result


def _is_constant(value):
    if type(value) is tuple:
        return all(type(one) is int for one in value)
    return value is None or type(value) in (int, bool, str)


def layouts(op, *arrays):
    """All that checks of an op look at in NumPy's own arrays, but for elements and whether they may be written.

    None where checks must be made: for other arrays, and for addresses that are no multiple of an element. An argument
    that is None stays None.
    """
    found = [op]
    for array in arrays:
        if array is None:
            found.append(None)
        elif array.__class__ is ndarray and array.flags.aligned:
            found += array.shape, array.strides, array.dtype
        else:
            return None
    return tuple(found)
