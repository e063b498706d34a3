"""Copies on the CPU: every thread owns pieces of runs, or rows of out, which it copies as bytes.

A row of one element is copied as a number of its size.
"""

import math

import numpy as np

from ..toolchain import copy_bytes, share, shared, threads
from .plan import runs

__all__ = ["copy", "take_rows"]

PIECE = 1 << 16  # bytes that are copied at once
SMALL = 1 << 14  # elements; below it a second thread costs more than it brings


@shared
def copy_runs(team, source, target, length, pieces, counts, steps, out_steps):
    """Addresses of the first bytes, and the axes of the runs."""
    for number in share(pieces * counts[0] * counts[1] * counts[2], team):
        run, start = number // pieces, number % pieces * PIECE
        plane = run // counts[2]
        a, b, c = plane // counts[1], plane % counts[1], run % counts[2]
        at = source + a * steps[0] + b * steps[1] + c * steps[2] + start
        to = target + a * out_steps[0] + b * out_steps[1] + c * out_steps[2] + start
        copy_bytes(to, at, min(PIECE, length - start))


def copy(x, out):
    plan = runs(x.shape, x.strides, out.strides, x.itemsize) if threads() > 1 and x.size else None
    if plan is None:  # on one thread NumPy is as fast
        np.copyto(out, x)
        return
    length, axes = plan
    counts, steps, out_steps = zip(*axes, strict=True)
    copy_runs(x.ctypes.data, out.ctypes.data, length, math.ceil(length / PIECE), counts, steps, out_steps)


@shared
def take_runs(team, source, length, places, target):
    """Runs of so many bytes, from one address on to another."""
    for k in share(places.size, team):
        copy_bytes(target + k * length, source + places[k] * length, length)


@shared
def take_numbers(team, x, places, out):
    for k in share(places.size, team):
        out[k] = x[np.uint64(places[k])]  # unsigned, so that no end is looked for from which a negative one counts


def take_rows(x, places, out):
    if not out.size:
        return
    if x.shape[1] == 1:
        kind = np.dtype(f"u{x.itemsize}")
        run = take_numbers.alone if out.size < SMALL else take_numbers
        run(x.view(kind).reshape(-1), places, out.view(kind).reshape(-1))
    else:
        run = take_runs.alone if out.size < SMALL else take_runs
        run(x.ctypes.data, x.shape[1] * x.itemsize, places, out.ctypes.data)
