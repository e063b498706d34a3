"""The gradient of maximum pooling on the CPU: what each window passes back goes to the element that it chose.

A thread owns bands: the rows of dx that the windows of one row cover, and those up to the next, or the whole image
where windows overlap. So dx is written once, in one pass. Bands are gathered into parts by the shape alone, and a
part has its own sums for the gradient of a bias, in float64; the parts are then added in order.
"""

from functools import lru_cache

import numpy as np

from ..toolchain import clear, elements, flat, jit, share, shared
from ..toolchain.pooling import run_from, taps_inside
from .cpu_windows import LANES, add_windows, place_windows
from .geometry import PARTS

__all__ = ["FEW", "max_input_grad", "max_relu_input_grad"]

FEW = 3  # channels; fewer of them fill too little of a vector
NOTHING = np.zeros((1, 0))


@jit
def clear_rows(x, n, top, bottom, left):
    """Zeros into rows top..bottom of an image, from a column on."""
    for h in range(top, bottom):
        clear(flat(x[n, h, left:]))


@jit
def place_rows(g, out, rectified, positions, rows, kernel_size, stride, padding, dilation, overlap, dx, sums):
    """Into dx, what the windows of some rows pass back: (first, end, step). A call for each would cost too much."""
    height, width, channels = dx.shape[1:]
    steps, taps = (dilation[0] * width * channels, dilation[1] * channels), kernel_size[1]
    wanted = sums.size > 0
    for row in range(rows[0], rows[1], rows[2]):
        n, i, j = row // g.shape[1], row % g.shape[1], 0
        top = i * stride[0] - padding[0]
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
                    add_windows(
                        g, out, rectified, positions, here, inside, steps, taps, dx, there, run, sums, wanted, c, rest
                    )  # fmt: skip
                else:
                    place_windows(
                        g, out, rectified, positions, here, inside, steps, taps, dx, there, run, sums, wanted, c, rest
                    )  # fmt: skip
            j += count


@jit
def scatter_row(g, out, rectified, positions, row, kernel_size, stride, padding, dilation, dx, sums):
    """One of place_rows for few channels, one element after the other, into zeros."""
    n, i = row // g.shape[1], row % g.shape[1]
    top, zero = i * stride[0] - padding[0], g.dtype.type(0)
    for j in range(g.shape[2]):
        left = j * stride[1] - padding[1]
        for c in range(g.shape[3]):
            tap = np.int64(positions[n, i, j, c])
            share = zero if rectified and out[n, i, j, c] <= zero else g[n, i, j, c]
            p = tap // kernel_size[1]
            h, w = top + p * dilation[0], left + (tap - p * kernel_size[1]) * dilation[1]
            dx[n, h, w, c] += share
            if sums.size > 0:
                sums[c] += share


@jit
def clear_band(g, band, kernel_size, stride, padding, dilation, dx, overlap):
    """Zeros into a band, or at least into what no window covers."""
    count, height, left = g.shape[1], dx.shape[1], 0
    n, i = (band, 0) if overlap else (band // count, band % count)
    top = 0 if i == 0 else min(height, i * stride[0] - padding[0])
    bottom = height if overlap or i + 1 == count else min(height, (i + 1) * stride[0] - padding[0])
    if stride == kernel_size and dilation == (1, 1) and padding == (0, 0) and dx.shape[3] >= FEW:
        covered = min(bottom, top + stride[0])
        clear_rows(dx, n, top, covered, g.shape[2] * stride[1])
        top = covered
    clear_rows(dx, n, top, bottom, left)


@jit
def place_bands(g, out, rectified, positions, kernel_size, stride, padding, dilation, start, stop, dx, overlap, sums):
    clear(sums)
    whole = stride == kernel_size and dx.shape[1] == g.shape[1] * stride[0] and dx.shape[2] == g.shape[2] * stride[1]
    few, count = dx.shape[3] < FEW, g.shape[1]
    for band in range(start, stop):
        if few or overlap or not whole:
            clear_band(g, band, kernel_size, stride, padding, dilation, dx, overlap)
        if few:
            first, end = (band * count, (band + 1) * count) if overlap else (band, band + 1)
            for row in range(end - 1, first - 1, -1):
                scatter_row(g, out, rectified, positions, row, kernel_size, stride, padding, dilation, dx, sums)
        elif overlap:  # backwards, so that an element sums over its taps in their order
            rows = (band + 1) * count - 1, band * count - 1, -1
            place_rows(g, out, rectified, positions, rows, kernel_size, stride, padding, dilation, True, dx, sums)
    if not few and not overlap:
        rows = start, stop, 1
        place_rows(g, out, rectified, positions, rows, kernel_size, stride, padding, dilation, False, dx, sums)


@shared
def place(team, g, out, rectified, positions, kernel_size, stride, padding, dilation, dx, overlap, bands, parts, sums):
    for part in share(parts, team):
        own = sums[min(part, sums.shape[0] - 1)]
        start, stop = part * bands // parts, (part + 1) * bands // parts
        place_bands(
            g, out, rectified, positions, kernel_size, stride, padding, dilation, start, stop, dx, overlap, own
        )  # fmt: skip


@lru_cache(maxsize=1024)
def _bands(images, lines, kernel_size, stride, padding, dilation):
    """Whether windows overlap, how many bands of dx do not, and in how many parts these are placed."""
    overlap = any(s < d * (k - 1) + 1 for k, s, d in zip(kernel_size, stride, dilation, strict=True))
    bands = images * (1 if overlap else lines)
    return overlap, bands, min(PARTS, bands)


@np.errstate(all="ignore")  # infinities and NaN are the user's
def _place(g, out, rectified, positions, geometry, dx, dbias, workspace):
    (overlap, bands, parts), sums = _bands(*g.shape[:2], *geometry), NOTHING
    if not parts:
        dx.fill(0)
        if dbias is not None:
            dbias.fill(0)
        return
    if dbias is not None:
        sums = elements(workspace, NOTHING.dtype, parts * dbias.size).reshape(parts, dbias.size)
    place(g, out, rectified, positions, *geometry, dx, overlap, bands, parts, sums)
    if dbias is not None:
        dbias[:] = np.add.reduce(sums)


def max_input_grad(g, positions, kernel_size, stride, padding, dilation, dx):
    _place(g, g, False, positions, (kernel_size, stride, padding, dilation), dx, None, None)


def max_relu_input_grad(g, out, positions, kernel_size, stride, padding, dilation, dx, dbias, workspace):
    _place(g, out, True, positions, (kernel_size, stride, padding, dilation), dx, dbias, workspace)
