"""A program: the instructions of a kernel in one list, with every name resolved.

Functions that the kernel calls are put in the place of the call; their parameters become places in the thread's local
memory. Variables in shared and local memory get their addresses here.
"""

import linecache
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import StateError
from . import syntax
from .report import Location
from .syntax import split

# Where shared and local memory begin; lower addresses are out of bounds, so that a forgotten base is a fault.
SHARED_START, LOCAL_START = 0x400, 0x40
WIDTHS = {"pred": 1, "b8": 2, "u8": 2, "s8": 2, "16": 2, "32": 4, "64": 8}
MINOR = ("rn", "rz", "rm", "rp", "ftz", "uni", "weak", "relaxed", "cta", "gpu", "sys")

NUMBER = re.compile(r"[-+]?(?:0[fFdDxX][0-9a-fA-F]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)$")
SUM = re.compile(r"(.+?)\s*\+\s*([-+]?\w+)$")
SPECIAL = re.compile(r"%(?:(?:n?tid|n?ctaid)\.[xyz]|laneid|warpid|dynamic_smem_size|smid|clock(?:64)?|globaltimer)$")
OPERATION = re.compile(r"(?:@(!?)\s*([\w$%.]+)\s+)?([\w.:]+)\s*(.*)$", re.S)
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
PLACE = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?", re.S)


@dataclass
class Instruction:
    """One instruction; location is the line of the kernel's source that it comes from."""

    opcode: str
    guard: Any  # a register, negated or not, or None
    operands: tuple[Any, ...]
    location: Location
    text: str
    number: int = -1

    @cached_property
    def parts(self):
        return tuple(self.opcode.split("."))

    def error(self, what):
        """A StateError that names this instruction and its line."""
        return StateError(f"interpret: {self.text!r} {what} ({self.location})")


class Target(NamedTuple):
    """A label, and the scopes around its use."""

    scopes: tuple[dict[str, Any], ...]
    label: str


