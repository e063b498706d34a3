"""Winograd convolution in all three directions, for float32; see winograd_plan.py.

A sum runs over channels, or for the weight gradient over tiles in order, as long as a plan chosen by shape alone
says; where it is interrupted and who computes it changes no bits.

Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from ..toolchain import jit, share, shared
from ..toolchain.product import LOW_ROWS, ROWS
from ..toolchain.vector import low_tile, narrow_tile, wide_tile
from .winograd_pieces import FREQUENCIES, SQUARE
from .winograd_plan import LANES
from .winograd_transform import (
    gather_filter,
    gather_output,
    spread_filter,
    spread_gradient,
    spread_input,
    transpose,
)

__all__ = ["correlate", "sum_filter"]


@jit
def _corner(taps, form, tile):
    """Image, row and column of the first pixel of a tile, among those that are made."""
    each, size = form.tiles[0] * form.tiles[1], FREQUENCIES + 1 - len(taps)
    image, place = tile // each, tile % each
    return image, size * (place // form.tiles[1]), size * (place % form.tiles[1])


@jit
def _inside(size, first, step):
    """From which step on, and below which, first + step*k is one of `size` places."""
    return -(first // step), -((first - size) // step)


@jit
def _spread_source(taps, form, piece, x, tile, tile_end, channel, channel_end, scratch, v):
    left, down, right = form.channels - channel, form.step[0], form.step[1]
    line = form.source[1] * form.channels
    for number in range(tile, tile_end):
        image, row, column = _corner(taps, form, number)
        row, column = row * down + piece[0], column * right + piece[3]
        window = (*_inside(form.source[0], row, down), *_inside(form.source[1], column, right))
        at = (image * form.source[0] + row) * line + column * form.channels + channel
        target = v + (number - tile) * form.v_tile
        for c in range(0, channel_end - channel, LANES):
            spread_input(
                x, at + c, down * line, right * form.channels, window, left - c, scratch, target + c, form.v_step
            )


@jit
def _result(taps, form, tile):
    """Where in the result a tile begins, and which of its pixels are inside."""
    image, row, column = _corner(taps, form, tile)
    line, window = form.result[1] * form.filters, (0, form.made[0] - row, 0, form.made[1] - column)
    row, column = form.first[0] + row * form.spacing[0], form.first[1] + column * form.spacing[1]
    return (image * form.result[0] + row) * line + column * form.filters, window


@jit
def _spread_result(taps, form, g, tile, tile_end, first, end, scratch, m):
    for number in range(tile, tile_end):
        at, window = _result(taps, form, number)
        target = m + (number - tile) * form.m_tile
        for k in range(first, end, LANES):
            spread_gradient(
                g, at + k, form.result[1] * form.filters, form.filters, window, form.filters - k,
                scratch, target + k - first, form.m_step, taps,
            )  # fmt: skip


@jit
def _gather_result(taps, form, tile, tile_end, first, end, scratch, base, bias, relu, out):
    finite, right = 1, form.spacing[1] * form.filters
    down = form.spacing[0] * form.result[1] * form.filters
    for number in range(tile, tile_end):
        at, window = _result(taps, form, number)
        ahead = _result(taps, form, number + 1)[0] - at
        source = base + form.m_at + (number - tile) * form.m_tile
        for k in range(first, end, LANES):
            finite &= gather_output(
                scratch, source + k - first, form.m_step, bias, k, relu,
                out, at + k, down, right, window, form.filters - k, scratch, base + form.spare_at, ahead, taps,
            )  # fmt: skip
    return finite


@jit
def _tap(form, piece, row, column):
    """The number of a tap of a piece in the whole filter."""
    down, right = piece[1] + row * form.tap_step[0], piece[4] + column * form.tap_step[1]
    return down * form.filter_width + right


@jit
def _transpose_taps(taps, form, piece, w, channel, channel_end, first, end, scratch, at):
    """Copy taps of a filter that lies with its two channels exchanged, in order; how many elements apart they lie."""
    plane, apart = form.channels * form.filters, form.chunk * form.section
    for row in range(piece[2]):
        for column in range(piece[5]):
            source, target = _tap(form, piece, row, column) * plane, at + (row * len(taps) + column) * apart
            for k in range(first, end, LANES):
                for c in range(channel, channel_end, LANES):
                    transpose(
                        w, source + k * form.channels + c, form.channels, form.filters - k, form.channels - c,
                        scratch, target + (c - channel) * form.section + k - first, form.section,
                    )  # fmt: skip
    return apart


@jit
def _spread_part(taps, form, piece, w, channel, channel_end, first, end, scratch, copied, u):
    """U of some channels and filters: panels of two vectors of filters, with a row for each channel."""
    plane, tap = form.channels * form.filters, _tap(form, piece, 0, 0)
    source, at, line = w, tap * plane + channel * form.filters + first, form.filters
    down, right = (_tap(form, piece, 1, 0) - tap) * plane, form.tap_step[1] * plane
    if form.transposed:
        right = _transpose_taps(taps, form, piece, w, channel, channel_end, first, end, scratch, copied)
        source, at, line, down = scratch, copied, form.section, len(taps) * right
    for c in range(channel_end - channel):
        for k in range(0, end - first, LANES):
            panel = k // (2 * LANES) * (form.chunk * 2 * LANES) + k % (2 * LANES)
            spread_filter(
                source, at + c * line + k, down, right, (0, piece[2], 0, piece[5]), form.filters - first - k,
                scratch, u + panel + c * 2 * LANES, form.u_step, taps,
            )  # fmt: skip


@jit
def _product(
    scratch, rows, columns, length, a, a_rows, a_taps, a_step, b, b_panel, b_taps, b_step, c, c_rows, accumulate, none
):  # fmt: skip
    """One matrix product, all of it in scratch memory: panels of B outside, so that they stay in the first cache."""
    rest, taps = rows % ROWS, a_taps.size
    whole = rows if rest > 2 * LOW_ROWS else rows - rest
    for column in range(0, columns, 2 * LANES):
        there, here = b + column * b_panel, c + column
        if columns - column > LANES:
            for row in range(0, whole, ROWS):
                wide_tile(
                    scratch, a_rows, a, scratch, c_rows, here, row, rows, none, 0,
                    scratch, a_taps, b_taps, there, 0, taps, length, a_step, b_step, 2 * LANES, accumulate, 0,
                )  # fmt: skip
            for row in range(whole, rows, LOW_ROWS):
                low_tile(
                    scratch, a_rows, a, scratch, c_rows, here, row, rows, none, 0,
                    scratch, a_taps, b_taps, there, 0, taps, length, a_step, b_step, 2 * LANES, accumulate, 0,
                )  # fmt: skip
        else:
            for row in range(0, rows, ROWS):
                narrow_tile(
                    scratch, a_rows, a, scratch, c_rows, here, row, rows, none, 0,
                    scratch, a_taps, b_taps, there, 0, taps, length, a_step, b_step, LANES, accumulate, 0,
                )  # fmt: skip


@shared
def correlate(team, shares, taps, forms, items, pieces, tables, parts, x, w, none, bias, relu, out, scratch):
    """Forward and input gradient; x, w and out are one-dimensional. Whether all was finite is left in scratch."""
    form, (a_rows, c_rows, a_taps, b_taps) = forms[0], tables
    for own in share(shares, team):
        base, finite, held, count = own * form.share, 1, -1, items.shape[0]
        u, m, copied = base + form.u_at, base + form.m_at, base + form.taps_at
        for number in range(own * count // shares, (own + 1) * count // shares):
            item = items[number]
            tile, tile_end, first, end = item[0], item[1], item[2], item[3]  # to unpack it takes long to compile
            for part in range(parts.shape[0]):
                c, c_end, p = parts[part, 0], parts[part, 1], parts[part, 2]
                for i in range(a_taps.size):
                    _spread_source(taps, form, pieces[p + i], x, tile, tile_end, c, c_end, scratch, base + a_taps[i])
                for k in range(first, end, form.section):
                    k_end = min(k + form.section, end)
                    if held != k * parts.shape[0] + part:
                        held = k * parts.shape[0] + part
                        for i in range(b_taps.size):
                            _spread_part(
                                taps, form, pieces[p + i], w, c, c_end, k, k_end, scratch, copied, u + b_taps[i]
                            )
                    for f in range(SQUARE):
                        _product(
                            scratch, tile_end - tile, k_end - k, c_end - c,
                            base + f * form.v_step, a_rows, a_taps, 1,
                            u + f * form.u_step, form.chunk, b_taps, 2 * LANES,
                            m + f * form.m_step + k - first, c_rows, part > 0, none,
                        )  # fmt: skip
            finite &= _gather_result(taps, form, tile, tile_end, first, end, scratch, base, bias, relu, out)
        scratch[base + form.finite_at] = finite


@jit
def _gather_part(taps, form, piece, channel, channel_end, first, end, scratch, base, u, dw, at):
    plane, finite, window, tap = form.channels * form.filters, 1, (0, piece[2], 0, piece[5]), _tap(form, piece, 0, 0)
    down, right = _tap(form, piece, 1, 0) - tap, form.tap_step[1]
    for c in range(channel, channel_end):
        for k in range(first, end, LANES):
            source, target = u + (c - channel) * form.section + k - first, at + c * form.filters + k
            finite &= gather_filter(
                scratch, source, form.u_step, dw, target + tap * plane, down * plane, right * plane, window,
                form.filters - k, scratch, base + form.spare_at, form.filters, taps,
            )  # fmt: skip
    return finite


@shared
def sum_filter(team, shares, taps, forms, items, pieces, tables, partials, x, g, none, dw, scratch):
    """Weight gradient, or its partial sums one after the other; arrays are one-dimensional."""
    form, (a_rows, c_rows, one, u_taps) = forms[0], tables
    for own in share(shares, team):
        base, finite, count = own * form.share, 1, items.shape[0]
        u, m = base + form.u_at, base + form.m_at
        for number in range(own * count // shares, (own + 1) * count // shares):
            item = items[number]
            start, stop, channel, channel_end, first, end = item[0], item[1], item[2], item[3], item[4], item[5]
            for tile in range(start, stop, form.block):
                tile_end = min(tile + form.block, stop)
                _spread_result(taps, form, g, tile, tile_end, first, end, scratch, m)
                for p in range(pieces.shape[0]):
                    _spread_source(taps, form, pieces[p], x, tile, tile_end, channel, channel_end, scratch, base)
                    for f in range(SQUARE):
                        _product(
                            scratch, channel_end - channel, end - first, tile_end - tile,
                            base + f * form.v_step, a_rows, one, form.v_tile,
                            m + f * form.m_step, 1, one, form.m_tile,
                            u + u_taps[p] + f * form.u_step, c_rows, tile > start, none,
                        )  # fmt: skip
            at = number * partials // count * (dw.size // partials)
            for p in range(pieces.shape[0]):
                finite &= _gather_part(
                    taps, form, pieces[p], channel, channel_end, first, end, scratch, base, u + u_taps[p], dw, at
                )
        scratch[base + form.finite_at] = finite
