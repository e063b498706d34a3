"""How the direct rung of the weight gradient cuts the output pixels into tiles, and shares a tile among threads."""

from functools import lru_cache
from typing import NamedTuple

__all__ = ["MOST_PIXELS", "ROWS", "THREADS", "TURNS", "Tile", "run_of", "tile_of"]

THREADS = 256
ROWS, COLUMNS = 9, 4  # of dw in each thread
MOST_DOWN, MOST_ACROSS = 16, 16  # threads in a block, along rows and columns of dw
TURNS = 4  # pixels that a lane has at hand together
MOST_LANES = 64
MOST_PIXELS = TURNS * MOST_LANES  # of a tile
ROOM = 6144  # floats of shared memory for a patch


class Tile(NamedTuple):
    """Tiles of height x width pixels, which read a patch of x; a lane, of down * across threads, takes every lanes-th
    pixel. The threads of a block own chunks of dw, of which there are so many."""

    down: int
    across: int
    chunks: int
    lanes: int
    height: int
    width: int
    patch: tuple[int, int]
    padded: int  # pixels, to a multiple of TURNS * lanes
    shared: int  # bytes of a patch, and later of the sums of half the lanes

    @property
    def threads(self):
        return self.lanes * self.down * self.across


def _sizes(length, most):
    """Sizes of 1, 2, 3, ... about equal pieces, from large to small."""
    return sorted({-(-length // pieces) for pieces in range(1, length + 1)} & set(range(1, most + 1)), reverse=True)


def _patch(sizes, taps, stride, dilation):
    return tuple((n - 1) * s + (t - 1) * d + 1 for n, s, t, d in zip(sizes, stride, taps, dilation, strict=True))


def run_of(problem, quads):
    """How many rows of dw, from a multiple of that on, a thread takes as neighbours in x: 3 if that can be, or 1.

    quads: whether four columns of g can be read at once; where not, 1
    """
    channels, _, width = problem.w_shape[1:]
    return 3 if quads and (channels % 3 == 0 or (channels * width % 3 == 0 and problem.dilation[1] == 1)) else 1


@lru_cache(maxsize=1024)
def tile_of(problem):
    """The Tile of a Problem, or None if not even one pixel's patch fits into shared memory.

    Of all tiles it is the one that takes least: time to copy its patch, and turns of the lanes, idle ones too.
    """
    p = problem
    down, across = -(-p.rows // ROWS), -(-p.columns // COLUMNS)
    chunks_down, chunks_across = -(-down // MOST_DOWN), -(-across // MOST_ACROSS)
    down, across = -(-down // chunks_down), -(-across // chunks_across)
    lanes = min(THREADS // (down * across), MOST_LANES)
    round_pixels, best = TURNS * lanes, None
    for height in _sizes(p.out_size[0], MOST_PIXELS):
        for width in _sizes(p.out_size[1], MOST_PIXELS // height):
            padded = -(-height * width // round_pixels) * round_pixels
            patch = _patch((height, width), p.w_shape[2:], p.stride, p.dilation)
            floats = patch[0] * patch[1] * p.w_shape[1]
            if padded > MOST_PIXELS or floats > ROOM:
                continue
            tiles = -(-p.out_size[0] // height) * -(-p.out_size[1] // width)
            copying = floats * 12 / (lanes * down * across)
            cost = tiles * (padded / lanes * (ROWS * COLUMNS + 20) + copying + 200)
            if best is None or cost < best[0]:
                best = cost, height, width, patch, padded, floats
    if best is None:
        return None
    _, height, width, patch, padded, floats = best
    shared = 4 * max(floats, lanes // 2 * down * across * ROWS * COLUMNS)
    return Tile(down, across, chunks_down * chunks_across, lanes, height, width, patch, padded, shared)
