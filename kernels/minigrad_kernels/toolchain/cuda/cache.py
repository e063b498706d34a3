"""Compiled kernels on disk, named by all that they depend on, so that a stale one can never run.

PTX is named by its kernel's key (keys.py), in the user's cache also by the versions of the tools that made it; machine
code by its PTX, the architecture and the linker. An archive has PTX of many kernels, for machines without a compiler: a
wheel may bring one, `MINIGRAD_PTX` names another, or a wheel that has one. It comes before the user's cache.
"""

import functools
import hashlib
import io
import os
import pickle
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from ...errors import StateError
from ..cache import load_file, save_file, user_cache
from . import compiler

ARCHIVE = "minigrad_kernels/ptx.zip"  # in a wheel
SHIPPED = Path(__file__).parents[3] / ARCHIVE


# ---- archives ----------------------------------------------------------------------------------------------------


def pack(file, kernels):
    """Write an archive of the PTX of kernels; what nothing has kept is compiled."""
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for kernel in kernels:
            entry = ZipInfo(f"{kernel.name}-{kernel.key}.ptx")  # of no date: the same kernels make the same file
            archive.writestr(entry, kernel.kept, ZIP_DEFLATED)


def _entries(file):
    """{name: PTX} of an archive, or of the one in a wheel."""
    with ZipFile(file) as found:
        if ARCHIVE in found.namelist():
            return _entries(io.BytesIO(found.read(ARCHIVE)))
        return {name: found.read(name) for name in found.namelist() if name.endswith(".ptx")}


@functools.cache
def _archive(path):
    """The entries of the archive at a path, else of the one in the package, if it has one."""
    try:
        return _entries(path or SHIPPED) if path or SHIPPED.exists() else {}
    except (OSError, BadZipFile) as error:
        raise StateError(f"MINIGRAD_PTX={path}: {error}; wants a wheel of minigrad-engine or its {ARCHIVE}") from error


# ---- the user's cache --------------------------------------------------------------------------------------------


def load_ptx(name, key):
    """PTX, from an archive or the user's cache; None if neither has it."""
    archived = _archive(os.environ.get("MINIGRAD_PTX")).get(f"{name}-{key}.ptx")
    found = archived or _load(f"{name}-{key}-{_tools(0)}.ptx")
    return found and found.decode()


def save_ptx(name, key, text):
    """Keep PTX in the user's cache."""
    save_file(_folder() / f"{name}-{key}-{_tools(0)}.ptx", text.encode())


def load_code(name, architecture, ptx):
    """The Binary that was made of this PTX; None if there is none, or if its file was damaged."""
    found = _load(_code(name, architecture, ptx))
    return found and compiler.Binary(*pickle.loads(found))


def save_code(name, architecture, ptx, binary):
    """Keep machine code in the user's cache."""
    save_file(_folder() / _code(name, architecture, ptx), pickle.dumps(tuple(binary)))


def _code(name, architecture, ptx):
    return f"{name}-{architecture}-{hashlib.sha256(ptx.encode()).hexdigest()[:32]}-{_tools(1)}.cubin"


def _tools(which):
    """A short hash of versions; where there is no compiler to ask, "*" for any."""
    if compiler.missing():
        return "*"
    return hashlib.sha256(compiler.compiler_versions()[which].encode()).hexdigest()[:12]


def _folder():
    return user_cache() / "cuda"


def _load(entry):
    files = sorted(_folder().glob(entry))
    return load_file(files[0]) if files else None
