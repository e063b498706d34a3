"""Tensor maps of the interpreter: what the driver's cuTensorMapEncodeTiled makes for a GPU, in a form of our own.

A map describes a matrix in global memory and the box of it that one copy takes. It is 128 bytes, of which a GPU's own
are opaque; here they are 16 whole numbers, in the order of the fields below.
"""

from typing import NamedTuple

import numpy as np

WORDS = 16  # of 64 bits in a map
MARK = 0x6D6170  # in the first word: this is a map


class TensorMap(NamedTuple):
    """rows and columns of the matrix, and of a box; size: bytes of an element; stride: bytes from row to row.

    Columns lie side by side. A box lies in shared memory in lines of its columns, and the chunks of 16 bytes of a line
    are turned as if lines had 128 bytes.
    """

    address: int
    rows: int
    columns: int
    stride: int
    box_rows: int
    box_columns: int
    size: int


def encode(map_):
    """The 16 words of a TensorMap."""
    words = np.zeros(WORDS, np.uint64)
    words[: 1 + len(map_)] = MARK, *map_
    return words


def decode(words):
    """The TensorMap of 16 words, or None if they are none."""
    if int(words[0]) != MARK:
        return None
    return TensorMap(*(int(word) for word in words[1 : 1 + len(TensorMap._fields)]))
