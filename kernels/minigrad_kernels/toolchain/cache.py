"""Compiled CPU kernels on disk, in a folder named by everything that they depend on: a stale kernel can never run.

An entry is one file, written whole or not at all. What cannot be read, or is damaged, is compiled again; where nothing
can be written, nothing is kept. Folders that nobody has used for a month are removed.
"""

import functools
import hashlib
import os
import pickle
import platform
import shutil
import sys
import tempfile
import time
import zlib
from pathlib import Path

__all__ = ["cache_folder", "fingerprint", "load", "place_of", "prune", "replace", "save", "user_cache"]

# Settings of Numba that change the code it emits.
EMISSION = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX")
DAY = 24 * 3600
KEPT = 30 * DAY
REMOVED = ".removed-"


def user_cache():
    """The folder for caches of this user, by the convention of the operating system."""
    if os.environ.get("MINIGRAD_CACHE"):
        return Path(os.environ["MINIGRAD_CACHE"]).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "minigrad"


def _sources():
    """The source files that code compiled for the CPU can reach: no references, nothing of CUDA."""
    root = Path(__file__).parents[1]
    aside = ("reference", "cuda", "interpreter")  # files and folders
    return sorted(
        file for file in root.rglob("*.py") if not any(part.startswith(aside) for part in file.relative_to(root).parts)
    )


@functools.cache
def fingerprint():
    """A short hash of the kernel sources, the versions of the tools, and the CPU."""
    import llvmlite
    import llvmlite.binding
    import numba
    import numpy as np
    from numba.core import config

    cpu = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    tools = (platform.python_version(), np.__version__, numba.__version__, llvmlite.__version__)
    tools += (os.environ.get("MINIGRAD_TILES"),)
    emission = [getattr(config, name, None) for name in EMISSION]
    digest = hashlib.sha256(repr((tools, platform.machine(), cpu, features, emission)).encode())
    root = Path(__file__).parents[1]
    for file in _sources():
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


@functools.cache
def cache_folder():
    """The folder for compiled kernels; None where nothing can be written."""
    try:
        folder = user_cache() / "kernels" / fingerprint()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if time.time() - folder.stat().st_mtime > DAY:
            os.utime(folder)  # in use: see prune
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    return folder


@functools.cache
def _content(file):
    """A hash of a source file; empty for the package's own, which the name of the folder stands for."""
    if Path(file).is_relative_to(Path(__file__).parents[1]):
        return b""
    return hashlib.sha256(Path(file).read_bytes()).digest()


def place_of(function, signature):
    """The file for the function compiled for these types; None where there can be none."""
    code = function.__code__
    try:
        content = None if function.__closure__ else _content(code.co_filename)
    except OSError:  # typed at a prompt
        content = None
    if content is None:  # nothing to name it by
        return None
    name = f"{function.__module__}.{function.__qualname__}"
    text = repr((name, code.co_firstlineno, code.co_code, content, str(signature)))
    folder = cache_folder()
    key = hashlib.sha256(text.encode()).hexdigest()
    return folder and folder / f"{function.__name__}-{key[:32]}"


def load(function, signature):
    """What `save` has kept for the function compiled for these types; None if there is nothing whole."""
    try:
        content = place_of(function, signature).read_bytes()
        check, kept = content[:4], content[4:]
        return pickle.loads(kept) if kept and zlib.crc32(kept) == int.from_bytes(check, "little") else None
    except (AttributeError, OSError):  # AttributeError: no place
        return None


def save(function, signature, kept):
    """Keep this for the function compiled for these types, if it can be."""
    try:
        place = place_of(function, signature)
        if place is None:
            return
        content = pickle.dumps(kept)
        replace(place, zlib.crc32(content).to_bytes(4, "little") + content)
        _prune_once()
    except OSError:
        return


def replace(file, content):
    """Write a file so that others see either all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as temporary:
        try:
            temporary.write(content)
            temporary.close()
            os.chmod(temporary.name, 0o644)
            os.replace(temporary.name, file)
        except BaseException:
            os.unlink(temporary.name)
            raise


@functools.cache
def _prune_once():
    prune()


def prune(folder=None, kept=KEPT):
    """Remove the folders of compiled kernels that no process has begun to use for so many seconds.

    A folder is renamed before it is emptied, so no process reads half of one; a process that still
    uses it has its code in memory.
    """
    own = cache_folder() if folder is None else None
    folder = folder or own.parent
    for other in folder.iterdir():
        try:
            if other == own or not other.is_dir() or time.time() - other.stat().st_mtime < kept:
                continue
            if not other.name.startswith(REMOVED):
                other = other.rename(other.with_name(f"{REMOVED}{os.getpid()}-{other.name}"))
            shutil.rmtree(other, ignore_errors=True)
        except OSError:  # another process was first
            continue
