"""Winograd convolution: how tiles, channels and filters are shared out.

An output is cut into tiles of 4x4 pixels, each made from 6x6 pixels of input (a tile may reach beyond an edge). In the
domain of frequencies the convolution is 36 matrix products, tiles x channels by channels x filters: 2.25
multiplications for each output, channel and filter, not 9.

A thread holds in its second cache the frequencies of a block of tiles, V, those of a part of the filter, U, and their
products, M; they are made where they are needed and never lie in memory as a whole.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain.jobs import ROWS, SHARED_WORK, VECTOR_BYTES
from .filter_plan import partial_count

__all__ = ["LANES", "Form", "Plan", "correlation_plan", "filter_plan"]

TILE = 4  # pixels of a tile, along an axis
FREQUENCIES = 36
ITEMSIZE = 4
LANES = VECTOR_BYTES // ITEMSIZE
BLOCK_TILES = 36  # whose frequencies are held at once: whole register tiles, and few enough for the cache
LARGE_TILES = 72  # the same where the filter has many parts, each of which a block transforms anew
CHUNK, SECTION = 128, 64  # channels and filters of a part of the filter


class Form(NamedTuple):
    """What a kernel needs to know of a geometry; offsets count elements, from the start of a thread's scratch memory.

    The source is what tiles of 6x6 are cut from, with its channels; the result, cut into tiles of 4x4, has filters.
    """

    height: int  # of the source
    width: int
    channels: int
    result_height: int
    result_width: int
    filters: int
    top: int  # how far the first tile begins before the source
    left: int
    tile_rows: int  # of an image
    tile_columns: int
    transposed: int  # the filter is read rotated, with its two channels exchanged
    block: int  # tiles
    chunk: int  # channels
    section: int  # filters
    v_tile: int  # from a tile to the next
    v_step: int  # from a frequency to the next
    v_chunk: int  # from the frequencies of a chunk to those of the next
    u_at: int
    u_step: int
    m_at: int
    m_tile: int
    m_step: int
    taps_at: int
    spare_at: int  # a vector that nobody reads
    finite_at: int  # 1 or 0: whether all results were finite
    share: int


class Plan(NamedTuple):
    """Rows of items are bounds: of tiles, of channels (of dw) and of filters."""

    form: Form
    items: np.ndarray
    a_rows: np.ndarray
    c_rows: np.ndarray
    shares: int  # threads that take part
    partials: int  # sums that dw is made of
    leading: int  # elements of workspace for the partial sums, none where there is one


def _up(count, step):
    return -(-count // step) * step


def _ranges(count, step, pieces):
    """A range cut into so many pieces, multiples of the step but for the end; fewer where it is short."""
    steps = -(-count // step)
    pieces = max(1, min(pieces, steps))
    bounds = [min(count, piece * steps // pieces * step) for piece in range(pieces + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def _tiles(size):
    return [-(-length // TILE) for length in size]


def _odd(count):
    """At least so many elements, as an odd number of vectors: neighbours do not meet in one set of the cache."""
    return (-(-count // LANES) | 1) * LANES


def _steps(block, width):
    """From a tile to the next and from a frequency to the next, for so many channels of a block of tiles."""
    tile = _odd(width)
    return tile, _odd(block * tile)


def _form(source, result, border, transposed, sizes, whole_channels):
    """The form for a source and a result (height, width, channels); sizes: block, chunk and section.

    V and M lie frequency by frequency, V chunk by chunk before that, so that all that a product reads lies together.
    """
    block, chunk, section = sizes
    v_tile, v_step = _steps(block, chunk)
    chunks = -(-source[2] // chunk) if whole_channels else 1
    m_tile, m_step = _steps(block, section)
    u_step = chunk * _up(section, 2 * LANES) + LANES
    frequencies = [FREQUENCIES * step for step in (v_step * chunks, u_step, m_step)]
    parts = [*frequencies, 9 * chunk * section * transposed, 2 * LANES]
    u_at, m_at, taps_at, spare_at, share = np.cumsum(parts).tolist()
    return Form(
        *source, *result, *border, *_tiles(result[:2]), transposed, *sizes,
        v_tile, v_step, FREQUENCIES * v_step, u_at, u_step, m_at, m_tile, m_step,
        taps_at, spare_at, spare_at + LANES, share,
    )  # fmt: skip


def _pieces(count, threads):
    """Into how many each of so many equal items is worth cutting."""
    return 1 if count >= 4 * threads or count % threads == 0 else -(-threads // count)


def _shares(geometry, items):
    return min(geometry.threads if geometry.work >= SHARED_WORK else 1, len(items))


def _correlation_items(tiles, channels, filters, threads):
    """Blocks of tiles, for each of some ranges of filters.

    Where a part of the filter has all channels, ranges are such parts: one after the other serves all blocks. Else
    there is one range, and blocks are large.
    """
    several = channels > CHUNK
    blocks = -(-tiles // (LARGE_TILES if several else BLOCK_TILES))
    if blocks > threads:
        blocks = _up(blocks, threads)
    blocks = _ranges(tiles, ROWS, blocks)
    pieces = _pieces(len(blocks), threads)
    if not several:
        pieces = max(pieces, -(-filters // SECTION))
    ranges = _ranges(filters, LANES, pieces)
    return [(*block, 0, channels, *part) for part in ranges for block in blocks]


def correlation_plan(geometry, transposed):
    """Forward, or with `transposed` the input gradient, which correlates g with the rotated filter.

    The sums run over channels alone.
    """
    images, channels, *size = geometry.x_shape
    source, result = (*size, channels), (*geometry.out_size, geometry.w_shape[0])
    border = geometry.padding
    if transposed:
        source, result, border = result, source, tuple(2 - padding for padding in border)
    tiles = images * prod(_tiles(result[:2]))
    chunk, section = min(CHUNK, _up(source[2], LANES)), min(SECTION, _up(result[2], LANES))
    items = _correlation_items(tiles, source[2], result[2], geometry.threads)
    block = max(item[1] - item[0] for item in items)
    form = _form(source, result, border, int(transposed), (block, chunk, section), True)
    numbers = np.arange(block)
    tables = np.array(items, np.int64), numbers * form.v_tile, numbers * form.m_tile
    return Plan(form, *tables, _shares(geometry, items), 1, 0)


def filter_plan(geometry):
    """Weight gradient: items are parts of dw, or of its partial sums over blocks of images."""
    images, channels, *size = geometry.x_shape
    source, result = (*size, channels), (*geometry.out_size, geometry.w_shape[0])
    partials, tiles = partial_count(geometry), prod(_tiles(result[:2]))
    sections = -(-result[2] // SECTION)
    chunks = -(-channels // CHUNK)
    chunks *= _pieces(partials * sections * chunks, geometry.threads)
    chunks, sections = _ranges(channels, LANES, chunks), _ranges(result[2], LANES, sections)
    bounds = [part * images // partials * tiles for part in range(partials + 1)]
    items = [
        (*part, *chunk, *section)
        for part in zip(bounds, bounds[1:], strict=False)
        for chunk in chunks
        for section in sections
    ]
    chunk, section = (_up(max(end - start for start, end in parts), LANES) for parts in (chunks, sections))
    block = min(BLOCK_TILES, max(end - start for start, end in zip(bounds, bounds[1:], strict=False)))
    form = _form(source, result, geometry.padding, 0, (block, chunk, section), False)
    numbers = np.arange(chunk)
    tables = np.array(items, np.int64), numbers, numbers * section
    leading = partials * prod(geometry.w_shape) if partials > 1 else 0
    return Plan(form, *tables, _shares(geometry, items), partials, leading)
