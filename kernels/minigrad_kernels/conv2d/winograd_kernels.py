"""Winograd's F(4x4, 3x3) in all three directions, for float32; see winograd_plan.py.

A sum runs over channels, or for the weight gradient over tiles in order, as long as a plan chosen by shape alone
says; where it is interrupted and who computes it changes no bits.

Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from ..toolchain import jit, share, shared
from ..toolchain.packing import transpose
from ..toolchain.product import LOW_ROWS, ROWS, VECTOR_BYTES
from ..toolchain.transform import SIDE, gather_filter, gather_output, spread_filter, spread_gradient, spread_input
from ..toolchain.vector import low_tile, narrow_tile, wide_tile

LANES = VECTOR_BYTES // 4
SQUARE = 36  # frequencies


@jit
def _corner(form, tile):
    """Image, row and column of the first pixel of a tile."""
    each = form.tiles[0] * form.tiles[1]
    image, place = tile // each, tile % each
    return image, SIDE * (place // form.tiles[1]), SIDE * (place % form.tiles[1])


@jit
def _spread_source(form, x, tile, tile_end, channel, channel_end, scratch, v):
    """V of some tiles and channels."""
    line = form.source[1] * form.channels
    for number in range(tile, tile_end):
        image, row, column = _corner(form, number)
        row, column = row + form.shift[0], column + form.shift[1]
        window = -row, form.source[0] - row, -column, form.source[1] - column
        at = (image * form.source[0] + row) * line + column * form.channels
        target = v + (number - tile) * form.v_tile - channel
        for c in range(channel, channel_end, LANES):
            spread_input(x, at + c, line, form.channels, window, form.channels - c, scratch, target + c, form.v_step)


@jit
def _result(form, tile):
    """Where in the result a tile begins, and which of its pixels are inside."""
    image, row, column = _corner(form, tile)
    at = ((image * form.result[0] + row) * form.result[1] + column) * form.filters
    return at, (0, form.result[0] - row, 0, form.result[1] - column)


@jit
def _spread_result(form, g, tile, tile_end, first, end, scratch, m):
    for number in range(tile, tile_end):
        at, window = _result(form, number)
        target = m + (number - tile) * form.m_tile - first
        for k in range(first, end, LANES):
            spread_gradient(
                g, at + k, form.result[1] * form.filters, form.filters, window, form.filters - k,
                scratch, target + k, form.m_step,
            )  # fmt: skip


@jit
def _gather_result(form, tile, tile_end, first, end, scratch, base, bias, relu, out):
    """The results of some tiles and filters, with bias and ReLU; 1 if all are finite."""
    finite = 1
    for number in range(tile, tile_end):
        at, window = _result(form, number)
        ahead = _result(form, number + 1)[0] - at
        source = base + form.m_at + (number - tile) * form.m_tile - first
        for k in range(first, end, LANES):
            finite &= gather_output(
                scratch, source + k, form.m_step, bias, k, relu, out, at + k, form.result[1] * form.filters,
                form.filters, window, form.filters - k, scratch, base + form.spare_at, ahead,
            )  # fmt: skip
    return finite


@jit
def _turn_taps(form, w, channel, channel_end, first, end, scratch, at):
    """Copy a filter whose two channels are exchanged and whose taps are read from the last to the first."""
    plane, apart = form.channels * form.filters, form.chunk * form.section
    for tap in range(9):
        for k in range(first, end, LANES):
            for c in range(channel, channel_end, LANES):
                transpose(
                    w, (8 - tap) * plane + k * form.channels + c, form.channels, form.filters - k, form.channels - c,
                    scratch, at + tap * apart + (c - channel) * form.section + k - first, form.section,
                )  # fmt: skip


@jit
def _spread_part(form, w, channel, channel_end, first, end, scratch, copied, u):
    """U of some channels and filters: panels of two vectors of filters, with a row for each channel."""
    source, at, line, tap = w, channel * form.filters + first, form.filters, form.channels * form.filters
    if form.turned:
        _turn_taps(form, w, channel, channel_end, first, end, scratch, copied)
        source, at, line, tap = scratch, copied, form.section, form.chunk * form.section
    for c in range(channel_end - channel):
        for k in range(0, end - first, LANES):
            panel = k // (2 * LANES) * (form.chunk * 2 * LANES) + k % (2 * LANES)
            spread_filter(
                source, at + c * line + k, 3 * tap, tap, form.filters - first - k,
                scratch, u + panel + c * 2 * LANES, form.u_step,
            )  # fmt: skip


@jit
def _product(memory, rows, columns, length, a, a_rows, a_step, b, b_panel, b_step, c, c_rows, accumulate, none):
    """One matrix product, all of it in scratch memory: panels of B outside, so that they stay in the first cache."""
    rest, zero = rows % ROWS, a_rows  # the first of which lies at 0, and so does the one tap of a sum
    whole = rows if rest > 2 * LOW_ROWS else rows - rest
    for column in range(0, columns, 2 * LANES):
        wide, here = columns - column > LANES, c + column
        after = (
            rows, none, 0, memory, zero, zero, b + column * b_panel, 0, 1, length, a_step, b_step,
            2 * LANES if wide else LANES, accumulate, 0,
        )  # fmt: skip
        if wide:
            for row in range(0, whole, ROWS):
                wide_tile(memory, a_rows, a, memory, c_rows, here, row, *after)
            for row in range(whole, rows, LOW_ROWS):
                low_tile(memory, a_rows, a, memory, c_rows, here, row, *after)
        else:
            for row in range(0, rows, ROWS):
                narrow_tile(memory, a_rows, a, memory, c_rows, here, row, *after)


@shared
def correlate(team, shares, forms, items, a_rows, c_rows, x, w, none, bias, relu, out, scratch):
    """Forward and input gradient; x, w and out are one-dimensional. Whether all was finite is left in scratch."""
    form, count = forms[0], items.shape[0]
    for own in share(shares, team):
        base, finite, held = own * form.share, 1, -1
        u, m, copied = base + form.u_at, base + form.m_at, base + form.taps_at
        for number in range(own * count // shares, (own + 1) * count // shares):
            item = items[number]
            for c in range(0, form.channels, form.chunk):
                c_end = min(c + form.chunk, form.channels)
                _spread_source(form, x, item.tile, item.tile_end, c, c_end, scratch, base)
                for k in range(item.filter, item.filter_end, form.section):
                    k_end = min(k + form.section, item.filter_end)
                    if held != k * form.channels + c:
                        held = k * form.channels + c
                        _spread_part(form, w, c, c_end, k, k_end, scratch, copied, u)
                    for f in range(SQUARE):
                        _product(
                            scratch, item.tile_end - item.tile, k_end - k, c_end - c,
                            base + f * form.v_step, a_rows, 1, u + f * form.u_step, form.chunk, 2 * LANES,
                            m + f * form.m_step + k - item.filter, c_rows, c > 0, none,
                        )  # fmt: skip
            finite &= _gather_result(
                form, item.tile, item.tile_end, item.filter, item.filter_end, scratch, base, bias, relu, out
            )
        scratch[base + form.finite_at] = finite


@jit
def _gather_part(form, item, scratch, base, dw, at):
    """The taps of some channels and filters; 1 if all are finite."""
    plane, finite = form.channels * form.filters, 1
    for c in range(item.channel, item.channel_end):
        for k in range(item.filter, item.filter_end, LANES):
            source = base + form.u_at + (c - item.channel) * form.section + k - item.filter
            finite &= gather_filter(
                scratch, source, form.u_step, dw, at + c * form.filters + k, 3 * plane, plane,
                form.filters - k, form.filters,
            )  # fmt: skip
    return finite


@shared
def sum_filter(team, shares, forms, items, a_rows, c_rows, partials, x, g, none, dw, scratch):
    """Weight gradient, or its partial sums one after the other; arrays are one-dimensional."""
    form, count = forms[0], items.shape[0]
    for own in share(shares, team):
        base, finite = own * form.share, 1
        u, m = base + form.u_at, base + form.m_at
        for number in range(own * count // shares, (own + 1) * count // shares):
            item = items[number]
            channels, filters = item.channel_end - item.channel, item.filter_end - item.filter
            for tile in range(item.tile, item.tile_end, form.block):
                tile_end = min(tile + form.block, item.tile_end)
                _spread_result(form, g, tile, tile_end, item.filter, item.filter_end, scratch, m)
                _spread_source(form, x, tile, tile_end, item.channel, item.channel_end, scratch, base)
                for f in range(SQUARE):
                    _product(
                        scratch, channels, filters, tile_end - tile,
                        base + f * form.v_step, a_rows, form.v_tile, m + f * form.m_step, 1, form.m_tile,
                        u + f * form.u_step, c_rows, tile > item.tile, none,
                    )  # fmt: skip
            at = number * partials // count * (dw.size // partials)
            finite &= _gather_part(form, item, scratch, base, dw, at)
        scratch[base + form.finite_at] = finite
