"""Pooling on the CPU: every thread owns rows of the result, and vectors hold neighbouring channels.

Arrays are C-contiguous (N, H, W, C) views. The steps of greatest elements on vectors of channels are in
toolchain/pooling.py; those of their gradient have its words for arguments.

The gradient of maximum pooling places what each window passes back on the element that it chose. There a thread owns
bands: the rows of dx that the windows of one row cover, and those up to the next, or the whole image where windows
overlap. So dx is written in one pass. Bands are gathered into parts by the shape alone, and a part has its own sums for
the gradient of a bias, in float64; the parts are then added in order.
"""

from functools import lru_cache, partial

import numpy as np

from ..toolchain import add, clear, elements, flat, jit, share, shared, sum_rows
from ..toolchain.emit import emitted
from ..toolchain.pooling import LANES, WINDOWS, each_tap, each_window, max_row, run_from, taps_inside, under_channels

PARTS = 64  # of the windows, at most, whose sums for the gradient of a bias are taken apart
NOTHING = np.zeros((1, 0))


# ---- greatest elements -----------------------------------------------------------------------------------------------


@shared
def max_rows(team, x, windows, out, positions):
    image, line = x.shape[1] * x.shape[2] * x.shape[3], out.shape[2] * out.shape[3]
    for row in share(out.shape[0] * out.shape[1], team):
        max_row(x, row // out.shape[1] * image, row % out.shape[1], row * line, windows[0], out, positions)


@lru_cache(maxsize=1024)
def _table(*sizes):
    return np.array([sizes], WINDOWS)


def max_forward(x, kernel_size, stride, padding, dilation, out, positions):
    sizes = x.shape[1:3], out.shape[1:3], x.shape[3]
    max_rows(x, _table(kernel_size, stride, padding, dilation, *sizes), out, positions)


def _place(adds):
    """place_windows, see below, and for windows that overlap add_windows."""

    @emitted(lanes=LANES)
    def place(emit, g, out, rectified, positions, at, taps, steps, width, dx, corner, run, sums, first, count):
        windows, across, along = run
        total = emit.variable(emit.filled(0, sums.vector))

        def spread(mask, corner, at):
            closed = out.load(at, mask) <= 0
            share = g.load(at, mask)
            share, chosen = emit.filled(0).where(closed & rectified, share), positions.load(at, mask)

            def visit(offset, p, q):
                tap = (p * width + q).low(positions.element)
                here = share.where(chosen.equals(tap), emit.filled(0))
                dx.store(dx.load(offset, mask) + here if adds else here, offset, mask)

            each_tap(emit, taps, steps, corner, visit)
            if not adds:  # else they have just been read
                ahead(corner)
            total.set(total.get() + share)

        def ahead(corner):
            """Writes of parts of lines wait for what is not in the nearest cache: ask for two rows of windows later."""
            later = corner + taps[1] * 2 * steps[0]
            emit.fetch(dx.at(later), True)
            emit.fetch(dx.at(later + steps[0]), True)

        def body(mask):
            with emit.if_then(rectified):
                total.set(sums.load(first, mask))
            each_window(emit, windows, ((corner, across), (at, along)), partial(spread, mask))
            with emit.if_then(rectified):
                sums.store(total.get(), first, mask)

        under_channels(emit, count, body)

    return place


# Into the taps of a run of windows, see max_windows, g[at:] where positions[at:] is the tap, and 0 elsewhere. Where
# rectified, g counts as 0 where out[at:] is not positive, and sums[first:] += g, in float64.
place_windows = _place(adds=False)
add_windows = _place(adds=True)  # the same for windows that overlap: it adds


@jit
def place_row(g, out, rectified, positions, row, kernel_size, stride, padding, dilation, overlap, dx, sums):
    """Into dx, what the windows of a row pass back: added where windows overlap."""
    height, width, channels = dx.shape[1:]
    steps, taps = (dilation[0] * width * channels, dilation[1] * channels), kernel_size[1]
    n, top, j = row // g.shape[1], row % g.shape[1] * stride[0] - padding[0], 0
    p0, p1 = taps_inside(top, height, kernel_size[0], dilation[0])
    while j < g.shape[2]:
        left = j * stride[1] - padding[1]
        q0, q1 = taps_inside(left, width, taps, dilation[1])
        inside = p0, p1, q0, q1
        corner, at = ((n * height + top) * width + left) * channels, (row * g.shape[2] + j) * channels
        count = run_from(j, g.shape[2], width, taps, stride[1], padding[1], dilation[1], channels)
        run = count, stride[1] * channels, channels
        for c in range(0, channels, LANES):
            here, there, rest = at + c, corner + c, channels - c
            if overlap:
                add_windows(g, out, rectified, positions, here, inside, steps, taps, dx, there, run, sums, c, rest)
            else:
                place_windows(g, out, rectified, positions, here, inside, steps, taps, dx, there, run, sums, c, rest)
        j += count


@jit
def clear_band(n, top, bottom, dx):
    clear(flat(dx[n, max(top, 0) : min(bottom, dx.shape[1])]))


@shared
def place(team, g, out, rectified, positions, kernel_size, stride, padding, dilation, dx, overlap, bands, parts, sums):
    """Rows are taken backwards where windows overlap, so that an element sums over its taps in their order."""
    lines, height = g.shape[1], dx.shape[1]
    rows = lines if overlap else 1  # of a band
    whole = stride == kernel_size and height == lines * stride[0] and dx.shape[2] == g.shape[2] * stride[1]
    for part in share(parts, team):
        own = sums[min(part, sums.shape[0] - 1)]
        clear(own)
        start, stop = part * bands // parts * rows, (part + 1) * bands // parts * rows
        for k in range(stop - start):
            row = stop - 1 - k if overlap else start + k
            n, i = row // lines, row % lines
            last, top = i + 1 == lines, i * stride[0] - padding[0]
            if overlap and last:
                clear_band(n, 0, height, dx)
            elif not (overlap or whole):
                clear_band(n, top if i else 0, height if last else top + stride[0], dx)
            place_row(g, out, rectified, positions, row, kernel_size, stride, padding, dilation, overlap, dx, own)


@lru_cache(maxsize=1024)
def _bands(images, lines, kernel_size, stride, _, dilation):
    """Whether windows overlap, how many bands of dx do not, and in how many parts these are placed."""
    overlap = any(s < d * (k - 1) + 1 for k, s, d in zip(kernel_size, stride, dilation, strict=True))
    bands = images * (1 if overlap else lines)
    return overlap, bands, min(PARTS, bands)


def max_input_grad(g, out, positions, kernel_size, stride, padding, dilation, dx, dbias, workspace):
    geometry, rectified, sums = (kernel_size, stride, padding, dilation), out is not None, NOTHING
    overlap, bands, parts = _bands(*g.shape[:2], *geometry)
    if not parts:
        dx.fill(0)
        if rectified:
            dbias.fill(0)
        return
    if rectified:
        sums = elements(workspace, g, NOTHING.dtype, parts, dbias.size)
    place(g, out if rectified else g, rectified, positions, *geometry, dx, overlap, bands, parts, sums)
    if rectified:
        sum_rows(sums, dbias)


# ---- averages --------------------------------------------------------------------------------------------------------


@shared
def average_forward(team, x, rows, columns, out):
    for row in share(out.shape[0] * out.shape[1], team):
        n, i = row // out.shape[1], row % out.shape[1]
        for j in range(out.shape[2]):
            total, divisor = out[n, i, j], out.dtype.type(rows[i, 2] * columns[j, 2])
            clear(total)
            for h in range(rows[i, 0], rows[i, 1]):
                for w in range(columns[j, 0], columns[j, 1]):
                    add(x[n, h, w], total)
            for c in range(total.size):
                total[c] /= divisor


@shared
def average_input_grad(team, g, rows, columns, dx):
    """Into each row of dx, the shares of all windows that hold it, in a fixed order."""
    for row in share(dx.shape[0] * dx.shape[1], team):
        n, h = row // dx.shape[1], row % dx.shape[1]
        clear_band(n, h, h + 1, dx)
        for i in range(g.shape[1]):
            for j in range(g.shape[2] if rows[i, 0] <= h < rows[i, 1] else 0):
                divisor = dx.dtype.type(rows[i, 2] * columns[j, 2])
                for w in range(columns[j, 0], columns[j, 1]):
                    for c in range(dx.shape[3]):
                        dx[n, h, w, c] += g[n, i, j, c] / divisor
