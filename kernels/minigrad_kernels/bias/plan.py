"""How a matrix is cut for sums of its columns, on every device alike: by its shape alone.

A line is as many whole rows as lie in LINE elements, or one row where that is longer; lying one behind the other in
memory they are one run, so that narrow matrices are read as fast as wide ones. A part is some lines: its columns are
summed by one thread of a CPU or by one block of a GPU, and the sums of the parts are then added in order.
"""

from functools import lru_cache
from typing import NamedTuple

LINE = 1024  # elements
LINES = 8  # of a part, at least, unless there are fewer
BLOCKS = 1024  # of a GPU; a few for each of its multiprocessors, whose number must not matter


class Cut(NamedTuple):
    fold: int  # rows in a line
    tiles: int  # pieces of LINE elements in a line
    rows: int  # in a part, whole lines; the last part may have fewer
    parts: int


@lru_cache(maxsize=1024)
def cut(rows, columns):
    """The Cut of a matrix of that shape, neither of which is 0."""
    fold = max(1, LINE // columns)
    if fold >= 4:
        fold -= fold % 4  # a line then holds whole groups of four elements, whatever the columns
    tiles = -(-fold * columns // LINE)
    lines = -(-rows // fold)
    most = max(1, min(-(-lines // LINES), BLOCKS // tiles))
    share = -(-lines // most)
    return Cut(fold, tiles, share * fold, -(-lines // share))