class Program:
    """A kernel of PTX text, ready to be translated.

    parameters   names and types in PTX; most_threads: that a block may have, or None
    targets      numbers of the instructions that branches go to; a branch has its own as its operand
    arrays       of the module in global and constant memory: names and contents
    registers    how many there are of each width
    shared       address of the end of static shared memory, local: of local memory; dynamic: where dynamic begins
    """

    def __init__(self, text):
        self.instructions: list[Instruction] = []
        self.targets: set[int] = set()
        self.arrays: list[tuple[str, bytes]] = []
        self.registers = {1: 0, 2: 0, 4: 0, 8: 0}
        self.shared, self.local = SHARED_START, LOCAL_START
        self.files = syntax.files(text)
        self.functions, outside = syntax.functions_and_variables(text)
        self.scopes: list[dict[str, Any]] = [{}]  # names between two braces; labels end with a colon
        self.dynamic_names, self.dynamic_alignment = [], 1  # of dynamic shared memory, all for the same place
        self.calls, self.locations, self.location = [], {}, None
        for piece in outside:
            self.variable(piece.text)
        self.link()

    # ---- declarations ------------------------------------------------------------------------------------------------

    def variable(self, text):
        """Enter a variable, if the statement declares one; whether it does."""
        match = syntax.VARIABLE.match(text)
        if not match:
            return False
        linkage, space, alignment, bits, name, count, values = match.groups()
        width = int(bits) // 8
        size, alignment = width * int(count or 1), int(alignment or width)
        if space == "shared" and linkage == "extern":
            self.dynamic_names.append(name)
            self.dynamic_alignment = max(self.dynamic_alignment, alignment)
            return True
        if space in ("shared", "local", "param"):
            space = "shared" if space == "shared" else "local"
            address = _round_up(getattr(self, space), alignment)
            setattr(self, space, address + size)
        else:
            space, address = "global", len(self.arrays)
            self.arrays.append((name, _contents(values, width).ljust(size, b"\0")))
        self.scopes[-1][name] = syntax.Symbol(name, space, address)
        return True

    def declare_registers(self, kind, names):
        width = WIDTHS.get(kind) or WIDTHS.get(kind[1:])
        if width is None:
            raise StateError(f"interpret: registers of type .{kind} are not known")
        for name in split(names):
            numbered = re.match(r"(.+)<(\d+)>$", name)
            if numbered:
                self.scopes[-1][f"{numbered[1]}<>"] = width, int(numbered[2])
            else:
                self.scopes[-1][name] = self.new_register(width)

    def new_register(self, width):
        self.registers[width] += 1
        return syntax.Register(self.registers[width] - 1, width)

    def find(self, name):
        """What a name stands for, or None."""
        prefix = name.rstrip("0123456789")
        numbered = f"{prefix}<>"
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
            if numbered in scope and name != prefix and int(name[len(prefix) :]) < scope[numbered][1]:
                scope[name] = self.new_register(scope[numbered][0])
                return scope[name]
        return syntax.Symbol(name, "dynamic", 0) if name in self.dynamic_names else None

    # ---- operands ----------------------------------------------------------------------------------------------------

    def operand(self, text):
        found = self.find(text)
        if found is not None:
            return found
        if text[0] == "{":
            return syntax.Vector(tuple(self.operand(part) for part in split(text[1:-1])))
        if text[0] == "[":
            return self.address(text[1:-1].strip())
        if text[0] == "!":
            return syntax.Negated(self.operand(text[1:]))
        if NUMBER.match(text):
            return syntax.Immediate(text)
        if SPECIAL.match(text):
            return syntax.Special(text)
        if text == "WARP_SZ":
            return syntax.Immediate("32")
        if "|" in text:
            return syntax.Vector(tuple(self.operand(part.strip()) for part in text.split("|")))
        if (match := SUM.match(text)) and isinstance(base := self.operand(match[1]), syntax.Symbol):
            return base._replace(offset=int(match[2], 0))
        return text  # a label, a function, "_", or unknown: the translation of the instruction decides

    def address(self, text):
        base, *place = split(text)
        if place:
            return syntax.Address(self.operand(base), 0, self.operand(place[0]).elements)
        match = SUM.match(text)
        if match and NUMBER.match(match[2]):
            return syntax.Address(self.operand(match[1]), int(match[2], 0))
        return syntax.Address(self.operand(text), 0)

    # ---- statements --------------------------------------------------------------------------------------------------

    def emit(self, function, bindings):
        """Append the instructions of a function; `ret` in one that is called goes to the label "return"."""
        if function.name in self.calls:
            raise StateError(f"interpret: {function.name} calls itself; recursion is not known")
        outer, self.scopes = self.scopes, [self.scopes[0], dict(bindings)]
        self.calls.append(function.name)
        for piece in function.body:
            if piece.kind == "open":
                self.scopes.append({})
            elif piece.kind == "close":
                self.scopes.pop()
            elif piece.kind == "label":
                self.scopes[-1][f"{piece.text}:"] = len(self.instructions)
            else:
                self.statement(piece)
        self.calls.pop()
        self.scopes[-1]["return:"] = len(self.instructions)
        self.scopes = outer

    def statement(self, piece):
        text = piece.text
        if text.startswith(".loc "):
            self.location = self.source(PLACE.match(text)) or self.location
        elif match := REGISTERS.match(text):
            self.declare_registers(*match.groups())
        elif text.startswith((".pragma", ".callprototype")) or (text[0] == "." and self.variable(text)):
            pass
        elif match := OPERATION.match(text):
            self.operation(piece, match)
        else:
            raise StateError(f"interpret: line {piece.line} of the PTX: {text!r} is not known")

    def source(self, match):
        """The location that a .loc names; line 0 is code that no line stands for."""
        key = file, line, outer_file, outer_line = tuple(int(number or 0) for number in match.groups())
        if line and key not in self.locations:
            caller = self.line(outer_file, outer_line) if outer_line else None
            self.locations[key] = self.line(file, line, caller)
        return self.locations.get(key)

    def line(self, file, line, caller=None):
        name = self.files.get(file, "?")
        return Location(name, line, linecache.getline(name, line).strip(), caller)

    def operation(self, piece, match):
        negated, guard, opcode, rest = match.groups()
        location = self.location or Location("PTX", piece.line, piece.text)
        guard = guard and self.operand(guard)
        guard = syntax.Negated(guard) if negated else guard
        root = opcode.split(".")[0]
        if root == "call":
            if guard is not None:
                raise StateError(f"interpret: {piece.text!r}: a call under a predicate is not known ({location})")
            return self.call(rest, location)
        if root == "ret" and len(self.calls) > 1:
            opcode, operands = "bra", (Target(tuple(self.scopes), "return"),)
        elif root == "bra":
            operands = (Target(tuple(self.scopes), rest),)
        else:
            operands = tuple(self.operand(part) for part in split(rest))
        number = len(self.instructions)
        self.instructions.append(Instruction(opcode, guard, operands, location, piece.text, number))

    def call(self, rest, location):
        parts = split(rest)
        results = parts.pop(0) if parts[0].startswith("(") else "()"
        function = self.functions.get(parts[0])
        if function is None:
            raise StateError(f"interpret: calls {parts[0]}, which the PTX does not define ({location})")
        arguments = parts[1] if len(parts) > 1 else "()"
        bindings = {}
        for declared, given in ((function.results, results), (function.arguments, arguments)):
            for (_, _, name, _), actual in zip(syntax.ARGUMENTS.findall(declared), split(given[1:-1]), strict=True):
                bindings[name] = self.find(actual)
        saved = self.location
        self.emit(function, bindings)
        self.location = saved

    # ---- the end -----------------------------------------------------------------------------------------------------

    def resolve(self, target):
        """The number of the instruction after a label, looked up from the scope of its use outwards."""
        scopes, name = target
        for scope in reversed(scopes):
            if (found := scope.get(f"{name}:")) is not None:
                return found
        raise StateError(f"interpret: the PTX has no label {name}")

    def link(self):
        kernels = [function for function in self.functions.values() if function.kind == "entry"]
        if len(kernels) != 1:
            raise StateError(f"interpret: the PTX has {len(kernels)} kernels (.entry), wants one")
        (kernel,) = kernels
        found = syntax.ARGUMENTS.findall(kernel.arguments)
        self.name = kernel.name
        self.parameters = [(name, f"{kind}[{count}]" if count else kind) for _, kind, name, count in found]
        self.emit(kernel, {name: syntax.Symbol(name, "kernel", i) for i, (_, _, name, _) in enumerate(found)})
        limit = re.search(r"\.(?:maxntid|reqntid)\s+([\d, ]+)", kernel.attributes)
        self.most_threads = math.prod(int(number) for number in limit[1].split(",")) if limit else None
        self.dynamic = _round_up(self.shared, self.dynamic_alignment)
        for step in self.instructions:
            if step.operands and isinstance(step.operands[0], Target):
                step.operands = (self.resolve(step.operands[0]),)
                self.targets.add(step.operands[0])


def _round_up(number, multiple):
    return -(-number // multiple) * multiple


def _contents(values, width):
    """The bytes of an initialiser: whole numbers between braces."""
    numbers = [int(part, 0) for part in split((values or "").strip().strip("{}"))]
    return b"".join((number % (1 << 8 * width)).to_bytes(width, "little") for number in numbers)


def plain_name(opcode):
    """An opcode without rounding, cache hints and the like: fma.f32, ld.global.v4.f32."""
    return ".".join(part for part in opcode.split(".") if part not in MINOR and not part.startswith(("L1::", "L2::")))
