"""The one emitter of vector code: a formula on `Value`s becomes LLVM IR.

    @emitted
    def scale(emit, x, at, factor, out, count):
        emit.under_mask(count, lambda mask: out.store(x.load(at, mask) * factor, at, mask))

    scale(x, at, factor, out, count)        # in a kernel: out[at + k] = x[at + k] * factor, for the lanes k < count

What a kernel calls is compiled by Numba as `numba.extending.intrinsic`. The function above is called once for each
combination of types, with an Emitter, an Array for each array, and a Value for each number.

The shape of a tile follows the instruction set that Numba compiles for. To try another one, choose it there:
NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=+avx2,+fma gives AVX2, NUMBA_CPU_NAME=generic plain SSE2. MINIGRAD_TILES
names an entry of TILES to be used whatever the processor is: LLVM turns vectors of any length into what there is.
"""

import functools
import os
import platform
from contextlib import contextmanager
from typing import NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from ..errors import ShapeError

# ---- instruction sets ----------------------------------------------------------------------------


class Tile(NamedTuple):
    """Rows of a gather tile (1 or 2 vectors wide), rows and columns of a dot tile, and how tails are masked."""

    vector_bytes: int
    rows: int
    dot_rows: int
    dot_columns: int
    free_masks: bool  # masked loads cost nothing, so that full tiles need no code of their own

    @property
    def low_rows(self):
        """Of a tile for what whole tiles leave."""
        return max(1, self.rows // 3)


TILES = {
    "avx512": Tile(64, 12, 6, 4, True),  # 32 registers: 24 sums, 2 of B, the rest in flight
    "avx2": Tile(32, 6, 4, 3, False),  # 16 registers
    "neon": Tile(16, 12, 6, 4, False),  # 32 registers
    "sse": Tile(16, 6, 4, 3, False),
}


def instruction_set():
    """The name in TILES for the processor that Numba compiles for."""
    if forced := os.environ.get("MINIGRAD_TILES"):
        if forced not in TILES:
            raise ShapeError(f"MINIGRAD_TILES is {forced!r}, wanted one of {', '.join(TILES)}")
        return forced
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return "neon"  # which serves any other processor too
    features = config.CPU_FEATURES
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    present = set(features.split(","))
    if "+avx512f" in present:
        return "avx512"
    return "avx2" if {"+avx2", "+fma"} <= present else "sse"


TILE = TILES[instruction_set()]
INT, LANE = ir.IntType(64), ir.IntType(32)
CACHE_LINE = 64  # bytes
# What inline assembly calls a vector register; None where that is not known.
REGISTER = {"x86_64": "x", "amd64": "x", "arm64": "w", "aarch64": "w"}.get(platform.machine().lower())
if TILE is TILES["avx512"]:
    REGISTER = "v"  # all 32 of them


# ---- values --------------------------------------------------------------------------------------


def _element(kind):
    return kind.element if isinstance(kind, ir.VectorType) else kind


def _constant(kind, number):
    if not isinstance(_element(kind), ir.IntType):
        number = float(number)
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


class Value:
    """A number, or a vector of numbers, of the code that is emitted: an operator emits its instruction.

    Python's numbers become constants, a number beside a vector fills all lanes, and float32 beside float64 is widened.
    Integers are signed in comparisons and divisions, and unsigned in shifts. A NaN compares as False.
    """

    def __init__(self, builder, value, flags=()):
        """value: of llvmlite; flags: of operations on floating numbers"""
        self.builder, self.value, self.type, self.flags = builder, value, value.type, flags

    def like(self, value):
        """Another value of the same code."""
        return Value(self.builder, value, self.flags)

    def _pair(self, other):
        """The values of both, of one type."""
        if not isinstance(other, Value):
            return self.value, _constant(self.type, other)
        lanes = max(getattr(self.type, "count", 1), getattr(other.type, "count", 1))
        double = ir.DoubleType() in (_element(self.type), _element(other.type))
        found = []
        for value in (self, other):
            value = value.rounded(ir.DoubleType()) if double else value
            found.append(value.splat(lanes).value if lanes > 1 else value.value)
        return found

    def _with(self, other, name):
        a, b = self._pair(other)
        if isinstance(_element(a.type), ir.IntType):
            return self.like(getattr(self.builder, name)(a, b))
        return self.like(getattr(self.builder, f"f{name}")(a, b, flags=self.flags))

    def _is(self, sign, other):
        a, b = self._pair(other)
        whole = isinstance(_element(a.type), ir.IntType)
        compare = self.builder.icmp_signed if whole else self.builder.fcmp_ordered
        return self.like(compare(sign, a, b))

    __add__ = __radd__ = lambda self, other: self._with(other, "add")
    __sub__ = lambda self, other: self._with(other, "sub")
    __mul__ = __rmul__ = lambda self, other: self._with(other, "mul")
    __truediv__ = lambda self, other: self._with(other, "div")
    __floordiv__ = lambda self, other: self._with(other, "sdiv")
    __and__ = lambda self, other: self._with(other, "and_")
    __or__ = lambda self, other: self._with(other, "or_")
    __xor__ = lambda self, other: self._with(other, "xor")
    __rshift__ = lambda self, other: self._with(other, "lshr")
    __lt__ = lambda self, other: self._is("<", other)
    __le__ = lambda self, other: self._is("<=", other)
    __gt__ = lambda self, other: self._is(">", other)
    __ge__ = lambda self, other: self._is(">=", other)

    def equals(self, other):
        return self._is("==", other)

    def is_below(self, other):
        """Whether this is less than another integer, both without a sign."""
        return self.like(self.builder.icmp_unsigned("<", *self._pair(other)))

    def is_nan(self):
        return self.like(self.builder.fcmp_unordered("uno", self.value, self.value))

    def where(self, condition, other):
        """This where the condition holds, else the other."""
        if getattr(condition.type, "count", 1) < getattr(self.type, "count", 1):
            condition = condition.splat(self.type.count)
        return self.like(self.builder.select(condition.value, *self._pair(other)))

    def rounded(self, element):
        """The same with elements of another floating type."""
        before = _element(self.type)
        if before == element:
            return self
        kind = ir.VectorType(element, self.type.count) if isinstance(self.type, ir.VectorType) else element
        cast = self.builder.fpext if element == ir.DoubleType() else self.builder.fptrunc
        return self.like(cast(self.value, kind))

    def low(self, kind):
        """The lower bits of an integer, or of a vector of them, as a type of so few."""
        return self if self.type == kind else self.like(self.builder.trunc(self.value, kind))

    # ---- lanes ------------------------------------------------------------------------------------

    def shuffled(self, other, places):
        """The elements of two vectors, counted through both, at these places; None: no second one."""
        other = ir.Constant(self.type, ir.Undefined) if other is None else other.value
        places = list(places)
        order = ir.Constant(ir.VectorType(LANE, len(places)), places)
        return self.like(self.builder.shuffle_vector(self.value, other, order))

    def splat(self, lanes):
        """The number in all lanes; a vector as it is."""
        if isinstance(self.type, ir.VectorType):
            return self
        nothing = ir.Constant(ir.VectorType(self.type, lanes), ir.Undefined)
        one = self.builder.insert_element(nothing, self.value, ir.Constant(LANE, 0))
        return self.like(one).shuffled(None, [0] * lanes)

    def folded(self, join):
        """The lanes joined in halves, 0 and n/2, 1 and n/2 + 1 ..., then again, until there is one."""
        vector, lanes = self, self.type.count
        while lanes > 1:
            lanes //= 2
            vector = join(*(vector.shuffled(None, range(first, first + lanes)) for first in (0, lanes)))
        return self.like(self.builder.extract_element(vector.value, ir.Constant(LANE, 0)))

    def sum(self):
        return self.folded(lambda a, b: a + b)


def transposed(vectors):
    """As many vectors as each has lanes, as a matrix turned about its diagonal, by swapping ever larger blocks."""
    size, numbers = 1, range(len(vectors))
    while size < len(vectors):
        lower = [i if not i & size else len(vectors) + i - size for i in numbers]
        upper = [i + size if not i & size else len(vectors) + i for i in numbers]
        turned = list(vectors)
        for i in numbers:
            if not i & size:
                one, other = vectors[i], vectors[i + size]
                turned[i], turned[i + size] = one.shuffled(other, lower), one.shuffled(other, upper)
        vectors, size = turned, 2 * size
    return vectors


class Variable:
    """A variable of the emitted code, which LLVM keeps in a register."""

    def __init__(self, emit, value):
        self.emit, self.slot = emit, cgutils.alloca_once(emit.builder, value.type)
        self.set(value)

    def get(self):
        return self.emit.value(self.emit.builder.load(self.slot))

    def set(self, value):
        self.emit.builder.store(value.value, self.slot)


class Array:
    """An array argument, C-contiguous; offsets count elements from its first one."""

    def __init__(self, emit, kind, value):
        structure = emit.context.make_array(kind)(emit.context, emit.builder, value)
        self.emit, self.data, self.count = emit, structure.data, emit.value(structure.nitems)
        self.element, self.size = emit.context.get_value_type(kind.dtype), kind.dtype.bitwidth // 8
        self.vector = ir.VectorType(self.element, emit.lanes)

    def at(self, offset):
        """The address of an element, in bytes."""
        return self.emit.value(self.emit.builder.ptrtoint(self.data, INT)) + offset * self.size

    def __getitem__(self, offset):
        """An element."""
        return self.emit.value(self.emit.builder.load(self.emit.builder.gep(self.data, [offset.value])))

    def load(self, offset, mask=None):
        """The vector from an offset on; lanes outside the mask are 0 and touch no memory."""
        return self.emit.load(self.at(offset), mask, self.vector)

    def store(self, vector, offset, mask=None):
        """A vector, of which only the lanes of the mask are written, rounded to the type of the array."""
        vector = vector if isinstance(self.element, ir.IntType) else vector.rounded(self.element)
        self.emit.store(vector, self.at(offset), mask)


# ---- code ----------------------------------------------------------------------------------------


class Emitter:
    """Emits the code of one call: vectors of `lanes` elements of the type that the first array has.

    contract: products may be fused with sums. Else nothing is, so that the same formula gives the same bits anywhere.
    """

    def __init__(self, context, builder, first, lanes, contract):
        self.context, self.builder = context, builder
        self.element, self.size = context.get_value_type(first.dtype), first.dtype.bitwidth // 8
        self.lanes = lanes or TILE.vector_bytes // self.size
        self.vector, self.flags = ir.VectorType(self.element, self.lanes), ("contract",) * contract

    def argument(self, kind, value):
        """An argument of a type of Numba."""
        if isinstance(kind, types.Array):
            return Array(self, kind, value)
        if isinstance(kind, types.BaseTuple):
            return [self.value(self.builder.extract_value(value, k)) for k in range(len(kind))]
        return self.value(value)

    def value(self, value):
        return Value(self.builder, value, self.flags)

    # ---- numbers and vectors ----------------------------------------------------------------------

    def number(self, value):
        """An integer of 64 bits."""
        return self.value(ir.Constant(INT, value))

    def filled(self, number, kind=None):
        """A vector of a constant."""
        return self.value(_constant(kind or self.vector, number))

    def counting(self):
        """The integers 0, 1, ... in the lanes."""
        return self.value(ir.Constant(ir.VectorType(INT, self.lanes), list(range(self.lanes))))

    def minimum(self, a, b):
        return a.where(a < b, b)

    def variable(self, value):
        return Variable(self, value)

    def hidden(self, value):
        """The same integer, of which the compiler knows nothing: an empty assembly.

        Otherwise it keeps a pointer of its own for each place that is reached from a loop's counter, more than there
        are registers, and moves them all to memory and back in each turn.
        """
        if REGISTER is None:
            return value
        return self.value(self.builder.asm(ir.FunctionType(INT, [INT]), "", "=r,0", [value.value], False))

    def fence(self, variables):
        """Finish the sums in some variables before what follows is loaded: an empty assembly that touches them.

        Otherwise the compiler loads all rows first, for which there are not registers enough.
        """
        for variable in variables if REGISTER else ():
            value = variable.get().value
            kind = ir.FunctionType(value.type, [value.type])
            passed = self.builder.asm(kind, "", f"={REGISTER},0,~{{memory}}", [value], True)
            variable.set(self.value(passed))

    # ---- memory -----------------------------------------------------------------------------------

    def _pointer(self, address, kind):
        return self.builder.inttoptr(address.value, kind.as_pointer())

    def load(self, address, mask=None, kind=None):
        """A vector, or what else a type of LLVM says; lanes outside the mask are 0 and touch no memory."""
        kind = kind or self.vector
        pointer, size = self._pointer(address, kind), _bytes(kind)
        if mask is None:
            return self.value(self.builder.load(pointer, align=size))
        arguments = [pointer, ir.Constant(LANE, size), mask.value, ir.Constant(kind, None)]
        return self.value(self._masked("load", kind, kind, arguments))

    def store(self, value, address, mask=None):
        pointer, size = self._pointer(address, value.type), _bytes(value.type)
        if mask is None:
            self.builder.store(value.value, pointer, align=size)
        else:
            arguments = [value.value, pointer, ir.Constant(LANE, size), mask.value]
            self._masked("store", ir.VoidType(), value.type, arguments)

    def _masked(self, name, result, vector, arguments):
        whole = isinstance(vector.element, ir.IntType)
        name = f"llvm.masked.{name}.v{vector.count}{'i' if whole else 'f'}{8 * _bytes(vector)}.p0"
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)

    def fetch(self, address, written):
        """Ask for the cache line of an address, which may lie outside all arrays; written: to be written to."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, LANE, LANE, LANE])
        callee = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        near, data = 3, 1  # into the nearest cache; not instructions
        settings = [ir.Constant(LANE, setting) for setting in (int(written), near, data)]
        self.builder.call(callee, [self.builder.inttoptr(address.value, byte), *settings])

    def zeros(self):
        """The address of two vectors of zeros."""
        memory = ir.Constant(ir.ArrayType(ir.IntType(8), 2 * TILE.vector_bytes), None)
        zeros = cgutils.global_constant(self.builder.module, "minigrad_zeros", memory)
        return self.value(self.builder.ptrtoint(zeros, INT))

    # ---- what runs, and how often -----------------------------------------------------------------

    @contextmanager
    def loop(self, count, start=None):
        """A with block that is run for the numbers from start, or 0, to count, which it gives."""
        start = start and start.value
        with cgutils.for_range(self.builder, count.value, start=start, intp=INT) as loop:
            yield self.value(loop.index)

    def if_then(self, condition):
        return self.builder.if_then(condition.value)

    def if_else(self, condition):
        return self.builder.if_else(condition.value)

    def mask(self, count):
        """Which lanes lie below a count."""
        return self.counting() < count

    def under_mask(self, count, body):
        """body(mask); where masks cost time, once more without one, for when all lanes are used."""
        if TILE.free_masks:
            body(self.mask(count))
            return
        with self.if_else(count >= self.lanes) as (whole, rest):
            with whole:
                body(None)
            with rest:
                body(self.mask(count))

    def whole_vectors(self, count, body):
        """body(first, mask) for each vector of a run of so many elements; without a mask for all but the last."""
        whole = count // self.lanes
        with self.loop(whole) as k:
            body(k * self.lanes, None)
        done = whole * self.lanes
        with self.if_then(done < count):
            body(done, self.mask(count - done))


def _bytes(kind):
    """Of an element of a type of LLVM."""
    element = _element(kind)
    if isinstance(element, ir.IntType):
        return element.width // 8
    return 8 if element == ir.DoubleType() else 4


def emitted(function=None, *, lanes=None, contract=False, result=None):
    """Make of a function that emits code one that kernels call, see the head of this file.

    Integers, also those of tuples, arrive as 64 bits; everything else as it comes.

    lanes       of a vector; None: as many as a register holds
    contract    whether products may be fused with sums
    result      a function of the types of the arguments, Numba's: the type of what the function returns
    """
    if function is None:
        return functools.partial(emitted, lanes=lanes, contract=contract, result=result)

    def typed(typing_context, *kinds):
        first = next(kind for kind in kinds if isinstance(kind, types.Array))
        kinds = list(map(_taken, kinds))

        def generate(context, builder, signature, values):
            emit = Emitter(context, builder, first, lanes, contract)
            found = function(emit, *map(emit.argument, signature.args, values))
            return found.value if result else context.get_dummy_value()

        return (result(*kinds) if result else types.void)(*kinds), generate

    # Numba sees by what it wraps how many arguments there are.
    return intrinsic(functools.update_wrapper(typed, function, updated=()))


def _taken(kind):
    """The type of Numba that a call takes for an argument of this one."""
    if isinstance(kind, types.Integer):
        return types.int64
    if isinstance(kind, types.BaseTuple):
        return types.UniTuple(types.int64, len(kind))
    return kind
