"""Compiled CPU kernels on disk, in a folder named by everything that they depend on: a stale kernel can never run.

An entry is one file, written whole or not at all. What cannot be read, or is damaged, is compiled again; where nothing
can be written, nothing is kept. Folders that nobody has used for a month are removed.
"""

import contextlib
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

PACKAGE = Path(__file__).parents[1]
# Files and folders of it that code compiled for the CPU cannot reach: no references, nothing of CUDA.
ASIDE = ("reference", "cuda", "interpreter")

# Settings of Numba that change the code it emits.
EMISSION = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX")
DAY = 24 * 3600
KEPT = 30 * DAY


def _home():
    try:
        return Path.home()
    except RuntimeError:  # the user has none: a folder where nothing is found and nothing can be written
        return Path(os.devnull)


def user_cache():
    """The folder for caches of this user, by the convention of the operating system."""
    if os.environ.get("MINIGRAD_CACHE"):
        return Path(os.environ["MINIGRAD_CACHE"]).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = _home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or _home() / ".cache"
    return Path(base).absolute() / "minigrad"


@functools.cache
def _fingerprint():
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
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).parts
        if not any(part.startswith(ASIDE) for part in parts):
            content = file.read_bytes()
            digest.update(f"{'/'.join(parts)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


@functools.cache
def cache_folder():
    """The folder for compiled kernels; None where nothing can be written."""
    try:
        folder = user_cache() / "kernels" / _fingerprint()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if time.time() - folder.stat().st_mtime > DAY:
            os.utime(folder)  # in use: see prune
    except OSError:
        return None
    return folder


@functools.cache
def _content(file):
    """A hash of a source file; empty for the package's own, which the name of the folder stands for."""
    return b"" if Path(file).is_relative_to(PACKAGE) else hashlib.sha256(Path(file).read_bytes()).digest()


def place_of(function, signature):
    """The file for the function compiled for these types; None where there can be none."""
    code, folder = function.__code__, cache_folder()
    try:
        content = _content(code.co_filename)
    except OSError:  # typed at a prompt
        return None
    if folder is None or function.__closure__:  # what a closure holds has no name
        return None
    name = f"{function.__module__}.{function.__qualname__}"
    text = repr((name, code.co_firstlineno, code.co_code, content, str(signature)))
    return folder / f"{function.__name__}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def load(function, signature):
    """What `save` has kept for the function compiled for these types; None if there is nothing whole."""
    place = place_of(function, signature)
    found = place and load_file(place)
    return pickle.loads(found) if found else None


def save(function, signature, kept):
    """Keep this for the function compiled for these types, if it can be."""
    place = place_of(function, signature)
    if place is not None:
        save_file(place, pickle.dumps(kept))
        _prune_once()


def load_file(file):
    """What `save_file` has kept; None if there is nothing whole."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    check, kept = content[:4], content[4:]
    return kept if kept and zlib.crc32(kept) == int.from_bytes(check, "little") else None


def save_file(file, kept):
    """Keep bytes. A folder that cannot be written to means no cache, not an error."""
    with contextlib.suppress(OSError):
        replace(file, zlib.crc32(kept).to_bytes(4, "little") + kept)


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
    with contextlib.suppress(OSError):
        prune(cache_folder().parent, cache_folder())


def prune(folder, own=None, kept=KEPT):
    """Remove the folders of compiled kernels, but for one's own, that no process has begun to use for so many seconds.

    A process that still uses one of them has its code in memory.
    """
    for other in folder.iterdir():
        with contextlib.suppress(OSError):  # another process was first
            if other != own and other.is_dir() and time.time() - other.stat().st_mtime > kept:
                shutil.rmtree(other, ignore_errors=True)
