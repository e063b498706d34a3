"""Names in PTX: what is declared between braces, where variables lie, and what the text of an operand stands for."""

import re

from ..errors import StateError
from .syntax import VARIABLE, Address, Cell, Immediate, Negated, Pair, Register, Special, Symbol, Vector, split

__all__ = ["LOCAL_START", "SHARED_START", "Names"]

# Where shared and local memory begin; lower addresses are out of bounds, so that a forgotten base is a fault.
SHARED_START, LOCAL_START = 0x400, 0x40
WIDTHS = {"pred": 1, "b8": 2, "u8": 2, "s8": 2, "16": 2, "32": 4, "64": 8}

NUMBER = re.compile(r"[-+]?(?:0[fFdDxX][0-9a-fA-F]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)$")
SUM = re.compile(r"(.+?)\s*\+\s*([-+]?\w+)$")
SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid)\.[xyz]|laneid|warpid|nwarpid|lanemask_[a-z]{2}|(?:dynamic|total)_smem_size)$"
)


def round_up(number, multiple):
    return -(-number // multiple) * multiple


class _Scope:
    """The names that are declared between two braces."""

    def __init__(self, path=()):
        self.path = path  # numbers of the scopes around it and its own
        self.names = {}
        self.ranges = {}  # prefix of numbered registers -> width, count


class Names:
    """All names, in nested scopes, and how much memory and how many registers they take.

    registers  how many there are of each width
    shared     the end of shared memory so far; local: of local memory; arrays: variables in global memory
    """

    def __init__(self):
        self.registers = {1: 0, 2: 0, 4: 0, 8: 0}
        self.arrays = []
        self.shared, self.local, self.opened = SHARED_START, LOCAL_START, 0
        self.dynamic = []  # names of dynamic shared memory, all for the same place
        self.dynamic_alignment = 1
        self.scopes = [_Scope()]

    def open(self):
        self.opened += 1
        self.scopes.append(_Scope((*self.scopes[-1].path, self.opened)))

    def mark(self, label):
        """A label with the scopes around it."""
        return "/".join(map(str, (*self.scopes[-1].path, label)))

    # ---- declarations --------------------------------------------------------------------------------------------

    def variable(self, text):
        """A variable, if the statement declares one."""
        match = VARIABLE.match(text)
        if not match:
            return False
        linkage, space, alignment, bits, name, count, values = match.groups()
        width = int(bits) // 8
        size, alignment = width * int(count or 1), int(alignment or width)
        if space == "shared" and linkage == "extern":
            self.dynamic.append(name)
            self.dynamic_alignment = max(self.dynamic_alignment, alignment)
            return True
        if space == "shared":
            address = round_up(self.shared, alignment)
            self.shared = address + size
        elif space in ("local", "param"):
            space, address = "local", self.place(size, alignment)
        else:
            space, address = "global", len(self.arrays)
            self.arrays.append((name, _contents(values, width).ljust(size, b"\0")))
        self.scopes[-1].names[name] = Symbol(name, space, address)
        return True

    def place(self, size, alignment):
        """The address of new local memory."""
        address = round_up(self.local, alignment)
        self.local = address + size
        return address

    def declare_registers(self, kind, names):
        width = WIDTHS.get(kind) or WIDTHS.get(kind[1:])
        if width is None:
            raise StateError(f"interpret: registers of type .{kind} are not known")
        for name in split(names):
            numbered = re.match(r"(.+)<(\d+)>$", name)
            if numbered:
                self.scopes[-1].ranges[numbered[1]] = width, int(numbered[2])
            else:
                self.scopes[-1].names[name] = self.new_register(width)

    def new_register(self, width):
        self.registers[width] += 1
        return Register(self.registers[width] - 1, width)

    def find(self, name):
        """What a name stands for, or None."""
        prefix = name.rstrip("0123456789")
        for scope in reversed(self.scopes):
            found = scope.names.get(name)
            if found is None and prefix in scope.ranges:
                width, count = scope.ranges[prefix]
                if name != prefix and int(name[len(prefix) :]) < count:
                    found = scope.names[name] = self.new_register(width)
            if found is not None:
                return found
        if name in self.dynamic:
            return Symbol(name, "dynamic", 0)
        return None

    # ---- operands ------------------------------------------------------------------------------------------------

    def operand(self, text):
        found = self.find(text)
        if found is not None:
            return found
        if text[0] == "{":
            return Vector(tuple(self.operand(part) for part in split(text[1:-1])))
        if text[0] == "[":
            return self.address(text[1:-1].strip())
        if text[0] == "!":
            return Negated(self.operand(text[1:]))
        if NUMBER.match(text):
            return Immediate(text)
        if SPECIAL.match(text):
            return Special(text)
        if text == "WARP_SZ":
            return Immediate("32")
        if "|" in text:
            return Pair(*(self.operand(part.strip()) for part in text.split("|")))
        if (match := SUM.match(text)) and isinstance(base := self.operand(match[1]), Symbol):
            return base._replace(offset=int(match[2], 0))
        return text  # a label, a function, "_", or unknown: the translation of the instruction decides

    def address(self, text):
        base, *place = split(text)
        if place:
            return Cell(self.operand(base), self.operand(place[0]).elements)
        match = SUM.match(text)
        if match and NUMBER.match(match[2]):
            return Address(self.operand(match[1]), int(match[2], 0))
        return Address(self.operand(text), 0)


def _contents(values, width):
    """The bytes of an initialiser: whole numbers between braces."""
    if not values:
        return b""
    try:
        numbers = [int(part, 0) for part in split(values.strip().strip("{}"))]
    except ValueError:
        raise StateError(f"interpret: a variable begins with {values}, wants whole numbers") from None
    return b"".join((number % (1 << 8 * width)).to_bytes(width, "little") for number in numbers)
