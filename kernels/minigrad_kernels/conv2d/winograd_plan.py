"""Winograd convolution: how tiles, taps, channels and filters are shared out.

An output is cut into tiles of m x m pixels, each made from 6x6 pixels of input (a tile may reach beyond an edge). In
the domain of frequencies the convolution with r x r taps, r = 7 - m, is 36 matrix products, tiles x channels by
channels x filters: 36/m^2 multiplications for each output, channel and filter, not r^2. A filter of more taps is a sum
of pieces, see winograd_pieces.py; they are added in the domain of frequencies.

A thread holds in its second cache the frequencies of a block of tiles, V, those of a part of the filter, U, and their
products, M; they are made where they are needed and never lie in memory as a whole. A part of the filter is a piece
of it, for some channels and filters.
"""

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain.product import ROWS, SHARED_WORK, VECTOR_BYTES
from .filter_plan import partial_count
from .winograd_pieces import SQUARE

__all__ = ["ITEMSIZE", "LANES", "Plan", "correlation_plan", "filter_plan"]

ITEMSIZE = 4
LANES = VECTOR_BYTES // ITEMSIZE
BLOCK_TILES = 36  # whose frequencies are held at once: whole register tiles, and few enough for the cache
LARGE_TILES = 72  # the same where the filter has many parts, each of which a block transforms anew
CHUNK, SECTION = 128, 64  # channels, of pieces that are summed at once, and filters of a part of the filter


# What a kernel needs to know of a geometry. The source is what tiles of 6x6 are cut from, with its channels; the
# result, cut into tiles, has filters. Pairs are vertical and horizontal; made to tap_step are those of the axes of a
# Grid. Offsets count elements, from the start of a thread's scratch memory. A record, not a tuple: to hand on a tuple
# of so many numbers takes long to compile.
PAIR = np.int64, 2
FORM = np.dtype(
    [
        ("source", *PAIR),  # height, width
        ("channels", np.int64),
        ("result", *PAIR),  # height, width
        ("filters", np.int64),
        ("made", *PAIR),
        ("first", *PAIR),
        ("spacing", *PAIR),
        ("step", *PAIR),
        ("tap_step", *PAIR),
        ("filter_width", np.int64),  # in taps
        ("tiles", *PAIR),  # of an image
        ("transposed", np.int64),  # the filter is read with its two channels exchanged
        ("block", np.int64),  # tiles
        ("chunk", np.int64),  # channels
        ("section", np.int64),  # filters
        ("v_tile", np.int64),  # from a tile to the next
        ("v_step", np.int64),  # from a frequency to the next
        ("u_at", np.int64),
        ("u_step", np.int64),
        ("m_at", np.int64),
        ("m_tile", np.int64),
        ("m_step", np.int64),
        ("taps_at", np.int64),
        ("spare_at", np.int64),  # a vector that nobody reads
        ("finite_at", np.int64),  # 1 or 0: whether all results were finite
        ("share", np.int64),
    ]
)


class Plan(NamedTuple):
    """Rows of items are bounds: of tiles and of filters; for dw of tiles, channels and filters."""

    taps: tuple  # r zeros: their number is known to the compiler
    form: np.ndarray  # one FORM
    items: np.ndarray
    pieces: np.ndarray  # see winograd_pieces.py
    tables: tuple  # offsets of rows of A and C, and of pieces; see the kernels
    parts: np.ndarray | int  # bounds of channels, and the first piece, that are summed at once; how many sums dw is of
    shares: int  # threads that take part
    leading: int  # elements of workspace for the partial sums, none where there is one


