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

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .emit import CACHE_LINE, INT, below, constant, fetch, folded, load, splat, store

__all__ = ["LANES", "Vector", "lane_greatest", "lane_total", "line"]

LANES = 16  # two or four registers where vectors are shorter

AHEAD = 2048  # bytes


class Vector:
    """The lanes of one value in a formula."""

    def __init__(self, builder, value):
        self.builder, self.value = builder, value

    def _widened(self, kind):
        return self.value if self.value.type == kind else self.builder.fpext(self.value, kind)

    def _with(self, other, operation):
        double = ir.VectorType(ir.DoubleType(), LANES)
        kind = double if double in (self.value.type, other.value.type) else self.value.type
        return Vector(self.builder, operation(self._widened(kind), other._widened(kind)))

    def __add__(self, other):
        return self._with(other, self.builder.fadd)

    def __sub__(self, other):
        return self._with(other, self.builder.fsub)

    def __mul__(self, other):
        return self._with(other, self.builder.fmul)

    def __le__(self, other):
        return self._with(other, lambda a, b: self.builder.fcmp_ordered("<=", a, b))

    def where(self, condition, other):
        """This where the condition holds, else the other."""
        return Vector(self.builder, self.builder.select(condition.value, self.value, other.value))


class _Here:
    """What a formula sees: vectors of the arrays at one place, and of the numbers."""

    def __init__(self, builder, pointers, totals, numbers, mask):
        vars(self).update(_builder=builder, _pointers=pointers, _totals=totals, _numbers=numbers, _mask=mask)
        vars(self).update(_loaded={name: Vector(builder, builder.load(place)) for name, place in totals.items()})

    def __getattr__(self, name):
        if name in self._numbers:
            return self._numbers[name]
        if name not in self._loaded:
            pointer, size, moves = self._pointers[name]
            if moves:
                self._fetch(pointer, size, False)
            self._loaded[name] = Vector(self._builder, load(self._builder, pointer, size, self._mask))
        return self._loaded[name]

    def __setattr__(self, name, vector):
        before, self._loaded[name] = self._loaded.get(name), vector
        pointer, size, moves = self._pointers.get(name) or (self._totals[name], None, False)
        if moves:
            self._fetch(pointer, size, True)
        value, kind = vector.value, pointer.type.pointee
        if value.type != kind:
            narrow = self._builder.fpext if kind.element == ir.DoubleType() else self._builder.fptrunc
            value = narrow(value, kind)
        if name in self._totals:
            value = value if self._mask is None else self._builder.select(self._mask, value, before.value)
            self._builder.store(value, pointer)
        else:
            store(self._builder, value, pointer, size, self._mask)

    def _fetch(self, pointer, size, written):
        """What lies AHEAD of a whole vector."""
        if self._mask is None:
            start = self._builder.ptrtoint(pointer, INT)
            for line in range(0, size * LANES, CACHE_LINE):
                fetch(self._builder, self._builder.add(start, constant(AHEAD + line)), written)


def _emit(context, builder, formula, names, moving, totals, kinds, values):
    """The formula for all whole vectors, and under a mask for the rest."""
    (at, width), arrays = values[:2], {}
    numbers, held = {}, {}
    for name, kind, value in zip(names, kinds, values[2:], strict=True):
        if name in totals:
            data = context.make_array(kind)(context, builder, value).data
            memory = builder.bitcast(data, ir.VectorType(data.type.pointee, LANES).as_pointer())
            held[name] = cgutils.alloca_once(builder, memory.type.pointee), memory, kind.dtype.bitwidth // 8
        elif isinstance(kind, types.Array):
            data = context.make_array(kind)(context, builder, value).data
            arrays[name] = builder.gep(data, [at]) if name in moving else data, kind.dtype.bitwidth // 8
        else:
            numbers[name] = Vector(builder, splat(builder, value, LANES))

    def step(k, mask):
        places = {}
        for name, (data, size) in arrays.items():
            vector = ir.VectorType(data.type.pointee, LANES).as_pointer()
            places[name] = builder.bitcast(builder.gep(data, [k]), vector), size, name in moving
        formula(_Here(builder, places, {name: place for name, (place, *_) in held.items()}, numbers, mask))

    for place, memory, size in held.values():
        builder.store(builder.load(memory, align=size), place)
    whole = builder.and_(width, constant(-LANES))
    with cgutils.for_range(builder, builder.sdiv(whole, constant(LANES)), intp=INT) as loop:
        step(builder.mul(loop.index, constant(LANES)), None)
    with builder.if_then(builder.icmp_signed("<", whole, width)):
        step(whole, below(builder, builder.sub(width, whole), LANES))
    for place, memory, size in held.values():
        builder.store(builder.load(place), memory, align=size)


def line(moving, fixed="", totals="", numbers=""):
    """Make of a formula a function for kernels, see the head of this file: (at, width, *moving, *fixed, *totals,
    *numbers)."""
    moving, totals = moving.split(), totals.split()
    names = [*moving, *fixed.split(), *totals, *numbers.split()]

    def decorate(formula):
        def run(typing_context, at, width, *arguments):
            def generate(context, builder, signature, values):
                _emit(context, builder, formula, names, moving, totals, signature.args[2:], values)
                return context.get_dummy_value()

            return types.void(types.intp, types.intp, *arguments), generate

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in ("typing_context", "at", "width", *names)]
        run.__signature__ = inspect.Signature(parameters)  # Numba wants to know how many there are
        return intrinsic(functools.update_wrapper(run, formula, updated=()))

    return decorate


def _lanes_joined(join):
    @intrinsic
    def joined(typing_context, array):
        def generate(context, builder, signature, values):
            data = context.make_array(array)(context, builder, values[0]).data
            kind = ir.VectorType(data.type.pointee, LANES)
            vector = load(builder, builder.bitcast(data, kind.as_pointer()), array.dtype.bitwidth // 8)
            return folded(builder, vector, lambda one, other: join(builder, one, other))

        return array.dtype(array), generate

    return joined


def _greater(builder, one, other):
    return builder.select(builder.fcmp_ordered(">", other, one), other, one)


# Of the first LANES elements of an array: 0 and 8, 1 and 9 ..., then again by halves.
lane_total = _lanes_joined(ir.IRBuilder.fadd)
lane_greatest = _lanes_joined(_greater)  # NaN is passed over
