"""What names the PTX of a kernel: its own code, that of the functions it calls, their constants, the compiler's code.

Code counts as a syntax tree: comments, docstrings, blank lines and where a function stands in its file change no key.
PTX that is kept therefore names no file and counts the kernel's lines from 0; `Source.shown` puts in the file and the
lines of today.
"""

import ast
import dis
import enum
import functools
import hashlib
import inspect
import json
import math
import os
import re
import secrets
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

from ...errors import KindError
from ...interpreter import syntax
from . import intrinsics

__all__ = ["Source", "source_of"]

COMPILER = [str(Path(__file__).with_name(name)) for name in ("intrinsics.py", "passes.py", "compiler.py")]
PACKAGES = Path(__file__).parents[3]  # the folder in which the package lies


class Source(NamedTuple):
    """What PTX is named by, and where its lines come from: a key, the kernel's file, the line numbers of its function
    in order. Functions that it calls are inlined.
    """

    key: str
    file: Path
    lines: list[int]

    def kept(self, text):
        """PTX of the compiler as it is kept: the n-th line of the kernel is line n of a file without a name."""
        return _moved(text, self.file, "", dict(zip(self.lines, range(len(self.lines)), strict=True)))

    def shown(self, text):
        """Kept PTX with the lines of source as they are now; nothing of this machine is in names of the package."""
        file = self.file.relative_to(PACKAGES) if self.file.is_relative_to(PACKAGES) else self.file
        return _moved(text, "", file.as_posix(), dict(enumerate(self.lines)))


def _moved(text, before, after, lines):
    """PTX of which one file has another name and other lines."""
    for number, name in syntax.files(text).items():
        if Path(name).absolute() == Path(before).absolute():
            text = re.sub(
                rf"(\.file\s+{number} ).*", lambda match: match[1] + json.dumps(after, ensure_ascii=False), text
            )
            move = lambda match: f"{match[1]}{lines.get(int(match[2]), match[2])}"
            text = re.sub(rf"(\.loc\s+{number} )(\d+)", move, text)
    return text


def source_of(function, options, declared):
    """The Source of a kernel that is compiled with these options.

    declared: when, in seconds. A file that was changed since does not hold what this process runs: the key is then
    one that nobody else has.
    Errors  TypeError if it uses something of which no hash can be taken
    """
    files, file = set(COMPILER), function.__code__.co_filename
    words, lines = _function(function, files)
    parts = [repr(options), words, *map(_compiler_part, COMPILER)]
    if any(declared < os.path.getmtime(file) <= time.time() for file in filter(os.path.exists, files)):
        parts.append(secrets.token_hex())
    return Source(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32], Path(file), lines)


@functools.cache
def _compiler_part(file):
    return repr(_shape(ast.parse(Path(file).read_text(encoding="utf-8")), set()))


def _shape(node, lines):
    """A syntax tree as tuples, the same in every version of Python, without docstrings; its lines go into a set."""
    if isinstance(node, list):
        return [_shape(part, lines) for part in node if not _is_text(part)]
    if not isinstance(node, ast.AST):
        return node
    lines.add(getattr(node, "lineno", 1))
    fields = [(name, _shape(value, lines)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return type(node).__name__, fields


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _function(function, files):
    """(a function and all that it uses, in words; its lines); adds the files of all to a set."""
    code, here = function.__code__, set()
    files.add(code.co_filename)
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        parts = [_shape([tree.args, tree.body], here)]
    except (OSError, SyntaxError, AttributeError):  # typed at a prompt, or a lambda
        parts = [code.co_code, code.co_names, code.co_consts]
    names = _globals(code)
    found = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    found |= inspect.getclosurevars(function).nonlocals
    found |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    found |= {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}
    described = [(name, _described(function.__qualname__, name, found[name], files)) for name in sorted(found)]
    lines = [0, *(code.co_firstlineno - 1 + n for n in sorted(here | {1}))]  # 0: of no statement
    return repr([*parts, len(lines), *described]), lines


def _globals(code):
    """The global names in the code of a function and of those within it."""
    inner = [_globals(part) for part in code.co_consts if inspect.iscode(part)]
    return {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}.union(*inner)


def _described(where, name, value, files):
    """A constant in words."""
    for word in intrinsics.__all__:
        if value is getattr(intrinsics, word):
            return f"intrinsics.{word}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple):
        return repr([*getattr(value, "_fields", ()), *(_described(where, name, part, files) for part in value)])
    if isinstance(value, enum.EnumMeta):
        return repr([(member, value[member].value) for member in value.__members__])
    if hasattr(value, "source"):  # made by inline_ptx
        return value.source
    if value is math:
        return "math"
    function = getattr(value, "py_func", value)
    if inspect.isfunction(function):
        return _function(function, files)[0]
    raise KindError(
        f"{where}: uses {name}, a {type(value).__name__}; wants numbers, tuples, enums and device functions"
    )