def _up(count, step):
    return -(-count // step) * step


def _ranges(count, step, pieces):
    """A range cut into so many pieces, multiples of the step but for the end; fewer where it is short."""
    steps = -(-count // step)
    pieces = max(1, min(pieces, steps))
    bounds = [min(count, piece * steps // pieces * step) for piece in range(pieces + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def _odd(count):
    """At least so many elements, as an odd number of vectors: neighbours do not meet in one set of the cache."""
    return (-(-count // LANES) | 1) * LANES


def _steps(block, width):
    """From a tile to the next and from a frequency to the next, for so many channels of a block of tiles."""
    tile = _odd(width)
    return tile, _odd(block * tile)


def _form(geometry, grid, transposed, sizes, width, held):
    """The taps and the form.

    sizes are block, chunk and section, width the filters whose M is held at once, held the pieces of V and of U. V and
    M lie frequency by frequency, so that all that a product reads lies together.
    """
    block, chunk, section = sizes
    ends = [(geometry.x_shape[2:], geometry.x_shape[1]), (geometry.out_size, geometry.w_shape[0])]
    source, result = reversed(ends) if transposed else ends
    (v_tile, v_step), (m_tile, m_step) = _steps(block, chunk), _steps(block, width)
    u_step = chunk * _up(section, 2 * LANES) + LANES
    frequencies = [SQUARE * step for step in (held[0] * v_step, held[1] * u_step, m_step)]
    parts = [*frequencies, grid.taps**2 * chunk * section * transposed, 2 * LANES]
    u_at, m_at, taps_at, spare_at, share = np.cumsum(parts).tolist()
    axes = zip(*(axis[:-1] for axis in grid[:2]), strict=True)
    form = (
        *source, *result, *axes, geometry.w_shape[3], grid.tiles, int(transposed), *sizes,
        v_tile, v_step, u_at, u_step, m_at, m_tile, m_step, taps_at, spare_at, spare_at + LANES, share,
    )  # fmt: skip
    return (0,) * grid.taps, np.array([form], FORM)


def _pieces(count, threads):
    """Into how many each of so many equal items is worth cutting."""
    return 1 if count >= 4 * threads or count % threads == 0 else -(-threads // count)


def _shares(geometry, items):
    return min(geometry.threads if geometry.work >= SHARED_WORK else 1, len(items))


def _correlation_items(tiles, filters, several, threads):
    """Blocks of tiles, for each of some ranges of filters.

    Where the filter has one part for a range of filters, it serves all blocks, one after the other. Else there is one
    range, and blocks are large.
    """
    blocks = -(-tiles // (LARGE_TILES if several else BLOCK_TILES))
    if blocks > threads:
        blocks = _up(blocks, threads)
    blocks = _ranges(tiles, ROWS, blocks)
    pieces = _pieces(len(blocks), threads)
    if not several:
        pieces = max(pieces, -(-filters // SECTION))
    ranges = _ranges(filters, LANES, pieces)
    return [(*block, *part) for part in ranges for block in blocks]


def correlation_plan(geometry, grid, transposed):
    """Forward, or with `transposed` a grid of the input gradient. The sums run over channels and pieces."""
    channels, filters = geometry.w_shape[1::-1]
    if transposed:
        channels, filters = filters, channels
    tiles, pieces = geometry.x_shape[0] * prod(grid.tiles), grid.pieces
    chunk, section = min(CHUNK, _up(channels, LANES)), min(SECTION, _up(filters, LANES))
    held = max(count for count in range(1, len(pieces) + 1) if len(pieces) % count == 0 and count * chunk <= CHUNK)
    starts = product(range(0, channels, chunk), range(0, len(pieces), held))
    parts = [(c, min(c + chunk, channels), piece) for c, piece in starts]
    items = _correlation_items(tiles, filters, len(parts) > 1, geometry.threads)
    block, width = (max(item[end] - item[end - 1] for item in items) for end in (1, 3))
    taps, form = _form(geometry, grid, transposed, (block, chunk, section), width, (held, held))
    tiles, squares = np.arange(block), np.arange(held) * SQUARE
    tables = tiles * form["v_tile"], tiles * form["m_tile"], squares * form["v_step"], squares * form["u_step"]
    items, parts = np.array(items, np.int64), np.array(parts, np.int64)
    return Plan(taps, form, items, pieces, tables, parts, _shares(geometry, items), 0)


def filter_plan(geometry, grid):
    """Weight gradient: items are parts of dw, or of its partial sums over blocks of images."""
    (images, channels), filters, pieces = geometry.x_shape[:2], geometry.w_shape[0], grid.pieces
    partials, tiles = partial_count(geometry), prod(grid.tiles)
    sections = -(-filters // SECTION)
    chunks = -(-channels // CHUNK)
    chunks *= _pieces(partials * sections * chunks, geometry.threads)
    chunks, sections = _ranges(channels, LANES, chunks), _ranges(filters, LANES, sections)
    bounds = [part * images // partials * tiles for part in range(partials + 1)]
    items = [
        (*part, *chunk, *section)
        for part in zip(bounds, bounds[1:], strict=False)
        for chunk in chunks
        for section in sections
    ]
    chunk, section = (_up(max(end - start for start, end in parts), LANES) for parts in (chunks, sections))
    block = min(BLOCK_TILES, max(end - start for start, end in zip(bounds, bounds[1:], strict=False)))
    taps, form = _form(geometry, grid, False, (block, chunk, section), section, (1, len(pieces)))
    rows, parts = np.arange(chunk), np.arange(len(pieces)) * SQUARE
    tables = rows, rows * section, np.zeros(1, np.int64), parts * form["u_step"]
    leading = partials * prod(geometry.w_shape) if partials > 1 else 0
    items = np.array(items, np.int64)
    return Plan(taps, form, items, pieces, tables, partials, _shares(geometry, items), leading)
