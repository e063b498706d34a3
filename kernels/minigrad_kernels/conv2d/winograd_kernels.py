"""Winograd convolution F(4x4,3x3) in all three directions, for float32; see winograd_plan.py.

A sum runs over channels, or for the weight gradient over tiles in order, as long as a plan chosen by shape alone
says; where it is interrupted and who computes it changes no bits.

Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from ..toolchain import jit, share, shared
from ..toolchain.jobs import LOW_ROWS, ROWS
from ..toolchain.transform import (
    gather_filter,
    gather_output,
    spread_filter,
    spread_gradient,
    spread_input,
    transpose,
)
from ..toolchain.vector import low_tile, narrow_tile, wide_tile
from .winograd_plan import FREQUENCIES, LANES

__all__ = ["correlate", "sum_filter"]


@jit
def _tile_corner(form, tile):
    """Image, row and column of the first pixel of a tile."""
    each = form.tile_rows * form.tile_columns
    image, place = tile // each, tile % each
    return image, 4 * (place // form.tile_columns), 4 * (place % form.tile_columns)


@jit
def _spread_source(form, x, tile, tile_end, channel, channel_end, scratch, v):
    left = form.channels - channel
    for number in range(tile, tile_end):
        image, row, column = _tile_corner(form, number)
        row, column = row - form.top, column - form.left
        window = (-row, form.height - row, -column, form.width - column)
        at = ((image * form.height + row) * form.width + column) * form.channels + channel
        target = v + (number - tile) * form.v_tile
        for c in range(0, channel_end - channel, LANES):
            spread_input(
                x, at + c, form.width * form.channels, form.channels, window, left - c,
                scratch, target + c, form.v_step,
            )  # fmt: skip


@jit
def _result_at(form, tile):
    """Where in the result a tile begins."""
    image, row, column = _tile_corner(form, tile)
    return ((image * form.result_height + row) * form.result_width + column) * form.filters


@jit
def _spread_result(form, g, tile, tile_end, first, end, scratch, m):
    for number in range(tile, tile_end):
        _, row, column = _tile_corner(form, number)
        window = (0, form.result_height - row, 0, form.result_width - column)
        at = _result_at(form, number)
        target = m + (number - tile) * form.m_tile
        for k in range(first, end, LANES):
            spread_gradient(
                g, at + k, form.result_width * form.filters, form.filters, window, form.filters - k,
                scratch, target + k - first, form.m_step,
            )  # fmt: skip


@jit
def _gather_result(form, tile, tile_end, first, end, scratch, base, bias, relu, out):
    finite = 1
    for number in range(tile, tile_end):
        _, row, column = _tile_corner(form, number)
        window = (0, form.result_height - row, 0, form.result_width - column)
        at = _result_at(form, number)
        ahead = _result_at(form, number + 1) - at
        source = base + form.m_at + (number - tile) * form.m_tile
        for k in range(first, end, LANES):
            finite &= gather_output(
                scratch, source + k - first, form.m_step, bias, k, relu,
                out, at + k, form.result_width * form.filters, form.filters, window, form.filters - k,
                scratch, base + form.spare_at, ahead,
            )  # fmt: skip
    return finite


@jit
def _panel(form, first, k):
    """Where in U the vector of filter k lies: in panels of two vectors, a row for each channel."""
    return (k - first) // (2 * LANES) * (form.chunk * 2 * LANES) + (k - first) % (2 * LANES)


@jit
def _spread_part(form, w, channel, channel_end, first, end, scratch, u):
    """U of some channels and filters."""
    plane = form.channels * form.filters
    for c in range(channel, channel_end):
        for k in range(first, end, LANES):
            target = u + _panel(form, first, k) + (c - channel) * 2 * LANES
            spread_filter(
                w, c * form.filters + k, 3 * plane, plane, (0, 3, 0, 3), form.filters - k,
                scratch, target, form.u_step,
            )  # fmt: skip


@jit
def _spread_transposed(form, w, channel, channel_end, first, end, scratch, base):
    """U of some channels and filters of a rotated filter, which lies with the two exchanged."""
    plane, part = form.channels * form.filters, form.chunk * form.section
    taps = base + form.taps_at
    for tap in range(9):
        for k in range(first, end, LANES):
            for c in range(channel, channel_end, LANES):
                transpose(
                    w, (8 - tap) * plane + k * form.channels + c, form.channels, form.filters - k, form.channels - c,
                    scratch, taps + tap * part + (c - channel) * form.section + k - first, form.section,
                )  # fmt: skip
    for c in range(channel_end - channel):
        for k in range(first, end, LANES):
            target = base + form.u_at + _panel(form, first, k) + c * 2 * LANES
            spread_filter(
                scratch, taps + c * form.section + k - first, 3 * part, part, (0, 3, 0, 3), LANES,
                scratch, target, form.u_step,
            )  # fmt: skip


@jit
def _product(scratch, rows, columns, length, a, a_rows, a_step, b, b_panel, b_step, c, c_rows, accumulate, none, zero):
    """One matrix product, all of it in scratch memory: panels of B outside, so that they stay in the first cache."""
    rest = rows % ROWS
    whole = rows if rest > 2 * LOW_ROWS else rows - rest
    for column in range(0, columns, 2 * LANES):
        there, here = b + column * b_panel, c + column
        if columns - column > LANES:
            for row in range(0, whole, ROWS):
                wide_tile(
                    scratch, a_rows, a, scratch, c_rows, here, row, rows, none, 0,
                    scratch, zero, zero, there, 0, 1, length, a_step, b_step, 2 * LANES, accumulate, 0,
                )  # fmt: skip
            for row in range(whole, rows, LOW_ROWS):
                low_tile(
                    scratch, a_rows, a, scratch, c_rows, here, row, rows, none, 0,
                    scratch, zero, zero, there, 0, 1, length, a_step, b_step, 2 * LANES, accumulate, 0,
                )  # fmt: skip
        else:
            for row in range(0, rows, ROWS):
                narrow_tile(
                    scratch, a_rows, a, scratch, c_rows, here, row, rows, none, 0,
                    scratch, zero, zero, there, 0, 1, length, a_step, b_step, LANES, accumulate, 0,
                )  # fmt: skip


@shared
def correlate(team, shares, form, items, a_rows, c_rows, zero, x, w, none, bias, relu, out, scratch):
    """Forward and input gradient; x, w and out are one-dimensional. Whether all was finite is left in scratch."""
    for own in share(shares, team):
        base, finite, held, count = own * form.share, 1, -1, items.shape[0]
        for number in range(own * count // shares, (own + 1) * count // shares):
            tile, tile_end, _, channels, first, end = items[number]
            for c in range(0, channels, form.chunk):
                part = base + c // form.chunk * form.v_chunk
                _spread_source(form, x, tile, tile_end, c, min(c + form.chunk, channels), scratch, part)
            for k in range(first, end, form.section):
                k_end = min(k + form.section, end)
                for c in range(0, channels, form.chunk):
                    c_end = min(c + form.chunk, channels)
                    if held != k * channels + c:
                        held = k * channels + c
                        if form.transposed:
                            _spread_transposed(form, w, c, c_end, k, k_end, scratch, base)
                        else:
                            _spread_part(form, w, c, c_end, k, k_end, scratch, base + form.u_at)
                    for f in range(FREQUENCIES):
                        v = base + c // form.chunk * form.v_chunk + f * form.v_step
                        _product(
                            scratch, tile_end - tile, k_end - k, c_end - c, v, a_rows, 1,
                            base + form.u_at + f * form.u_step, form.chunk, 2 * LANES,
                            base + form.m_at + f * form.m_step, c_rows, c > 0, none, zero,
                        )  # fmt: skip
                finite &= _gather_result(form, tile, tile_end, k, k_end, scratch, base, bias, relu, out)
        scratch[base + form.finite_at] = finite


@jit
def _gather_part(form, channel, channel_end, first, end, scratch, u, dw, at):
    plane, finite = form.channels * form.filters, 1
    for c in range(channel, channel_end):
        for k in range(first, end, LANES):
            source, target = u + (c - channel) * form.section + k - first, at + c * form.filters + k
            finite &= gather_filter(
                scratch, source, form.u_step, dw, target, 3 * plane, plane, form.filters - k, form.filters
            )
    return finite


@shared
def sum_filter(team, shares, form, items, parts, a_rows, c_rows, zero, x, g, none, dw, scratch):
    """Weight gradient, or its partial sums one after the other; arrays are one-dimensional."""
    for own in share(shares, team):
        base, finite, count = own * form.share, 1, items.shape[0]
        for number in range(own * count // shares, (own + 1) * count // shares):
            start, stop, channel, channel_end, first, end = items[number]
            for tile in range(start, stop, form.block):
                tile_end = min(tile + form.block, stop)
                _spread_source(form, x, tile, tile_end, channel, channel_end, scratch, base)
                _spread_result(form, g, tile, tile_end, first, end, scratch, base + form.m_at)
                for f in range(FREQUENCIES):
                    _product(
                        scratch, channel_end - channel, end - first, tile_end - tile,
                        base + f * form.v_step, a_rows, form.v_tile,
                        base + form.m_at + f * form.m_step, 1, form.m_tile,
                        base + form.u_at + f * form.u_step, c_rows, tile > start, none, zero,
                    )  # fmt: skip
            part = number * parts // count * 9 * form.channels * form.filters
            u = base + form.u_at
            finite &= _gather_part(form, channel, channel_end, first, end, scratch, u, dw, part)
        scratch[base + form.finite_at] = finite
