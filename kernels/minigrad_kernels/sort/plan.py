"""Which way finds the first elements of a row, and the memory that it takes."""

__all__ = ["SELECTED", "row_bytes"]

SELECTED = 32  # elements of a row; up to so many are found by insertion, which for more takes longer than sorting all


def row_bytes(columns, size, dtype):
    """Bytes of workspace for one row at a time: keys and places, before and after they have been distributed.

    Both may have to skip some bytes to begin where an element may.
    """
    width = 8 if dtype.itemsize == 8 else 4
    return 0 if size <= SELECTED else 2 * columns * (width + 8) + 16
