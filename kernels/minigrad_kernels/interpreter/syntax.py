"""PTX text to pieces: statements, labels and braces with their lines; and what the operands of a statement can be."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"[^\n]*', re.M)
SECTION = re.compile(r"^[ \t]*\.section[^{]*\{[^}]*\}", re.M)
UNENDED = re.compile(r"^([ \t]*\.(?:version|target|address_size|loc)\b[^\n;]*)$", re.M)
LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)")
FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?(.*)", re.S
)
VARIABLE = re.compile(
    r"(?:\.(visible|extern|weak|common)\s+)*\.(shared|global|const|local|param)\s+(?:\.align\s+(\d+)\s+)?"
    r"\.[bsuf](\d+)\s+([\w$%]+)\s*(?:\[\s*(\d*)\s*\])?\s*(?:=\s*(.*))?$",
    re.S,
)
ARGUMENTS = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.\w+\s+(?:\d+\s+)?)*([\w$]+)(?:\[(\d+)\])?")


class Register(NamedTuple):
    """A register of one width in bytes (1 for predicates): row of the table of registers of that width."""

    row: int
    width: int


class Special(NamedTuple):
    """A register that the hardware fills, such as %tid.x."""

    name: str


class Immediate(NamedTuple):
    text: str


class Symbol(NamedTuple):
    """A variable: its space, and its address there (global: the number of the array; kernel: of the parameter)."""

    name: str
    space: str
    address: int
    offset: int = 0


class Negated(NamedTuple):
    register: Any


class Vector(NamedTuple):
    """Operands side by side, {a, b}, or two destinations, a|b."""

    elements: tuple[Any, ...]


class Address(NamedTuple):
    """[base + offset], or [base, {place, ...}] of a place in what a tensor map describes"""

    base: Any
    offset: int
    place: tuple[Any, ...] = ()


class Piece(NamedTuple):
    kind: str  # statement, label, open, close
    text: str
    line: int


@dataclass
class Function:
    """A kernel ("entry") or a function that kernels call ("func")."""

    kind: str
    name: str
    results: str
    arguments: str
    attributes: str
    body: list[Piece]


def files(text):
    """The numbers of source files and their names."""
    return {int(number): _unescaped(name) for number, name in FILE.findall(text)}


def _unescaped(name):
    """A name between quotes, where a backslash stands before another one, a quote, or a byte as three octal digits."""
    byte = lambda match: bytes([int(match[1], 8)]) if len(match[1]) == 3 else match[1]
    return re.sub(rb"\\([0-7]{3}|.)", byte, name.encode()).decode(errors="replace")


def split(text):
    """Operands: the parts between commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[{}\[\](),]", text):
        mark = match.group()
        if mark == ",":
            if not depth:
                parts.append(text[start : match.start()].strip())
                start = match.end()
        else:
            depth += 1 if mark in "{[(" else -1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _pieces(text) -> Iterator[Piece]:
    start = depth = 0
    line, counted = 1, 0
    for match in re.finditer(r"[;{}]", text):
        mark = match.group()
        content = text[start : match.start()]
        while not depth and (label := LABEL.match(content)):
            line, counted = line + text.count("\n", counted, start), start
            yield Piece("label", label.group(1), line)
            start += label.end()
            content = text[start : match.start()]
        statement = content.strip()
        # A brace after other text is a vector or a list of values, unless a function begins there.
        if depth or (mark == "{" and statement and not FUNCTION.match(statement)):
            depth += {"{": 1, "}": -1}.get(mark, 0)
            continue
        if statement:
            first = start + len(content) - len(content.lstrip())
            line, counted = line + text.count("\n", counted, first), first
            yield Piece("statement", " ".join(statement.split()), line)
        if mark != ";":
            yield Piece("open" if mark == "{" else "close", "", line)
        start = match.end()


def _blank(match):
    """White space over as many lines: the lines keep their numbers."""
    return "\n" * match.group().count("\n") or " "


def functions_and_variables(text):
    """All functions by name, and the statements outside of functions."""
    for pattern in (FILE, COMMENT, SECTION):
        text = pattern.sub(_blank, text)
    text = UNENDED.sub(r"\1;", text)
    functions = {}
    outside, header, body, depth = [], None, [], 0
    for piece in _pieces(text):
        if depth:
            depth += {"open": 1, "close": -1}.get(piece.kind, 0)
            if depth:
                body.append(piece)
            elif header:
                kind, results, name, arguments, attributes = header.groups(default="")
                functions[name] = Function(kind, name, results, arguments, attributes, body)
        elif piece.kind == "open":
            header, body, depth = FUNCTION.match(outside.pop().text) if outside else None, [], 1
        else:
            outside.append(piece)
    return functions, outside
