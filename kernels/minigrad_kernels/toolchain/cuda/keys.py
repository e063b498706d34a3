"""What names the PTX of a kernel: its source, that of functions it calls, their constants, the compiler."""

import dis
import enum
import hashlib
import inspect
import math
import os
import secrets
import textwrap
import time
from pathlib import Path

from ...errors import KindError
from . import intrinsics

COMPILER = [str(Path(__file__).with_name(name)) for name in ("intrinsics.py", "compiler.py")]


def key_of(function, options, declared):
    """A hash of all that the compiled code of a kernel depends on but the versions of the tools.

    options: what it is compiled with; declared: when, in seconds. A file that was changed since does not hold what this
    process runs: the key is then one that nobody else has.
    Errors  TypeError if it uses something of which no hash can be taken
    """
    files = set(COMPILER)
    parts = [repr(options), _function(function, files), *(Path(file).read_text(encoding="utf-8") for file in COMPILER)]
    if any(declared < os.path.getmtime(file) <= time.time() for file in filter(os.path.exists, files)):
        parts.append(secrets.token_hex())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _function(function, files):
    """A function and all that it uses, in words; adds the files of all to a set."""
    code = function.__code__
    files.add(code.co_filename)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except OSError:  # typed at a prompt
        text = ""
    if not text or code.co_name == "<lambda>":  # which may share its line with others
        text += repr((code.co_code, code.co_names, code.co_consts))
    names = _globals(code)
    found = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    found |= inspect.getclosurevars(function).nonlocals
    found |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    described = [(name, _described(function.__qualname__, name, found[name], files)) for name in sorted(found)]
    return repr([text, code.co_firstlineno, *described])  # the line: PTX names those of the source


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
        return _function(function, files)
    raise KindError(
        f"{where}: uses {name}, a {type(value).__name__}; wants numbers, tuples, enums and device functions"
    )
