"""Loops over runs of neighbouring elements, written as formulas for the vector at one place.

Written as loops they would be right but slow: the compiler first asks whether any two of the arrays overlap, and with
many arrays it gives up. A formula sees the elements of an array as an attribute, and what it assigns is stored:

    @line(moving="x out", fixed="scale")
    def scaled_line(here):
        here.out = here.x * here.scale

    scaled_line(at, width, x, out, scale)       # in a kernel: out[at + k] = x[at + k] * scale[k] for k < width

Arrays are 1-D and C-contiguous. Moving ones begin at `at`, fixed ones at 0; numbers fill all lanes. Totals are arrays
of LANES elements, which stay in registers meanwhile: what a formula adds to them it adds lane by lane. Where float32
meets float64 it is widened, and what is stored is rounded to the array's type. No operation is fused with another.

Moving arrays are fetched AHEAD of their use. One that is only written gains most: a store that misses all caches
holds up those after it, and a loop that also stores sums then waits for memory twice as long as a copy does.
"""

import functools
import inspect

from .emit import CACHE_LINE, emitted

LANES = 16  # two or four registers where vectors are shorter

AHEAD = 2048  # bytes


class _Here:
    """What a formula sees: vectors of the arrays at one place, totals, and numbers."""

    def __init__(self, emit, arrays, totals, known, mask):
        """arrays: {name: (array, offset, whether it moves)}; totals: {name: variable}; known: {name: vector}"""
        known = known | {name: total.get() for name, total in totals.items()}
        vars(self).update(_emit=emit, _arrays=arrays, _totals=totals, _known=known, _mask=mask)

    def __getattr__(self, name):
        if name not in self._known:
            array, offset, moves = self._arrays[name]
            if moves:
                self._fetch(array, offset, False)
            self._known[name] = array.load(offset, self._mask)
        return self._known[name]

    def __setattr__(self, name, vector):
        before, self._known[name] = self._known.get(name), vector
        if name in self._totals:
            vector = vector.rounded(before.type.element)
            self._totals[name].set(vector if self._mask is None else vector.where(self._mask, before))
            return
        array, offset, moves = self._arrays[name]
        if moves:
            self._fetch(array, offset, True)
        array.store(vector.splat(LANES), offset, self._mask)

    def _fetch(self, array, offset, written):
        """What lies AHEAD of a whole vector."""
        for line in range(0, array.size * LANES, CACHE_LINE) if self._mask is None else ():
            self._emit.fetch(array.at(offset) + (AHEAD + line), written)


def line(moving, fixed="", totals="", numbers=""):
    """Make of a formula a function for kernels, see the head of this file: (at, width, *moving, *fixed, *totals,
    *numbers)."""
    moving, fixed, totals, numbers = (names.split() for names in (moving, fixed, totals, numbers))

    def decorate(formula):
        def run(emit, at, width, *values):
            given = dict(zip((*moving, *fixed, *totals, *numbers), values, strict=True))
            known = {name: given[name].splat(LANES) for name in numbers}
            held = {name: emit.variable(given[name].load(emit.number(0))) for name in totals}

            def step(k, mask):
                arrays = {name: (given[name], at + k, True) for name in moving}
                formula(_Here(emit, arrays | {name: (given[name], k, False) for name in fixed}, held, known, mask))

            emit.whole_vectors(width, step)
            for name, total in held.items():
                given[name].store(total.get(), emit.number(0))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = "emit", "at", "width", *moving, *fixed, *totals, *numbers
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        return emitted(functools.update_wrapper(run, formula, updated=()), lanes=LANES)

    return decorate


@emitted(lanes=LANES, result=lambda array: array.dtype)
def lane_total(emit, array):
    """The sum of the first LANES elements: 0 + 8, 1 + 9 ..., then again by halves."""
    return array.load(emit.number(0)).sum()


@emitted(lanes=LANES, result=lambda array: array.dtype)
def lane_greatest(emit, array):
    """The greatest of the first LANES elements; NaN is passed over."""
    return array.load(emit.number(0)).folded(lambda one, other: other.where(other > one, one))
