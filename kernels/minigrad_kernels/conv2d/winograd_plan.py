"""Winograd convolution on the CPU: when a call goes this way, how its work is shared out, and its launch.

For 3x3 filters, stride 1, float32, without dilation and groups. The result is cut into tiles of 4x4 pixels, each made
from 6x6 pixels of the source (a tile may reach beyond an edge). In the domain of frequencies a convolution is 36 matrix
products, tiles x channels by channels x filters: 2.25 multiplications for each pixel, channel and filter, not 9.

A thread holds in its second cache the frequencies of a block of tiles, V, those of a part of the filter, U, and their
products, M; they are made where they are needed and never lie in memory as a whole.

Winograd mixes the values of a tile, so one infinity or NaN would reach results that do not read it, and large numbers
overflow sooner. The kernels say whether all that they made was finite; where it was not, `correlated` and `summed`
say so and the direct convolution does it again, so that NaN and infinity appear exactly where they belong.

Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain import alias, elements
from ..toolchain.product import ROWS, SHARED_WORK, cut, flat
from ..toolchain.product import pieces as cut_into
from .plan import partial_count
from .winograd_kernels import LANES, SIDE, SQUARE, correlate, sum_filter

ITEMSIZE = 4
BLOCK_TILES = 36  # whose frequencies are held at once: whole register tiles, and few enough for the cache
LARGE_TILES = 72  # the same where the filter has many parts, each of which a block transforms anew
CHUNK, SECTION = 128, 64  # channels that are summed at once, and filters of a part of the filter

# When it pays; seen in the times of layers, with vectors of 8 lanes.
LEAST_TILES = 16  # over all images: fewer do not pay for the filter's frequencies
LEAST_CHANNELS = 12  # read or made, where tiles fill the result
MOST_WASTE = 2  # pixels that are made for each one of the result

# What a kernel needs to know. The source is what tiles of 6x6 are cut from, the result what tiles of 4x4 make. Pairs
# are vertical and horizontal; offsets count elements, from the start of a thread's scratch memory. A record, not a
# tuple: to hand on a tuple of so many numbers takes long to compile.
PAIR = np.int64, 2
NUMBERS = (
    "channels filters turned block chunk section v_tile v_step u_at u_step m_at m_tile m_step taps_at spare_at "
    "finite_at share"
)
FORM = np.dtype(
    [
        *((name, *PAIR) for name in ("source", "result", "shift", "tiles")),
        *((name, np.int64) for name in NUMBERS.split()),
    ]
)
ITEM = np.dtype([(f"{name}{end}", np.int64) for name in ("tile", "channel", "filter") for end in ("", "_end")])


class Winograd(NamedTuple):
    """A plan; its memory is `leading` elements, then scratch memory of each thread that takes part."""

    form: np.ndarray  # one FORM
    items: np.ndarray  # of ITEM: bounds of tiles and filters; for dw of tiles, channels and filters
    a_rows: np.ndarray  # tables of a product
    c_rows: np.ndarray
    partials: int  # how many sums dw is of
    shares: int
    leading: int  # elements for the partial sums, none where there is one

    def memory(self, workspace, like):
        """(partial sums, scratch memory)"""
        size = self.leading + self.shares * self.form["share"].item()
        memory = elements(workspace, like, like.dtype, size)
        return memory[: self.leading], memory[self.leading :]


def plan_of(direction, geometry, mode):
    """The plan for a call; None where it is direct."""
    simple = geometry.stride == geometry.dilation == (1, 1) and geometry.groups == 1 and geometry.work > 0
    if not mode or not simple or geometry.w_shape[2:] != (3, 3) or geometry.itemsize != ITEMSIZE:
        return None
    if mode != "always" and not _pays(direction, geometry):
        return None
    return _filter_plan(geometry) if direction == "weight_grad" else _correlation_plan(direction, geometry)


def _tiles(size):
    """Of an image, along each axis."""
    return tuple(-(-side // SIDE) for side in size)


def _pays(direction, geometry):
    """By shape alone, so that bits do not depend on the number of threads."""
    size, images = geometry.x_shape[2:] if direction == "input_grad" else geometry.out_size, geometry.x_shape[0]
    tiles, pixels = images * prod(_tiles(size)), images * prod(size)
    waste = tiles * SIDE * SIDE / pixels  # tiles may reach beyond an edge
    return tiles >= LEAST_TILES and waste < MOST_WASTE and min(geometry.w_shape[:2]) >= LEAST_CHANNELS * waste


# ---- plans -----------------------------------------------------------------------------------------------------------


def _up(count, step):
    return -(-count // step) * step


def _ranges(count, step, pieces):
    """A range cut into so many pieces, multiples of the step but for the end; fewer where it is short."""
    return list(pairwise(cut(count, step, max(1, min(pieces, -(-count // step))))))


def _odd(count):
    """At least so many elements, as an odd number of vectors: neighbours do not meet in one set of the cache."""
    return (-(-count // LANES) | 1) * LANES


def _form(direction, geometry, block, chunk, section, width):
    """width: the filters whose M is held at once. V and M lie frequency by frequency, as a product reads them."""
    turned = direction == "input_grad"
    ends = [(geometry.x_shape[2:], geometry.x_shape[1]), (geometry.out_size, geometry.w_shape[0])]
    (source, channels), (result, filters) = reversed(ends) if turned else ends
    v_tile, m_tile = _odd(chunk), _odd(width)
    v_step, m_step = _odd(block * v_tile), _odd(block * m_tile)
    u_step = chunk * _up(section, 2 * LANES) + LANES
    parts = SQUARE * v_step, SQUARE * u_step, SQUARE * m_step, 9 * chunk * section * turned, LANES, LANES
    u_at, m_at, taps_at, spare_at, finite_at, share = np.cumsum(parts).tolist()
    shift = tuple(pad - 2 if turned else -pad for pad in geometry.padding)
    pairs = source, result, shift, _tiles(result)
    offsets = v_tile, v_step, u_at, u_step, m_at, m_tile, m_step, taps_at, spare_at, finite_at, share
    return np.array([(*pairs, channels, filters, turned, block, chunk, section, *offsets)], FORM)


def _plan(geometry, form, items, a_rows, c_rows, partials=1):
    shares = min(geometry.threads if geometry.work >= SHARED_WORK else 1, len(items))
    leading = partials * prod(geometry.w_shape) if partials > 1 else 0
    items = np.array([sum(item, ()) for item in items], ITEM)
    return Winograd(form, items, a_rows, c_rows, partials, shares, leading)


def _largest(ranges):
    return max(end - start for start, end in ranges)


def _correlation_plan(direction, geometry):
    """Forward or input gradient: items are blocks of tiles, for each of some ranges of filters.

    Where a range of filters has one part, it serves all blocks, one after the other. Else there is one range, and
    blocks are large.
    """
    turned, threads = direction == "input_grad", geometry.threads
    filters, channels = geometry.w_shape[1::-1] if turned else geometry.w_shape[:2]
    tiles = geometry.x_shape[0] * prod(_tiles(geometry.x_shape[2:] if turned else geometry.out_size))
    chunk, section = min(CHUNK, _up(channels, LANES)), min(SECTION, _up(filters, LANES))
    several = channels > chunk
    blocks = -(-tiles // (LARGE_TILES if several else BLOCK_TILES))
    blocks = _ranges(tiles, ROWS, _up(blocks, threads) if blocks > threads else blocks)
    pieces = cut_into(geometry.work, len(blocks), threads, threads)
    ranges = _ranges(filters, LANES, pieces if several else max(pieces, -(-filters // SECTION)))
    block = _largest(blocks)
    form = _form(direction, geometry, block, chunk, section, _largest(ranges))
    items, numbers = [(one, (0, channels), part) for part in ranges for one in blocks], np.arange(block)
    return _plan(geometry, form, items, numbers * form["v_tile"], numbers * form["m_tile"])


def _filter_plan(geometry):
    """Weight gradient: items are parts of dw, or of its partial sums over blocks of images."""
    (images, channels), filters = geometry.x_shape[:2], geometry.w_shape[0]
    partials, tiles = partial_count(geometry), prod(_tiles(geometry.out_size))
    sections, chunks = -(-filters // SECTION), -(-channels // CHUNK)
    chunks *= cut_into(geometry.work, partials * sections * chunks, geometry.threads, geometry.threads)
    chunks, sections = _ranges(channels, LANES, chunks), _ranges(filters, LANES, sections)
    blocks = [(first * tiles, end * tiles) for first, end in _ranges(images, 1, partials)]
    chunk, section = _up(_largest(chunks), LANES), _up(_largest(sections), LANES)
    form = _form("weight_grad", geometry, min(BLOCK_TILES, _largest(blocks)), chunk, section, section)
    items = [(block, channels, filters) for block in blocks for channels in chunks for filters in sections]
    rows = np.arange(chunk)
    return _plan(geometry, form, items, rows, rows * section, partials)


# ---- launch ----------------------------------------------------------------------------------------------------------


def _finite(plan, scratch):
    """Whether all threads found all results finite."""
    share, at = plan.form["share"].item(), plan.form["finite_at"].item()
    return all(scratch.item(own * share + at) for own in range(plan.shares))


def correlated(plan, x, w, bias, relu, out, workspace):
    """Whether out now holds the convolution, or dx the gradient for x and w in the place of g and w."""
    _, scratch = plan.memory(workspace, x)
    none = scratch[:0]
    bias = none if bias is None else alias(bias)
    correlate.on(plan.shares, plan.shares, *plan[:4], flat(x), flat(w), none, bias, int(relu), flat(out), scratch)
    return _finite(plan, scratch)


def summed(plan, g, x, dw, workspace):
    """The partial sums of dw, or dw, one-dimensional, if it is its only one; None where not all was finite."""
    parts, scratch = plan.memory(workspace, g)
    target = parts if plan.leading else dw
    sum_filter.on(plan.shares, plan.shares, *plan[:5], flat(x), flat(g), scratch[:0], target, scratch)
    return target if _finite(plan, scratch) else None
