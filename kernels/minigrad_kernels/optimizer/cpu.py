"""Update rules, sums of squares and scaling on the CPU: one call passes over all arrays.

A row of `places` belongs to the arrays of one kind: the parameters first, then their gradients and states, in the
order in which the rule names them. A place is where an array keeps the pointer to its elements: kernels look there, as
Python would take longer to read 30 pointers than the update of a small network takes. `chunks` says how the elements of
all arrays are cut (see chunks_of), which the threads share. `like` is any array of the element type.
"""

import math
from typing import NamedTuple

import numpy as np

from ..toolchain import array_at, clear, elements, jit, share, shared, stack_array
from ..toolchain.lines import LANES, lane_total, line
from .plan import chunks_of
from .rules import MAXIMIZE, ROOM, RULES
from .rules import ten as ten_of

CHUNK = 16384  # elements
RUN = 1024  # elements that an update takes at a time
SPARE = 3 * RUN  # for states that are not there
CHUNK_TYPE = np.dtype([(name, np.int64) for name in ("array", "first", "count")])
LIKE = {np.dtype(t): np.empty(0, t) for t in (np.float32, np.float64)}


# ---- where the arrays of a call lie ----------------------------------------------------------------------------------


HEAD = object.__basicsize__  # in NumPy's interface for C the pointer to the elements follows the head of an array


def addresses(arrays):
    return tuple(map(id, arrays))


class Tables(NamedTuple):
    chunks: np.ndarray  # of CHUNK_TYPE, see chunks_of
    starts: np.ndarray
    places: np.ndarray  # (kinds, tensors); of a state that is not there, those of the parameters
    present: int  # bit k: there is a state k
    like: np.ndarray  # of the element type


def tables(rows, sizes, like):
    """Tables from rows of arrays' ids, those of the parameters first; a row of a state that is not there is empty."""
    places = np.array([row or rows[0] for row in rows], np.int64) + HEAD
    present = sum(1 << k for k, row in enumerate(rows[2:]) if row)
    chunks, starts = chunks_of(sizes, CHUNK)
    return Tables(chunks.view(CHUNK_TYPE)[:, 0], starts, places, present, LIKE[like.dtype])


@jit
def part(places, kind, chunk, start, count, like):
    """So many elements of a chunk in the array of this kind, from one on."""
    address = array_at(places[kind, chunk.array], 1, places[kind])[0]
    return array_at(address + (chunk.first + start) * like.itemsize, count, like)


# ---- updates ---------------------------------------------------------------------------------------------------------


@jit
def state(places, k, present, chunk, start, count, spare):
    """As part, of state k, or where it is not there memory of its own that nobody needs."""
    return part(places, 2 + k, chunk, start, count, spare) if present >> k & 1 else spare[k * RUN :]


ten = jit(ten_of)


def walk(name):
    """A part for kernels: the update of a chunk by a rule."""
    formula, coefficients = map(jit, RULES[name])

    @jit
    def run(p, g, first, second, third, present, c):
        for k in range(p.size):
            p[k], first[k], second[k], third[k] = formula(p[k], g[k], first[k], second[k], third[k], present, c)

    @jit
    def update(chunk, places, present, hyper, scale, like):
        numbers, spare = stack_array(ROOM, like), stack_array(SPARE, like)
        c = coefficients(hyper, -scale if hyper[MAXIMIZE] else scale)
        for k in range(ROOM):
            numbers[k] = c[k]
        for start in range(0, chunk.count, RUN):
            count = min(RUN, chunk.count - start)
            run(
                part(places, 0, chunk, start, count, like),
                part(places, 1, chunk, start, count, like),
                state(places, 0, present, chunk, start, count, spare),
                state(places, 1, present, chunk, start, count, spare),
                state(places, 2, present, chunk, start, count, spare),
                present,
                ten(numbers),
            )

    return update


sgd_chunk, adam_chunk, rmsprop_chunk, adagrad_chunk = map(walk, ("sgd", "adam", "rmsprop", "adagrad"))


@shared
def sgd_chunks(team, chunks, places, present, hyper, scale, like):
    for k in share(len(chunks), team):
        sgd_chunk(chunks[k], places, present, hyper, scale, like)


@shared
def adam_chunks(team, chunks, places, present, hyper, scale, like):
    for k in share(len(chunks), team):
        adam_chunk(chunks[k], places, present, hyper, scale, like)


@shared
def rmsprop_chunks(team, chunks, places, present, hyper, scale, like):
    for k in share(len(chunks), team):
        rmsprop_chunk(chunks[k], places, present, hyper, scale, like)


@shared
def adagrad_chunks(team, chunks, places, present, hyper, scale, like):
    for k in share(len(chunks), team):
        adagrad_chunk(chunks[k], places, present, hyper, scale, like)


def _updater(kernel):
    def update(plan, hyper, scale, found_inf):
        """One update, unless it is to be skipped."""
        if found_inf is None or not found_inf[0]:
            chunks, _, places, present, like = plan.tables
            factor = 1.0 if scale is None else float(scale[0])
            kernel.over(plan.elements, chunks, places, present, hyper, factor, like)

    return update


sgd, adam, rmsprop, adagrad = map(_updater, (sgd_chunks, adam_chunks, rmsprop_chunks, adagrad_chunks))


# ---- norms and scaling -----------------------------------------------------------------------------------------------


@line(moving="x", totals="squares", numbers="one")
def add_squares(here):
    v = here.x * here.one  # widened
    here.squares += v * v


@shared
def square_chunks(team, chunks, places, partial, like):
    sums = stack_array(LANES, partial)
    for k in share(len(chunks), team):
        clear(sums)
        add_squares(0, chunks[k].count, part(places, 0, chunks[k], 0, chunks[k].count, like), sums, 1.0)
        partial[k] = lane_total(sums)


@jit
def add_chunks(starts, partial, out):
    for t in range(out.size):
        out[t] = 0.0
        for k in range(starts[t], starts[t + 1]):
            out[t] += partial[k]


def squared_norms(plan, out, workspace):
    chunks, starts, places, _, like = plan.tables
    partial = elements(workspace, out, out.dtype, len(chunks))
    square_chunks(chunks, places, partial, like)
    add_chunks(starts, partial, out)


def clip_factor(squares, max_norm, norm, factor, inverse, found_inf):
    unscaled = 1.0 if inverse is None else float(inverse[0])
    total = math.sqrt(math.fsum(squares.tolist())) * unscaled
    share = max_norm / (total + 1e-6)
    norm[...], factor[0] = total, unscaled if share >= 1 else share * unscaled
    if found_inf is not None and not total < math.inf:
        found_inf[0] = 1


@shared
def scale_chunks(team, chunks, places, factor, like):
    factor = like.dtype.type(factor)
    for k in share(len(chunks), team):
        a = part(places, 0, chunks[k], 0, chunks[k].count, like)
        for n in range(a.size):
            a[n] *= factor


def scale(plan, factor):
    chunks, _, places, _, like = plan.tables
    factor = float(factor if isinstance(factor, float) else factor[0])
    scale_chunks.over(plan.elements, chunks, places, factor, like)
