"""The innermost step of the gradient of max pooling; that of max pooling itself: toolchain/pooling.py.

All arrays are C-contiguous; `at`, `source` and `corner` are offsets in elements. `count` is how many channels are left
from there on, at least 1; no more than LANES of them are used.
"""

import functools

from ..toolchain.emit import emitted
from ..toolchain.pooling import LANES, each_tap, each_window, under_channels


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
            each_window(emit, windows, ((corner, across), (at, along)), functools.partial(spread, mask))
            with emit.if_then(rectified):
                sums.store(total.get(), first, mask)

        under_channels(emit, count, body)

    return place


# Into the taps of a run of windows, see max_windows, g[at:] where positions[at:] is the tap, and 0 elsewhere. Where
# rectified, g counts as 0 where out[at:] is not positive, and sums[first:] += g, in float64.
place_windows = _place(adds=False)
add_windows = _place(adds=True)  # the same for windows that overlap: it adds
