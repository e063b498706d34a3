"""Pooling on the CPU: every thread owns rows of the result, and vectors hold neighbouring channels.

Arrays are C-contiguous (N, H, W, C) views. The steps of greatest elements on vectors of channels are in
toolchain/pooling.py and in cpu_windows.py.

The gradient of maximum pooling places what each window passes back on the element that it chose. There a thread owns
bands: the rows of dx that the windows of one row cover, and those up to the next, or the whole image where windows
overlap. So dx is written in one pass. Bands are gathered into parts by the shape alone, and a part has its own sums for
the gradient of a bias, in float64; the parts are then added in order.
"""

from functools import lru_cache

import numpy as np

from ..toolchain import add, clear, elements, flat, jit, share, shared
from ..toolchain.pooling import Windows, max_row, run_from, taps_inside
from .cpu_windows import LANES, add_windows, place_windows

PARTS = 64  # of the windows, at most, whose sums for the gradient of a bias are taken apart
NOTHING = np.zeros((1, 0))


# ---- greatest elements -----------------------------------------------------------------------------------------------


@shared
def max_rows(team, x, windows, out, positions):
    image, line = x.shape[1] * x.shape[2] * x.shape[3], out.shape[2] * out.shape[3]
    for row in share(out.shape[0] * out.shape[1], team):
        max_row(x, row // out.shape[1] * image, row % out.shape[1], row * line, windows, out, positions)


@lru_cache(maxsize=1024)
def _table(*sizes):
    return Windows(*sizes).table()


def max_forward(x, kernel_size, stride, padding, dilation, out, positions):
    sizes = x.shape[1:3], out.shape[1:3], x.shape[3]
    max_rows(x, _table(kernel_size, stride, padding, dilation, *sizes), out, positions)


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


@np.errstate(all="ignore")  # infinities and NaN are the user's
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
        dbias[:] = np.add.reduce(sums)


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
