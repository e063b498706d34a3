"""Copies on the CPU: every thread owns pieces of runs, which it copies as bytes."""

import math

import numpy as np

from ..toolchain import copy_bytes, share, shared, threads
from .plan import runs

__all__ = ["copy"]

PIECE = 1 << 16  # bytes that are copied at once


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
