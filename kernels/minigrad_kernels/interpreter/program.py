"""A program: the instructions of a kernel in one list, with every name resolved.

Functions that the kernel calls are put in the place of the call; their parameters become places in the thread's local
memory. Variables in shared and local memory get their addresses here.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from ..errors import StateError
from .names import Names, round_up
from .report import Location, source_text
from .syntax import ARGUMENTS, Negated, Symbol, files, functions_and_variables, split

__all__ = ["Instruction", "Program", "parse", "plain_name"]

OPERATION = re.compile(r"(?:@(!?)\s*([\w$%.]+)\s+)?([\w.:]+)\s*(.*)$", re.S)
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
MINOR = ("rn", "rz", "rm", "rp", "ftz", "uni", "weak", "relaxed", "cta", "gpu", "sys")
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
    parts: tuple[str, ...] = field(init=False)

    def __post_init__(self):
        self.parts = tuple(self.opcode.split("."))

    def error(self, what):
        """A StateError that names this instruction and its line."""
        return StateError(f"interpret: {self.text!r} {what} ({self.location})")


@dataclass
class Program:
    """A kernel ready to be translated."""

    name: str
    parameters: list[tuple[str, str]]  # names and types in PTX
    most_threads: int | None
    instructions: list[Instruction]
    tables: dict[str, list[str]]  # of branches: the name of a table and the labels in it
    labels: dict[str, int]
    arrays: list[tuple[str, bytes]]  # of the module in global and constant memory: names and contents
    registers: dict[int, int]  # how many there are of each width
    shared: int  # address of the end of static shared memory; dynamic shared memory begins at or after it
    dynamic: int  # address of dynamic shared memory
    local: int  # address of the end of local memory


class _Linker:
    def __init__(self, text):
        self.files = files(text)
        self.functions, outside = functions_and_variables(text)
        self.names = Names()
        self.instructions = []
        self.labels = {}
        self.tables = {}
        self.calls = []
        self.locations = {}
        self.location = None
        for piece in outside:
            self.names.variable(piece.text)

    # ---- statements ----------------------------------------------------------------------------------------------

    def emit(self, function, bindings, leave):
        """Append the instructions of a function; leave: the label that its ret goes to, None in the kernel itself."""
        if function.name in self.calls:
            raise StateError(f"interpret: {function.name} calls itself; recursion is not known")
        names = self.names
        outer, names.scopes = names.scopes, [names.scopes[0]]
        self.calls.append(function.name)
        names.open()
        names.scopes[-1].names.update(bindings)
        for piece in function.body:
            if piece.kind == "open":
                names.open()
            elif piece.kind == "close":
                names.scopes.pop()
            elif piece.kind == "label":
                last_label = names.mark(piece.text)
                self.labels[last_label] = len(self.instructions)
            elif piece.text.startswith(".branchtargets"):
                self.tables[last_label] = [names.mark(label) for label in split(piece.text.split(None, 1)[1])]
            else:
                self.statement(piece, leave)
        self.calls.pop()
        names.scopes = outer

    def statement(self, piece, leave):
        text = piece.text
        if text.startswith(".loc "):
            self.location = self.source(PLACE.match(text)) or self.location
        elif match := REGISTERS.match(text):
            self.names.declare_registers(*match.groups())
        elif text.startswith((".pragma", ".callprototype")) or (text[0] == "." and self.names.variable(text)):
            pass
        else:
            match = OPERATION.match(text)
            if not match:
                raise StateError(f"interpret: line {piece.line} of the PTX: {text!r} is not known")
            self.operation(piece, match, leave)

    def source(self, match):
        """The location that a .loc names; line 0 is code that no line stands for."""
        file, line, outer_file, outer_line = (int(number or 0) for number in match.groups())
        if not line:
            return None
        key = file, line, outer_file, outer_line
        if key not in self.locations:
            caller = self.line(outer_file, outer_line) if outer_line else None
            self.locations[key] = self.line(file, line, caller)
        return self.locations[key]

    def line(self, file, line, caller=None):
        name = self.files.get(file, "?")
        return Location(name, line, source_text(name, line), caller)

    def operation(self, piece, match, leave):
        negated, guard, opcode, rest = match.groups()
        location = self.location or Location("PTX", piece.line, piece.text)
        guard = guard and self.names.operand(guard)
        guard = Negated(guard) if negated else guard
        root = opcode.split(".")[0]
        if root == "call":
            if guard is not None:
                raise StateError(f"interpret: {piece.text!r}: a call under a predicate is not known ({location})")
            return self.call(rest, location)
        if root == "ret" and leave is not None:
            opcode, operands = "bra", (leave,)
        elif root in ("bra", "brx"):
            labels = split(rest)
            operands = (*(self.names.operand(part) for part in labels[:-1]), self.names.mark(labels[-1]))
        else:
            operands = tuple(self.names.operand(part) for part in split(rest))
        self.instructions.append(Instruction(opcode, guard, operands, location, piece.text, len(self.instructions)))

    def call(self, rest, location):
        parts = split(rest)
        results = parts.pop(0) if parts[0].startswith("(") else "()"
        function = self.functions.get(parts[0])
        if function is None:
            raise StateError(f"interpret: calls {parts[0]}, which the PTX does not define ({location})")
        arguments = parts[1] if len(parts) > 1 else "()"
        bindings = {}
        for declared, given in ((function.results, results), (function.arguments, arguments)):
            for (_, _, name, _), actual in zip(ARGUMENTS.findall(declared), split(given[1:-1]), strict=True):
                bindings[name] = self.names.find(actual)
        leave = f"end of call {len(self.instructions)} to {function.name}"
        saved = self.location
        self.emit(function, bindings, leave)
        self.location = saved
        self.labels[leave] = len(self.instructions)

    # ---- the end -------------------------------------------------------------------------------------------------

    def resolve(self, label):
        """The number of the instruction after a label, looked up from the scope of its use outwards."""
        *path, name = label.split("/")
        while "/".join([*path, name]) not in self.labels:
            if not path:
                raise StateError(f"interpret: the PTX has no label {name}")
            path.pop()
        return self.labels["/".join([*path, name])]

    def program(self):
        kernels = [function for function in self.functions.values() if function.kind == "entry"]
        if len(kernels) != 1:
            raise StateError(f"interpret: the PTX has {len(kernels)} kernels (.entry), wants one")
        kernel = kernels[0]
        found = ARGUMENTS.findall(kernel.arguments)
        parameters = [(name, f"{kind}[{count}]" if count else kind) for _, kind, name, count in found]
        self.emit(kernel, {name: Symbol(name, "kernel", i) for i, (name, _) in enumerate(parameters)}, None)
        limit = re.search(r"\.(?:maxntid|reqntid)\s+([\d, ]+)", kernel.attributes)
        most = math.prod(int(number) for number in limit[1].split(",")) if limit else None
        names = self.names
        labels = {label: self.resolve(label) for label in self._used()}
        dynamic = round_up(names.shared, names.dynamic_alignment)
        return Program(
            kernel.name, parameters, most, self.instructions, self.tables, labels, names.arrays, names.registers,
            names.shared, dynamic, names.local,
        )  # fmt: skip

    def _used(self):
        for instruction in self.instructions:
            if instruction.parts[0] == "bra":
                yield instruction.operands[-1]
        for labels in self.tables.values():
            yield from labels


def plain_name(opcode):
    """An opcode without rounding, cache hints and the like: fma.f32, ld.global.v4.f32."""
    return ".".join(part for part in opcode.split(".") if part not in MINOR and not part.startswith(("L1::", "L2::")))


def parse(text):
    """The Program of PTX text with one kernel.

    Errors  RuntimeError for text that cannot be read
    """
    return _Linker(text).program()
