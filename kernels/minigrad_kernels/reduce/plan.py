"""How blocks of rows are cut into pieces for threads: by their shape alone.

A line is what is combined at once with the one before: a tile of a wide row, or several narrow rows. A single column
has none: its rows lie one behind the other. A block with few columns is cut into parts, runs of its rows, whose results
are combined in order.
"""

from functools import lru_cache
from typing import NamedTuple

__all__ = ["PART", "PIECES", "TILE", "Cut", "cut"]

TILE = 256  # columns that are taken at once, and elements that are held on the stack
PIECES = 8  # for threads to share, at least, where there are elements enough
PART = 1 << 14  # elements of a part, at least


class Cut(NamedTuple):
    line: int  # elements from a line to the next
    width: int  # of a line or of a tile of it
    tiles: int  # of a row
    parts: int  # of a block


@lru_cache(maxsize=1024)
def cut(blocks, rows, columns):
    """The Cut of an array of that shape, in which no size is 0."""
    tiles = -(-columns // TILE)
    line = min(TILE // columns or 1, rows) * columns
    parts = min(-(-PIECES // (blocks * tiles)), max(1, rows * columns // PART))
    return Cut(line, min(line, TILE), tiles, parts)
