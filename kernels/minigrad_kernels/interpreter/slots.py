"""Slots: every operand of a program as one array over the lanes; and steps: closures over slots that execute it.

The numbers of slots are fixed when a program is translated; the arrays are made for each launch. Slots of one register
share its memory: as other types of its width, or as its lower part or its halves. Builders make the steps: each takes
the slots and an instruction of its opcode. What has no builder is an operation.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from .array import FILL, START, WINDOW_BITS
from .operations import DTYPES, Unknown
from .syntax import Immediate, Negated, Register, Special, Symbol

FIRST_ARRAY = 16  # the number of the module's first array in global memory


def _literal(text, dtype):
    """An immediate as a scalar of a type."""
    dtype, lower = np.dtype(dtype), text.lower()
    if lower.startswith(("0f", "0d")):
        number = int(text[2:], 16)
        if dtype.kind == "f":
            size = 4 if lower[1] == "f" else 8
            return dtype.type(np.array(number, f"u{size}").view(f"f{size}"))
    elif "." in text:
        if dtype.kind != "f":
            raise Unknown(f"has {text}, wants a whole number")
        return dtype.type(float(text))
    else:
        number = int(text.rstrip("U"), 0)
    if dtype.kind == "b":
        return np.bool_(number != 0)
    return np.array(number % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)[()]


class Slots:
    """The table of slots of a program: for each its number by what it stands for."""

    def __init__(self, program):
        self.program = program
        self.numbers = {}

    def _slot(self, *key):
        return self.numbers.setdefault(key, len(self.numbers))

    def source(self, operand, kind, part=0):
        """The slot of an operand read as a type; part: which piece of a wider register."""
        dtype = np.dtype(DTYPES[kind])
        if isinstance(operand, Register):
            return self._register(operand, dtype, part)
        if isinstance(operand, Immediate):
            if part:
                operand = Immediate(str(int(operand.text, 0) >> part * 8 * dtype.itemsize))
            return self._slot("constant", _literal(operand.text, dtype).tobytes(), dtype)
        if isinstance(operand, Special):
            return self._slot("special", operand.name, dtype)
        if isinstance(operand, Symbol):
            return self._slot("constant", dtype.type(self.address(operand)).tobytes(), dtype)
        raise Unknown(f"has the operand {operand}, which is not known")

    def address(self, symbol):
        """Where a variable lies in its space."""
        if symbol.space == "dynamic":
            return self.program.dynamic + symbol.offset
        if symbol.space == "global":
            return (FIRST_ARRAY + symbol.address << WINDOW_BITS) + START + symbol.offset
        if symbol.space == "kernel":
            raise Unknown(f"takes the address of parameter {symbol.name}, which is not known")
        return symbol.address + symbol.offset

    def parameter(self, index, kind, offset):
        return self._slot("parameter", index, np.dtype(DTYPES[kind]), offset)

    def target(self, operand, kind, part=None):
        """The slot that a result of a type is written to; a wider register takes it extended by zeros or its sign."""
        dtype = np.dtype(DTYPES[kind])
        if not isinstance(operand, Register):
            raise Unknown(f"writes to {operand}, wants a register")
        if part is None and operand.width > dtype.itemsize and dtype.kind in "iu":
            dtype = np.dtype(f"{dtype.kind}{operand.width}")
        if part is None and operand.width != dtype.itemsize:
            raise Unknown(f"writes {dtype.itemsize} bytes to a register of {operand.width}")
        return self._register(operand, dtype, part or 0)

    def reader(self, operand, kind):
        """A function that gives an operand, maybe a negated predicate, in the lanes that execute."""
        if isinstance(operand, Negated):
            negated = self.source(operand.register, kind)
            return lambda m: ~m.r[negated][m.at]
        slot = self.source(operand, kind)
        return lambda m: m.r[slot][m.at]

    def _register(self, register, dtype, part):
        if (part + 1) * dtype.itemsize > register.width or (dtype.kind == "b") != (register.width == 1):
            raise Unknown(f"takes a register of {register.width} bytes for {dtype}")
        return self._slot("register", register, dtype, part)


def allocate(program, slots, geometry, parameters, dynamic_bytes):
    """The arrays of all slots for a launch; special registers of blocks are set for each batch."""
    lanes = geometry.lanes
    tables = {
        width: np.zeros((count, lanes), np.bool_)
        if width == 1
        else np.full((count, lanes * width // 2), FILL).view(f"u{width}")
        for width, count in program.registers.items()
    }
    arrays = []
    for kind, *key in slots.numbers:
        if kind == "register":
            register, dtype, part = key
            row = tables[register.width][register.row].view(dtype)
            arrays.append(row[part :: register.width // dtype.itemsize])
        elif kind == "special":
            value = _special(key[0], geometry, dynamic_bytes)
            arrays.append(value.view(key[1]) if key[1].itemsize == 4 else value.astype(key[1]))
        else:
            if kind == "parameter":
                index, dtype, offset = key
                key = parameters[index][offset : offset + dtype.itemsize], dtype
            arrays.append(np.broadcast_to(np.frombuffer(*key)[0], (lanes,)))
    return arrays


def _special(name, geometry, dynamic_bytes):
    """What a register that the hardware fills holds in each lane; all clocks stand still."""
    root, _, axis = name[1:].partition(".")
    one, lane = np.ones(geometry.lanes, np.uint32), geometry.lane.astype(np.uint32)
    if axis:
        position = "xyz".index(axis)
        each = {"tid": geometry.thread_index, "ctaid": geometry.block_index}
        same = {"ntid": geometry.block, "nctaid": geometry.grid}
        return each[root][position] if root in each else one * same[root][position]
    simple = {
        "laneid": lane,
        "warpid": geometry.warp_in_block.astype(np.uint32),
        "dynamic_smem_size": one * dynamic_bytes,
    }
    return simple.get(root, 0 * one)


# ---- steps -----------------------------------------------------------------------------------------------------------


class Gate(NamedTuple):
    """Where lanes wait for others before they execute an instruction.

    rank      of gates at which lanes wait for ever: those of the lowest let go first
    opens     (machine): which of the lanes that execute may go on, None if all
    complain  (machine): report that the lanes that execute wait for ever
    """

    rank: int
    opens: Callable
    complain: Callable


BUILDERS: dict[str, Callable] = {}


def builder(*opcodes):
    """Enter a builder for the first parts of opcodes."""

    def enter(build):
        BUILDERS.update(dict.fromkeys(opcodes, build))
        return build

    return enter


def nothing(m):
    """What only orders or hints: here everything happens in order."""


def copy(target, source):
    def step(m):
        m.r[target][m.at] = m.r[source][m.at]

    return step


def sequence(steps):
    """One after the other."""

    def step(m):
        for part in steps:
            part(m)

    return steps[0] if len(steps) == 1 else step


def compute(function, target, sources):
    """target = function(sources), over the lanes that execute."""
    read = itemgetter(*sources) if len(sources) > 1 else lambda r: (r[sources[0]],)
    in_place = isinstance(function, np.ufunc)

    def step(m):
        r = m.r
        values = read(r)
        if not m.full:
            at = m.at
            r[target][at] = function(*[value[at] for value in values])
        elif in_place:
            function(*values, out=r[target])
        else:
            r[target][:] = function(*values)

    return step


def guarded(step, number, held):
    """A step under a predicate."""

    def guarded_step(m):
        whole = m.lanes
        lanes = whole.only(held(m))
        if lanes is not None:
            m.enter(lanes)
            step(m)
            m.guarded[number] += lanes.warps
            m.enter(whole)

    return guarded_step


def address_of(slots, operand):
    """A function that gives the addresses (int64) of [base + offset] in the lanes that execute."""
    base, offset, _ = operand
    narrow = getattr(base, "width", 8) == 4
    slot = slots.source(base, "u32" if narrow else "s64")
    if narrow:
        return lambda m: m.r[slot][m.at].astype(np.int64) + offset
    return lambda m: m.r[slot][m.at] + offset
