"""Compiled CPU kernels on disk, in a folder named by everything that they depend on: a stale kernel can never run.

An entry is one file, written whole or not at all. What cannot be read, or is damaged, is compiled again; where nothing
can be written, nothing is kept.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import tempfile
import zlib
from pathlib import Path

from platformdirs import user_cache_path

PACKAGE = Path(__file__).parents[1]
# Files and folders of it that code compiled for the CPU cannot reach: no references, nothing of CUDA.
ASIDE = ("reference", "cuda", "interpreter")

# Settings of Numba that change the code it emits.
EMISSION = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX")


def user_cache():
    """The folder for caches of this user: MINIGRAD_CACHE, else that of the operating system's convention."""
    return Path(os.environ.get("MINIGRAD_CACHE") or user_cache_path("minigrad", False)).absolute()


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


def load_file(file):
    """What `save_file` has kept; None if there is nothing whole."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    check, kept = content[:4], content[4:]
    return kept if kept and zlib.crc32(kept) == int.from_bytes(check, "little") else None


def save_file(file, kept):
    """Keep bytes so that others see all of them or nothing. A folder that cannot be written to is no error."""
    partial = file.with_name(f".{os.getpid()}-{file.name}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(zlib.crc32(kept).to_bytes(4, "little") + kept)
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
