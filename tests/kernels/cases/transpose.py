"""Rows for transpose: tiles cut at their edges, bands of rows, few rows and few columns."""

from . import KernelCase, Output

SHAPES = [(1, 16, 16), (2, 17, 33), (3, 16, 5), (2, 5, 16), (1, 1, 1), (2, 257, 18), (1, 256 + 16, 31), (0, 4, 4)]
SHAPES += [(2, 0, 3), (40, 31, 47)]

CASES = [
    KernelCase(
        family="transpose",
        function="transpose",
        shapes=((n, r, c),),
        params={},
        outputs=(Output((n, c, r)),),
        nan=(0,) if n * r * c else (),
    )
    for n, r, c in SHAPES
]
