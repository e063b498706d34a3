"""Emits LLVM IR for vectors: the tile shapes by instruction set, and the building blocks of vector.py.

The shape of a tile follows the instruction set that Numba compiles for. To try another one, choose it there:
NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=+avx2,+fma gives AVX2, NUMBA_CPU_NAME=generic plain SSE2. MINIGRAD_TILES
names an entry of TILES to be used whatever the processor is: LLVM turns vectors of any length into what there is.
"""

import os
import platform
from typing import NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, config

from ..errors import ShapeError

__all__ = [
    "CACHE_LINE", "INT", "LANE", "TILE", "Emitter", "below", "constant", "fetch", "folded", "hidden", "load", "merged",
    "splat", "store",
]  # fmt: skip


class Tile(NamedTuple):
    """Rows of a gather tile (1 or 2 vectors wide), rows and columns of a dot tile, and how tails are masked."""

    vector_bytes: int
    rows: int
    dot_rows: int
    dot_columns: int
    free_masks: bool  # masked loads cost nothing, so that full tiles need no code of their own


TILES = {
    "avx512": Tile(64, 12, 6, 4, True),  # 32 registers: 24 sums, 2 of B, the rest in flight
    "avx2": Tile(32, 6, 4, 3, False),  # 16 registers
    "neon": Tile(16, 12, 6, 4, False),  # 32 registers
    "sse": Tile(16, 6, 4, 3, False),
    "plain": Tile(16, 4, 2, 2, False),  # of a processor that is not known
}


def instruction_set():
    """The name in TILES for the processor that Numba compiles for."""
    if forced := os.environ.get("MINIGRAD_TILES"):
        if forced not in TILES:
            raise ShapeError(f"MINIGRAD_TILES is {forced!r}, wanted one of {', '.join(TILES)}")
        return forced
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return "neon"
    if machine not in ("x86_64", "amd64"):
        return "plain"
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
elif TILE is TILES["plain"]:
    REGISTER = None


def constant(value):
    """An int64."""
    return ir.Constant(INT, value)


def fetch(builder, address, written):
    """Ask for the cache line of an address, which may lie outside all arrays; written: to be written to."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, LANE, LANE, LANE])
    callee = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    near, data = 3, 1  # into the nearest cache; not instructions
    settings = [ir.Constant(LANE, setting) for setting in (int(written), near, data)]
    builder.call(callee, [builder.inttoptr(address, byte), *settings])


def hidden(builder, value):
    """The same int64, of which the compiler knows nothing: an empty assembly.

    Otherwise it keeps a pointer of its own for each place that is reached from a loop's counter, more than there are
    registers, and moves them all to memory and back in each turn.
    """
    if REGISTER is None:
        return value
    return builder.asm(ir.FunctionType(INT, [INT]), "", "=r,0", [value], False)


# ---- vectors of any type -------------------------------------------------------------------------


def _places(numbers):
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(LANE, len(numbers)), numbers)


def splat(builder, value, lanes):
    """The value in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(LANE, 0))
    return builder.shuffle_vector(one, nothing, _places([0] * lanes))


