"""Loops over the elements of dense float32 arrays, shared among threads by one driver.

A kernel that threads share takes three times as long to compile as a bare loop. So `loop` compiles the function that
it decorates as a C function, and the driver, compiled once for all of them, calls it by its address on runs of RUN
elements. The function takes pointers to x, y and out, the number of elements, and two numbers.
"""

import functools

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .cpu import compiled, jit
from .memory import array_at, copy, stack_array
from .team import share, shared

__all__ = ["RUN", "loop"]

RUN = 16384  # elements
SMALL = 1 << 17  # elements; below it a second thread costs more than it brings
POINTER = types.CPointer(types.float32)
SIGNATURE = types.void(POINTER, POINTER, POINTER, types.intp, types.float32, types.float32)


def _cfunc(cache, error_model, nogil):
    return numba.cfunc(SIGNATURE, cache=cache, error_model=error_model)


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
        try:
            from .callbacks import callback
        except (AttributeError, ImportError):  # this version of Numba lacks something that the way leads through
            return compiled(self.function, _cfunc)
        return callback(self.function, SIGNATURE)

    @functools.cached_property
    def address(self):
        return self.compiled.address

    def __call__(self, x, y, p, q, out):
        drive = _drive.alone if out.size < SMALL else _drive
        drive(self.address, x, y, out, np.float32(p), np.float32(q))
