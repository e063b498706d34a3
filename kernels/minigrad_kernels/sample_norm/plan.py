"""How samples are cut into parts for sums over all of them, and the workspace: by the shapes alone."""

from functools import lru_cache

__all__ = ["SCRATCH", "cut"]

PARTS = 32  # at most: a few for each thread, whose number must not matter
LEAST = 1 << 12  # elements of a part, unless there are fewer in all
LINES = 8  # elements of a part for each column, likewise, which has sums to be cleared and added up
MOST = 1 << 18  # elements of the vectors of all parts
SCRATCH = 8  # vectors of float64, each with a number for each column, that a part wants


@lru_cache(maxsize=1024)
def cut(samples, size, columns):
    """(samples in a part, parts) for so many samples of that size with so many columns, none of which is 0."""
    rows = max(-(-samples // PARTS), -(-LEAST // size), -(-LINES * columns // size), samples * columns // MOST)
    return rows, -(-samples // rows)