def below(builder, count, lanes):
    """A mask: which lanes lie below a count."""
    numbers = ir.Constant(ir.VectorType(INT, lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, splat(builder, count, lanes))


def load(builder, pointer, size, mask=None):
    """A vector of elements of that size; lanes outside the mask are 0 and touch no memory."""
    if mask is None:
        return builder.load(pointer, align=size)
    nothing = ir.Constant(pointer.type.pointee, None)
    return _masked(builder, "load", nothing.type, nothing.type, [pointer, ir.Constant(LANE, size), mask, nothing])


def store(builder, vector, pointer, size, mask=None):
    if mask is None:
        builder.store(vector, pointer, align=size)
    else:
        _masked(builder, "store", ir.VoidType(), vector.type, [vector, pointer, ir.Constant(LANE, size), mask])


def _masked(builder, name, result, vector, arguments):
    element = vector.element
    kind = f"i{element.width}" if isinstance(element, ir.IntType) else f"f{64 if element == ir.DoubleType() else 32}"
    function = ir.FunctionType(result, [argument.type for argument in arguments])
    name = f"llvm.masked.{name}.v{vector.count}{kind}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)


def folded(builder, vector, join):
    """The lanes joined in halves, 0 and n/2, 1 and n/2 + 1 ..., then again, until there is one."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        nothing = ir.Constant(vector.type, ir.Undefined)
        halves = (_places(range(first, first + lanes)) for first in (0, lanes))
        vector = join(*[builder.shuffle_vector(vector, nothing, half) for half in halves])
    return builder.extract_element(vector, ir.Constant(LANE, 0))


def merged(builder, one, other, part):
    """The first (part 0) or second (1) halves of two vectors, element by element in turn."""
    lanes = one.type.count
    first = part * lanes // 2
    places = [place for k in range(first, first + lanes // 2) for place in (k, k + lanes)]
    return builder.shuffle_vector(one, other, _places(places))


class Emitter:
    """Emits loads, stores and sums of one element type at byte addresses."""

    def __init__(self, context, builder, signature):
        self.context, self.builder, self.types = context, builder, signature.args
        dtype = signature.args[0].dtype
        self.element = context.get_value_type(dtype)
        self.size = dtype.bitwidth // 8
        self.lanes = TILE.vector_bytes // self.size
        self.vector = ir.VectorType(self.element, self.lanes)

    def array(self, index, value):
        """The structure behind the array that is argument number `index`."""
        return self.context.make_array(self.types[index])(self.context, self.builder, value)

    def shifted(self, address, elements):
        """The address so many elements on."""
        return self.builder.add(address, self.builder.mul(elements, constant(self.size)))

    def base(self, index, value, offset):
        return self.shifted(self.builder.ptrtoint(self.array(index, value).data, INT), offset)

    def entry(self, table, index):
        """An entry of a table of int64."""
        return self.builder.load(self.builder.gep(table, [index]))

    def minimum(self, a, b):
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def scalar(self, address):
        return self.builder.load(self.builder.inttoptr(address, self.element.as_pointer()), align=self.size)

    def splat(self, value):
        return splat(self.builder, value, self.lanes)

    def mask(self, count):
        """Which lanes lie below a count."""
        return below(self.builder, count, self.lanes)

    def under_mask(self, count, body):
        """body(mask); where masks cost time, once more without one, for when all lanes are used."""
        if TILE.free_masks:
            body(self.mask(count))
            return
        with self.builder.if_else(self.builder.icmp_signed(">=", count, constant(self.lanes))) as (whole, rest):
            with whole:
                body(None)
            with rest:
                body(self.mask(count))

    def load(self, address, mask=None):
        """A vector; lanes outside the mask are 0 and touch no memory."""
        return load(self.builder, self.builder.inttoptr(address, self.vector.as_pointer()), self.size, mask)

    def store(self, vector, address, mask=None):
        store(self.builder, vector, self.builder.inttoptr(address, self.vector.as_pointer()), self.size, mask)

    def zeros(self):
        """The address of two vectors of zeros."""
        memory = ir.Constant(ir.ArrayType(ir.IntType(8), 2 * TILE.vector_bytes), None)
        return self.builder.ptrtoint(cgutils.global_constant(self.builder.module, "minigrad_zeros", memory), INT)

    def variable(self, value):
        """A variable, which LLVM keeps in a register."""
        slot = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, slot)
        return slot

    def multiply_add(self, a, b, slot):
        product = self.builder.fmul(a, b, flags=("contract",))
        self.builder.store(self.builder.fadd(self.builder.load(slot), product, flags=("contract",)), slot)

    def at_least(self, value, floor):
        """The greater of both; a NaN of the value stays."""
        return self.builder.select(self.builder.fcmp_ordered("<=", value, floor), floor, value)

    def fence(self, slots):
        """Finish the sums in some variables before what follows is loaded: an empty assembly that touches them.

        Otherwise the compiler loads all rows first, for which there are not registers enough.
        """
        for slot in slots if REGISTER else ():
            value = self.builder.load(slot)
            kind = ir.FunctionType(value.type, [value.type])
            passed = self.builder.asm(kind, "", f"={REGISTER},0,~{{memory}}", [value], True)
            self.builder.store(passed, slot)

    def lane_sum(self, vector):
        """The lanes added in halves."""
        return folded(self.builder, vector, self.builder.fadd)

    def transposed(self, vectors):
        """As many vectors as each has lanes, as a matrix turned about its diagonal, by swapping ever larger blocks."""
        size, numbers = 1, range(self.lanes)
        while size < self.lanes:
            lower = _places(i if not i & size else self.lanes + i - size for i in numbers)
            upper = _places(i + size if not i & size else self.lanes + i for i in numbers)
            turned = list(vectors)
            for i in numbers:
                if not i & size:
                    pair = vectors[i], vectors[i + size]
                    turned[i], turned[i + size] = (
                        self.builder.shuffle_vector(*pair, order) for order in (lower, upper)
                    )
            vectors, size = turned, 2 * size
        return vectors
