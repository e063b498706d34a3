"""Loops over the elements of dense float32 arrays, shared among threads by one driver.

A kernel that threads share takes three times as long to compile as a bare loop. So `loop` compiles the function that
it decorates as a C function, and the driver, compiled once for all of them, calls it by its address on runs of RUN
elements. The function takes pointers to x, y and out, the number of elements, and two numbers.
"""

import functools

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .cpu import elements, jit
from .memory import array_at, copy, stack_array
from .rows import row_sum
from .runs import RUN, SMALL, runs
from .team import share, shared

__all__ = ["PIECE", "loop"]

PIECE = 1024  # elements of a run whose results are added up in float32, before the sum goes on in float64
DOUBLE = np.dtype(np.float64)
POINTER = types.CPointer(types.float32)
SIGNATURE = types.void(POINTER, POINTER, POINTER, types.intp, types.float32, types.float32)


@intrinsic
def _call(typing_context, function, x, y, out, count, p, q):
    """Call a loop by its address; x, y and out are addresses too."""

    def generate(context, builder, signature, values):
        pointer, whole, number = ir.FloatType().as_pointer(), ir.IntType(64), ir.FloatType()
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer, whole, number, number])
        target = builder.inttoptr(values[0], kind.as_pointer())
        places = [builder.inttoptr(value, pointer) for value in values[1:4]]
        builder.call(target, [*places, *values[4:]])
        return context.get_dummy_value()

    ints, floats = [types.int64] * 5, [types.float32] * 2
    return types.void(*ints, *floats), generate


@jit
def _in_place(function, x, y, out, count, p, q, like):
    """A run whose results replace x or y: compiled loops use vectors only where out is memory of its own."""
    results = stack_array(2048, like)
    for start in range(0, count, 2048):
        size, at = min(2048, count - start), 4 * start
        _call(function, x + at, y + at, results.ctypes.data, size, p, q)
        copy(results[:size], array_at(out + at, size, like))


@shared
def _drive(team, function, x_array, y_array, out_array, p, q):
    x, y, out, size = x_array.ctypes.data, y_array.ctypes.data, out_array.ctypes.data, out_array.size
    for run in share((size + RUN - 1) // RUN, team):
        start = run * RUN
        count, at = min(RUN, size - start), 4 * start
        if out == x or out == y:
            _in_place(function, x + at, y + at, out + at, count, p, q, out_array)
        else:
            _call(function, x + at, y + at, out + at, count, p, q)


@jit
def _sum_of_run(function, x, y, count, p, q, like):
    results, total = stack_array(PIECE, like), 0.0
    for start in range(0, count, PIECE):
        size, at = min(PIECE, count - start), 4 * start
        _call(function, x + at, y + at, results.ctypes.data, size, p, q)
        total += row_sum(results, 0, size)
    return total


@shared
def _sums_of_runs(team, function, x_array, y_array, p, q, sums):
    x, y, size = x_array.ctypes.data, y_array.ctypes.data, x_array.size
    for run in share((size + RUN - 1) // RUN, team):
        start = run * RUN
        sums[run] = _sum_of_run(function, x + 4 * start, y + 4 * start, min(RUN, size - start), p, q, x_array)


@jit
def _add_up(sums, divisor, out):
    total = 0.0
    for run in range(sums.size):
        total += sums[run]
    out[()] = total / divisor


@jit
def _sum_alone(function, x_array, y_array, p, q, divisor, out):
    x, y, size, total = x_array.ctypes.data, y_array.ctypes.data, x_array.size, 0.0
    for start in range(0, size, RUN):
        total += _sum_of_run(function, x + 4 * start, y + 4 * start, min(RUN, size - start), p, q, x_array)
    out[()] = total / divisor


class loop:
    """A loop over elements, compiled when first needed.

    Calling it runs it on flat float32 arrays of one size, x, y and out; where a loop has no y, x is given again. The
    threads share the work, unless it is small.
    """

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function

    @functools.cached_property
    def compiled(self):
        from .callbacks import callback

        return callback(self.function, SIGNATURE)

    @functools.cached_property
    def address(self):
        return self.compiled.address

    def __call__(self, x, y, p, q, out):
        drive = _drive.alone if out.size < SMALL else _drive
        drive(self.address, x, y, out, np.float32(p), np.float32(q))

    def total(self, x, y, p, q, divisor, out, workspace):
        """What it makes of x and y, added up and divided: in float32 within a PIECE, beyond it in float64."""
        p, q, divisor = np.float32(p), np.float32(q), float(divisor)
        if x.size < SMALL:
            _sum_alone(self.address, x, y, p, q, divisor, out)
        else:
            sums = elements(workspace, DOUBLE, runs(x.size))
            _sums_of_runs(self.address, x, y, p, q, sums)
            _add_up(sums, divisor, out)
