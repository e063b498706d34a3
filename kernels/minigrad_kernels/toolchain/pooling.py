"""Pooling: its innermost steps take LANES neighbouring channels at a time, in vector registers.

Written as loops they would be right but slow: a loop over few channels spends its time on asking whether arrays
overlap, and on the rest that fills no vector. All arrays are C-contiguous; `at`, `source` and `corner` are offsets in
elements. `count` is how many channels are left from there on, at least 1; no more than LANES of them are used.
"""

import functools
import operator

import numpy as np
from llvmlite import ir

from .cpu import jit
from .emit import INT, TILE, emitted

LANES = 16  # two or four registers where vectors are shorter


def under_channels(emit, count, body):
    """body(mask), see Emitter, of a mask made once: the compiler would rather compare again in each turn of a loop."""

    def run(mask):
        if mask is not None and TILE.free_masks:
            bits = ir.IntType(LANES)
            number = emit.value(emit.builder.zext(emit.builder.bitcast(mask.value, bits), INT))
            mask = emit.value(emit.builder.bitcast(emit.hidden(number).low(bits).value, mask.type))
        body(mask)

    emit.under_mask(count, run)


def each_tap(emit, taps, steps, corner, visit):
    """visit(offset, p, q) for all taps p0 <= p < p1 and q0 <= q < q1; windows of 2x2 have no loop."""
    (p0, p1, q0, q1), (down, right) = taps, steps
    usual = [bound.equals(value) for bound, value in zip(taps, (0, 2, 0, 2), strict=True)]
    with emit.if_else(functools.reduce(operator.and_, usual)) as (two_by_two, other):
        with two_by_two:
            for p in (0, 1):
                row = corner + down if p else corner
                for q in (0, 1):
                    visit(row + right if q else row, emit.number(p), emit.number(q))
        with other, emit.loop(p1, p0) as p:
            row = corner + p * down
            with emit.loop(q1, q0) as q:
                visit(row + q * right, p, q)


def each_window(emit, count, places, visit):
    """visit(place...) so many times; places: (first, step) of each place."""
    slots = [emit.variable(first) for first, _ in places]
    with emit.loop(count):
        here = [emit.hidden(slot.get()) for slot in slots]
        visit(*here)
        for slot, place, (_, step) in zip(slots, here, places, strict=True):
            slot.set(place + step)


@emitted(lanes=LANES)
def max_windows(emit, x, corner, taps, steps, width, out, positions, at, run, count):
    """The greatest elements of a run of windows, and their taps p * width + q.

    Tap (p, q) of a window is x[corner + p * steps[0] + q * steps[1]]; those with p0 <= p < p1 and q0 <= q < q1
    count, where taps is (p0, p1, q0, q1). The first greatest wins; a NaN wins, the last one if there are several.
    run is (how many windows, from a corner to the next, from a result to the next).
    """
    windows, across, along = run
    number = lambda p, q: (p * width + q).low(positions.element).splat(LANES)

    def greatest(mask, corner, at):
        best, chosen = emit.variable(emit.filled(float("-inf"))), emit.variable(number(taps[0], taps[2]))

        def visit(offset, p, q):
            v, old = x.load(offset, mask), best.get()
            take = (v > old) | v.is_nan()
            best.set(v.where(take, old))
            chosen.set(number(p, q).where(take, chosen.get()))

        each_tap(emit, taps, steps, corner, visit)
        out.store(best.get(), at, mask)
        positions.store(chosen.get(), at, mask)

    places = (corner, across), (at, along)
    under_channels(emit, count, lambda mask: each_window(emit, windows, places, functools.partial(greatest, mask)))


# ---- max pooling of images that lie in scratch memory, for product.py: the same steps as those of pool2d -------------


PAIR = np.int64, 2  # vertical and horizontal
WINDOWS = np.dtype(  # over images of `size` pixels and so many channels, `made` of them in each
    [*((name, *PAIR) for name in ("taps", "stride", "padding", "dilation", "size", "made")), ("channels", np.int64)]
)
NO_WINDOWS = np.zeros(0, WINDOWS)


@jit
def taps_inside(start, size, taps, dilation):
    """The first tap inside the image and one past the last, for a window whose tap 0 lies at `start`."""
    if start >= 0 and start + (taps - 1) * dilation < size:  # divisions cost more than a window
        return 0, taps
    first = (-start + dilation - 1) // dilation if start < 0 else 0
    return first, min(taps, (size - start + dilation - 1) // dilation)


@jit
def run_from(j, count, size, taps, stride, padding, dilation, channels):
    """How many of the windows from number j on lie whole inside a row, if they are to be taken at once; else 1.

    Vectors that hold all channels go along the row; where a pixel has several of them, these are neighbours.
    """
    start, last = j * stride - padding, size - 1 - (taps - 1) * dilation
    if channels > LANES or start < 0 or start > last:
        return 1
    return min(count - j, (last - start) // stride + 1)


@jit
def max_row(x, image, i, at, windows, out, positions):
    """The windows of row i of the image that lies in x from `image` on; results from `at` on."""
    taps, size, channels = windows.taps, windows.size, windows.channels
    top, width = i * windows.stride[0] - windows.padding[0], size[1]
    p0, p1 = taps_inside(top, size[0], taps[0], windows.dilation[0])
    steps, j = (windows.dilation[0] * width * channels, windows.dilation[1] * channels), 0
    while j < windows.made[1]:
        left = j * windows.stride[1] - windows.padding[1]
        q0, q1 = taps_inside(left, width, taps[1], windows.dilation[1])
        corner, inside = image + (top * width + left) * channels, (p0, p1, q0, q1)
        count = run_from(
            j, windows.made[1], width, taps[1], windows.stride[1], windows.padding[1], windows.dilation[1], channels
        )
        run = count, windows.stride[1] * channels, channels
        for c in range(0, channels, LANES):
            max_windows(x, corner + c, inside, steps, taps[1], out, positions, at + c, run, channels - c)
        j += count
        at += count * channels


@jit
def max_images(x, start, first, end, windows, out, positions):
    """Pool images first to end, of which the first lies in x from `start` on, into their places of out."""
    size, row = windows.size[0] * windows.size[1] * windows.channels, windows.made[1] * windows.channels
    for image in range(first, end):
        for i in range(windows.made[0]):
            at = (image * windows.made[0] + i) * row
            max_row(x, start + (image - first) * size, i, at, windows, out, positions)
