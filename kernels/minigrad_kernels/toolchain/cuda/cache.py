"""Compiled kernels on disk, named by all that they depend on, so that a stale one can never run.

Machine code lies in the user's cache. PTX of every kernel ships with the package: from it the interpreter, and a
driver without a compiler beside it, run kernels where no compiler is installed. The key of a kernel is a hash of the
files that its code comes from, of every constant that it uses, and of the compiler's own files; machine code is also
named by the versions of the tools.
"""

import dis
import enum
import hashlib
import inspect
import json
import linecache
import math
import os
import secrets
import tempfile
import time
from pathlib import Path

from ...errors import KindError
from ..cache import user_cache
from . import compiler, intrinsics

__all__ = ["load", "replace", "save", "ship", "shipped_ptx", "source_key"]

SHIPPED = Path(__file__).parents[2] / "ptx"
COMPILER = ("intrinsics.py", "passes.py", "compiler.py")
CONSTANTS = (bool, int, float, str, type(None))


# ---- keys --------------------------------------------------------------------------------------------------------


def _file(path):
    """The content of a file, or of a notebook's cell, whatever ends its lines; empty for what was typed at a prompt."""
    linecache.checkcache(path)
    return "".join(linecache.getlines(path))


def _described(where, name, value, files):
    """A constant in words; files of functions that it calls are added to `files`."""
    for word in intrinsics.__all__:
        if value is getattr(intrinsics, word):
            return f"intrinsics.{word}"
    if isinstance(value, CONSTANTS):
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


def _globals(code):
    """The global names in the code of a function and of those within it."""
    inner = [_globals(part) for part in code.co_consts if inspect.iscode(part)]
    return {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}.union(*inner)


def _function(function, files):
    code = function.__code__
    files.add(code.co_filename)
    sourceless = code.co_name == "<lambda>" or not _file(code.co_filename)  # many on one line, or typed at a prompt
    parts = [function.__qualname__, code.co_firstlineno] + [code.co_code, code.co_consts] * sourceless
    names = _globals(code)
    found = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    found |= {name: cell.cell_contents for name, cell in cells}
    found |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    found |= {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}
    parts += [(name, _described(function.__qualname__, name, found[name], files)) for name in sorted(found)]
    return repr(parts)


def source_key(function, options, declared):
    """A hash of the source of a kernel, of all that it uses, and of the options that it is compiled with.

    declared: when, in seconds. A file that was changed since does not hold what this process runs: the key is then
    one that nobody else has.
    Errors  TypeError if it uses something of which no hash can be taken
    """
    files = {str(Path(__file__).with_name(name)) for name in COMPILER}
    parts = [repr(options), _function(function, files)]
    parts += sorted(_file(file) for file in files)
    if any(declared < os.path.getmtime(file) <= time.time() for file in files if os.path.exists(file)):
        parts.append(secrets.token_hex())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


# ---- files -------------------------------------------------------------------------------------------------------


def shipped_ptx(name, key):
    """The PTX of a kernel that ships with the package; None if there is none for this key."""
    file = SHIPPED / f"{name}.ptx"
    if not file.exists():
        return None
    first, _, text = file.read_text(encoding="utf-8").partition("\n")
    return text if first == f"// key {key}" else None


def ship(kernel):
    """Write the PTX that ships with the package; says whether the file changed."""
    file = SHIPPED / f"{kernel.name}.ptx"
    text = f"// key {kernel.key}\n{kernel.compile(kernel.architectures[0])}"
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return False
    replace(file, text.encode())
    return True


def replace(file, content):
    """Write a file so that others see either all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.name, delete=False) as temporary:
        try:
            temporary.write(content)
            temporary.close()
            os.chmod(temporary.name, 0o644)
            os.replace(temporary.name, file)
        except BaseException:
            os.unlink(temporary.name)
            raise


def _entry(name, architecture, key):
    """Where the machine code lies, without its ending; "*" for the tools where there is no compiler to ask."""
    tools = "*" if compiler.missing() else hashlib.sha256(compiler.compiler_versions().encode()).hexdigest()[:12]
    return user_cache() / "cuda", f"{name}-{architecture}-{key}-{tools}"


def save(name, architecture, key, binary):
    """Keep machine code. A folder that cannot be written to means no cache, not an error."""
    about = binary._asdict() | {"image": hashlib.sha256(binary.image).hexdigest()}
    try:
        folder, entry = _entry(name, architecture, key)
        replace(folder / f"{entry}.cubin", binary.image)
        replace(folder / f"{entry}.json", json.dumps(about).encode())  # last: its presence says that all is there
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return


def load(name, architecture, key):
    """The machine code kept for this key; None if there is none, or if its file was damaged."""
    try:
        folder, entry = _entry(name, architecture, key)
        for file in sorted(folder.glob(f"{entry}.json")):
            about, image = json.loads(file.read_text()), file.with_suffix(".cubin").read_bytes()
            if about["image"] == hashlib.sha256(image).hexdigest():
                return compiler.Binary(**(about | {"image": image}))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None
    return None
