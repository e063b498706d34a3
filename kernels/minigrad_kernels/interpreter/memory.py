"""Memory: bytes in NumPy arrays, read and written by many lanes at once, and which of them were ever written.

A Space is a row of bytes. Accesses to it have passed their checks: they lie inside, at multiples of their size.
"""

import numpy as np

from .array import FILL

__all__ = ["Space", "filled", "poison"]


def filled(size):
    """Bytes that nobody wrote: NaN in floating types."""
    return np.full(-(-size // 8) * 4, FILL).view(np.uint8)


def poison(dtype, count):
    """Values for lanes whose access is bad."""
    return np.frombuffer(filled(16).tobytes(), dtype)[0].repeat(count)


class Space:
    """Bytes that lanes read and write.

    bytes    the memory itself
    written  None, or 255 for each byte that was written
    """

    def __init__(self, memory, written=None):
        self.bytes, self.written = memory, written
        self.views = {}

    def rows(self, dtype, count, marks=False):
        """The memory as a table of `count` elements of a type, as many rows as there are."""
        key = dtype, count, marks
        if key not in self.views:
            memory = self.written if marks else self.bytes
            width = dtype.itemsize * count
            usable = len(memory) // width * width
            view = memory[:usable].view(dtype)
            self.views[key] = view if count == 1 else view.reshape(-1, count)
        return self.views[key]

    def was_written(self, offsets, size):
        """Whether all bytes of each access were written."""
        width = min(size, 8)
        marks = self.rows(np.dtype(f"u{width}"), size // width, marks=True)[offsets // size]
        whole = marks == np.iinfo(marks.dtype).max
        return whole if whole.ndim == 1 else whole.all(axis=1)

    def read(self, offsets, dtype, count):
        """A list of `count` arrays: the elements at aligned offsets, good ones all."""
        found = self.rows(dtype, count)[offsets // (dtype.itemsize * count)]
        return [found] if count == 1 else [found[:, i] for i in range(count)]

    def write(self, offsets, values, dtype):
        """Write a list of arrays side by side at aligned offsets."""
        count = len(values)
        place = offsets // (dtype.itemsize * count)
        if count == 1:
            self.rows(dtype, 1)[place] = values[0]
        else:
            self.rows(dtype, count)[place] = np.stack(values, axis=1)
        self.mark(offsets, dtype.itemsize * count)

    def mark(self, offsets, size):
        """Remember that bytes were written."""
        if self.written is not None:
            width = min(size, 8)
            marks = np.dtype(f"u{width}")
            self.rows(marks, size // width, marks=True)[offsets // size] = np.iinfo(marks).max
