"""Filters as sums of pieces that Winograd's transforms take: at most r taps along an axis, as far apart as the stride.

Along an axis, with stride s, output i reads input i*s + p - padding at tap p. The taps of one residue modulo s read
every s-th input as a convolution without stride does, so a filter of P taps is a sum of P/r pieces or more. The input
gradient is a convolution without stride for each residue of the input, from the taps that it meets, last one first.
"""

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

__all__ = ["FREQUENCIES", "SQUARE", "Axis", "Grid", "forward_grid", "input_grad_grids"]

FREQUENCIES = 6  # along an axis
SQUARE = FREQUENCIES**2


class Axis(NamedTuple):
    """Pixel a of a result, of `made`, lies at first + a*spacing, and is a sum over pieces (shift, tap, taps):

    result[a] = sum over j < taps of source[a*step + shift + j*step] * filter[tap + j*tap_step]
    """

    made: int
    first: int
    spacing: int
    step: int
    tap_step: int
    pieces: tuple


class Grid(NamedTuple):
    """Pixels of a result that are cut into tiles together: a vertical and a horizontal Axis, and r."""

    rows: Axis
    columns: Axis
    taps: int

    @property
    def tile(self):
        """m, the pixels of a tile along an axis."""
        return FREQUENCIES + 1 - self.taps

    @property
    def tiles(self):
        """Of an image, along each axis."""
        return -(-self.rows.made // self.tile), -(-self.columns.made // self.tile)

    @property
    def pieces(self):
        """A table with a row for each piece: shift, tap and taps along both axes."""
        return np.array([[*a, *b] for a, b in product(self.rows.pieces, self.columns.pieces)], np.int64)

    @property
    def products(self):
        """How many matrix products of tiles, channels and filters an image takes."""
        return SQUARE * prod(self.tiles) * len(self.rows.pieces) * len(self.columns.pieces)


def _cut(taps, most):
    return [taps[start : start + most] for start in range(0, len(taps), most)]


def forward_grid(geometry, taps):
    """The Grid of forward, and of the weight gradient, with pieces of so many taps at most along an axis."""
    axes = []
    for made, kernel, stride, padding in _axes(geometry, geometry.out_size):
        parts = [part for residue in range(stride) for part in _cut(range(residue, kernel, stride), taps)]
        pieces = tuple((part[0] - padding, part[0], len(part)) for part in parts)
        axes.append(Axis(made, 0, 1, stride, stride, pieces))
    return Grid(*axes, taps)


def input_grad_grids(geometry, taps):
    """The Grids of the input gradient, which together make each of its pixels once."""
    choices = []
    for size, kernel, stride, padding in _axes(geometry, geometry.x_shape[2:]):
        axes = []
        for residue in range(stride):
            first = (residue - padding) % stride
            met = range(residue, kernel, stride)[::-1]
            shift = (first + padding) // stride - len(met) + 1
            parts = _cut(met, taps)
            pieces = tuple((shift + number * taps, part[0], len(part)) for number, part in enumerate(parts))
            axes.append(Axis(len(range(first, size, stride)), first, stride, 1, -stride, pieces))
        choices.append([axis for axis in axes if axis.made])
    return [Grid(*axes, taps) for axes in product(*choices)]


def _axes(geometry, size):
    return zip(size, geometry.w_shape[2:], geometry.stride, geometry.padding, strict=True)
