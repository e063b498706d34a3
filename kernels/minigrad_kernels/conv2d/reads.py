"""Which pixel meets which filter tap, along one axis, and where pixels lie in memory."""

from typing import NamedTuple

import numpy as np

from ..toolchain.product import NOTHING, Border

__all__ = ["Reads", "Source", "filter_order", "forward_reads", "input_grad_reads", "without_border"]


class Reads(NamedTuple):
    """Along one axis: result[places[k]] = sum over t of source[bases[k] + shifts[t]] * filter[taps[t]].

    Shifts rise; taps count in the order in which the filter is read (see filter_order).
    """

    places: np.ndarray
    bases: np.ndarray
    shifts: np.ndarray
    taps: np.ndarray


def forward_reads(count, kernel, stride, padding, dilation):
    """How the output reads the input: always the whole filter."""
    places, taps = np.arange(count), np.arange(kernel)
    return [Reads(places, places * stride - padding, taps * dilation, taps)]


def filter_order(kernel, stride, dilation):
    """The order in which the input gradient reads the filter: falling, the taps of one residue after the other."""
    taps = np.arange(kernel)[::-1]
    return [taps[taps * dilation % stride == residue] for residue in range(stride)]


def input_grad_reads(size, kernel, stride, padding, dilation):
    """How the input gradient reads the output gradient: one set for each residue modulo the stride.

    Input h meets tap p at output i where h + padding = i*stride + p*dilation. So the taps that an input meets
    depend on the residue of h + padding alone, and inputs of one residue read as if the stride were 1.
    """
    padded, sets, first = np.arange(size) + padding, [], 0
    for residue, taps in enumerate(filter_order(kernel, stride, dilation)):
        places = np.flatnonzero(padded % stride == residue)
        shifts = -(taps * dilation // stride)
        sets.append(Reads(places, padded[places] // stride, shifts, first + np.arange(taps.size)))
        first += taps.size
    return sets


def _border(sets, size):
    """How many zeros before and after a source of that size let every read hit something."""
    used = [reads for reads in sets if reads.places.size and reads.taps.size]
    lowest = min((int(reads.bases.min() + reads.shifts.min()) for reads in used), default=0)
    highest = max((int(reads.bases.max() + reads.shifts.max()) for reads in used), default=0)
    return max(0, -lowest), max(0, highest + 1 - size)


def without_border(sets, size):
    """The same reads, split so that no place reads outside a source of that size."""
    split = []
    for places, bases, shifts, taps in sets:
        firsts, ends = np.searchsorted(shifts, -bases), np.searchsorted(shifts, size - bases)
        for first, end in sorted(set(zip(firsts.tolist(), ends.tolist(), strict=True))):
            here = (firsts == first) & (ends == end)
            split.append(Reads(places[here], bases[here], shifts[first:end], taps[first:end]))
    return split


class Source(NamedTuple):
    """Images with their border, channels last: where a pair of indices lies, in elements."""

    height: int
    width: int
    channels: int
    vertical: tuple
    horizontal: tuple

    @classmethod
    def of(cls, size, channels, reads):
        """The images that these reads of the two axes read."""
        return cls(*size, channels, *(_border(sets, length) for sets, length in zip(reads, size, strict=True)))

    @property
    def full(self):
        return self.height + sum(self.vertical), self.width + sum(self.horizontal)

    @property
    def size(self):
        return self.full[0] * self.full[1] * self.channels

    @property
    def bordered(self):
        return any(self.vertical + self.horizontal)

    def offsets(self, rows, columns):
        """Of each row and column; `origin` is that of the first pixel inside the border."""
        return np.add.outer(np.asarray(rows) * self.full[1], columns) * self.channels

    @property
    def origin(self):
        return int(self.offsets(self.vertical[0], self.horizontal[0]))

    def border(self):
        """How product.run is to copy an image."""
        if not self.bordered:
            return NOTHING
        left, length = self.horizontal[0] * self.channels, self.full[1] * self.channels
        return Border(self.height, self.width * self.channels, self.vertical[0], left, self.full[0], length)

    def with_copy(self, jobs, first, count):
        """The jobs, the first of which copies so many images that they all read, where there is a border."""
        jobs = list(jobs)
        if jobs and self.bordered:
            pixels = self.height * self.width
            jobs[0] = jobs[0]._replace(copies=count, copy_from=first * pixels * self.channels)
        return jobs
