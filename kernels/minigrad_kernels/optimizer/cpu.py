"""Update rules, sums of squares and scaling on the CPU: one call passes over all arrays.

A row of `places` belongs to the arrays of one kind: the parameters first, then their gradients and states, in the
order in which the rule names them; `sizes` counts their elements. A place is where an array keeps the pointer to its
elements: kernels look there, as Python would take longer to read 30 pointers than the update of a small network takes.
The elements of all arrays are cut into chunks of CHUNK, which the threads share. `like` is any array of the element
type.
"""

import math
from typing import NamedTuple

import numpy as np

from ..toolchain import array_at, elements, jit, share, shared, stack_array
from .rules import MAXIMIZE, ROOM, RULES
from .rules import ten as ten_of

CHUNK = 16384  # elements
RUN = 1024  # elements that an update takes at a time
SPARE = 3 * RUN  # for states that are not there
SMALL = 1 << 16  # elements; below it a second thread costs more than it brings
LANES = 16  # independent sums of squares
LIKE = {np.dtype(t): np.empty(0, t) for t in (np.float32, np.float64)}


# ---- where the arrays of a call lie ----------------------------------------------------------------------------------


HEAD = object.__basicsize__  # in NumPy's interface for C the pointer to the elements follows the head of an array


def addresses(arrays):
    return tuple(map(id, arrays))


class Tables(NamedTuple):
    places: np.ndarray  # (kinds, tensors); of a state that is not there, those of the parameters
    sizes: np.ndarray  # (tensors,)
    like: np.ndarray  # of the element type
    present: int  # bit k: there is a state k


def tables(rows, sizes, like):
    """Tables from rows of arrays' ids, those of the parameters first; a row of a state that is not there is empty."""
    places = np.array([row or rows[0] for row in rows], np.int64) + HEAD
    present = sum(1 << k for k, row in enumerate(rows[2:]) if row)
    return Tables(places, np.array(sizes, np.int64), LIKE[like.dtype], present)


@jit
def chunks(sizes):
    """How many chunks arrays of these sizes are cut into."""
    count = 0
    for t in range(sizes.size):
        count += (sizes[t] + CHUNK - 1) // CHUNK
    return count


@jit
def find(sizes, chunk):
    """The array that a chunk belongs to, and the first and one past the last element of the chunk in it."""
    for t in range(sizes.size):
        count = (sizes[t] + CHUNK - 1) // CHUNK
        if chunk < count:
            return t, chunk * CHUNK, min(sizes[t], chunk * CHUNK + CHUNK)
        chunk -= count
    return 0, 0, 0


@jit
def part(places, kind, t, start, stop, like):
    """Elements start..stop of array t of this kind."""
    address = array_at(places[kind, t], 1, places[kind])[0]
    return array_at(address + start * like.itemsize, stop - start, like)


# ---- updates ---------------------------------------------------------------------------------------------------------


@jit
def state(places, k, present, t, start, stop, spare):
    """As part, of state k, or where it is not there memory of its own that nobody needs."""
    return part(places, 2 + k, t, start, stop, spare) if present >> k & 1 else spare[k * RUN :]


ten = jit(ten_of)


def walk(name):
    """A part for kernels: the update of a chunk by a rule."""
    formula, coefficients = map(jit, RULES[name])

    @jit
    def run(p, g, first, second, third, present, c):
        for k in range(p.size):
            p[k], first[k], second[k], third[k] = formula(p[k], g[k], first[k], second[k], third[k], present, c)

    @jit
    def update(chunk, places, sizes, present, hyper, scale, like):
        t, first, last = find(sizes, chunk)
        numbers, spare = stack_array(ROOM, like), stack_array(SPARE, like)
        c = coefficients(hyper, -scale if hyper[MAXIMIZE] else scale)
        for k in range(ROOM):
            numbers[k] = c[k]
        for start in range(first, last, RUN):
            stop = min(last, start + RUN)
            run(
                part(places, 0, t, start, stop, like),
                part(places, 1, t, start, stop, like),
                state(places, 0, present, t, start, stop, spare),
                state(places, 1, present, t, start, stop, spare),
                state(places, 2, present, t, start, stop, spare),
                present,
                ten(numbers),
            )

    return update


sgd_chunk, adam_chunk, rmsprop_chunk, adagrad_chunk = map(walk, ("sgd", "adam", "rmsprop", "adagrad"))


@shared
def sgd_chunks(team, places, sizes, present, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        sgd_chunk(chunk, places, sizes, present, hyper, scale, like)


@shared
def adam_chunks(team, places, sizes, present, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        adam_chunk(chunk, places, sizes, present, hyper, scale, like)


@shared
def rmsprop_chunks(team, places, sizes, present, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        rmsprop_chunk(chunk, places, sizes, present, hyper, scale, like)


@shared
def adagrad_chunks(team, places, sizes, present, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        adagrad_chunk(chunk, places, sizes, present, hyper, scale, like)


def _start(kernel, plan, *arguments):
    (kernel.alone if plan.elements < SMALL else kernel)(*arguments)


def _updater(kernel):
    def update(plan, hyper, scale, found_inf):
        """One update, unless it is to be skipped."""
        if found_inf is None or not found_inf[0]:
            places, sizes, like, present = plan.tables
            scale = 1.0 if scale is None else float(scale[0])
            _start(kernel, plan, places, sizes, present, hyper, scale, like)

    return update


sgd, adam, rmsprop, adagrad = map(_updater, (sgd_chunks, adam_chunks, rmsprop_chunks, adagrad_chunks))


# ---- norms and scaling -----------------------------------------------------------------------------------------------


@jit
def sum_squares(a, partial, chunk):
    """Into an element of `partial`, the sum of the squares of a, in float64."""
    sums, total = stack_array(LANES, partial), 0.0
    for lane in range(LANES):
        sums[lane] = 0.0
    whole = a.size // LANES * LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            v = np.float64(a[start + lane])
            sums[lane] += v * v
    for k in range(whole, a.size):
        v = np.float64(a[k])
        sums[k - whole] += v * v
    for lane in range(LANES):
        total += sums[lane]
    partial[chunk] = total


@shared
def square_chunks(team, places, sizes, partial, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        sum_squares(part(places, 0, t, start, stop, like), partial, chunk)


@jit
def add_chunks(sizes, partial, out):
    chunk = 0
    for t in range(sizes.size):
        out[t] = 0.0
        for _ in range((sizes[t] + CHUNK - 1) // CHUNK):
            out[t] += partial[chunk]
            chunk += 1


def squared_norms(plan, out, workspace):
    places, sizes, like, _ = plan.tables
    partial = elements(workspace, np.dtype(np.float64), chunks(sizes))
    square_chunks(places, sizes, partial, like)
    add_chunks(sizes, partial, out)


def clip_factor(squares, max_norm, norm, factor, inverse, found_inf):
    unscaled = 1.0 if inverse is None else float(inverse[0])
    total = math.sqrt(math.fsum(squares.tolist())) * unscaled
    share = max_norm / (total + 1e-6)
    norm[...], factor[0] = total, unscaled if share >= 1 else share * unscaled
    if found_inf is not None and not total < math.inf:
        found_inf[0] = 1


@jit
def scale_run(a, factor):
    for k in range(a.size):
        a[k] *= factor


@shared
def scale_chunks(team, places, sizes, factor, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        scale_run(part(places, 0, t, start, stop, like), like.dtype.type(factor))


def scale(plan, factor):
    places, sizes, like, _ = plan.tables
    _start(scale_chunks, plan, places, sizes, float(factor if isinstance(factor, float) else factor[0]), like)
