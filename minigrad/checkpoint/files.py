"""The files of a checkpoint: written whole or not at all, read only when they are whole."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from minigrad_kernels.errors import MinigradError

__all__ = [
    "INDEX", "PARTIAL", "PREVIOUS", "TENSORS", "CheckpointError", "FORMAT", "Packed", "VERSION", "exists", "failing",
    "read", "reason", "write_atomic",
]  # fmt: skip

INDEX, PREVIOUS = "checkpoint.json", "previous.json"
TENSORS = "tensors-{}.safetensors"
PARTIAL = ".partial-"  # what an interrupted write leaves behind begins with this
FORMAT = "minigrad checkpoint"
VERSION = 1
MAX_INDEX_BYTES = 1 << 26


class CheckpointError(MinigradError, ValueError):
    """A checkpoint that is absent, damaged or of something else."""


class Packed(NamedTuple):
    """The files of a checkpoint, read and found whole."""

    text: bytes
    tensors: bytes


def read(folder, previous=False):
    """The files of the checkpoint in a folder, or of the one before it, Packed.

    Errors      CheckpointError if it is absent or damaged
    """
    folder = Path(folder)
    with failing("load", folder):
        return _read(folder, PREVIOUS if previous else INDEX)


def _read(folder, name):
    """The bytes of the index of this name and of its tensors, verified."""
    path = folder / name
    if not path.is_file():
        raise CheckpointError(f"checkpoint: {path} is not there: the folder holds no checkpoint")
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, want at most {MAX_INDEX_BYTES}")
    text = path.read_bytes()
    index = json.loads(text)
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise ValueError(f"{path.name} is not the index of a {FORMAT}")
    if index["version"] != VERSION:
        raise ValueError(f"its version is {index['version']}, this release reads version {VERSION}")
    name = index["tensors"]
    if name != TENSORS.format(index["sha256"][:16]) or Path(name).name != name:
        raise ValueError(f"{path.name} names {name!r} as its tensors")
    packed = (folder / name).read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    if digest != index["sha256"]:
        raise ValueError(f"{name} is damaged: its SHA-256 is {digest}, want {index['sha256']}")
    if "extra" not in index:
        raise ValueError(f"{path.name} has no field 'extra'")
    return Packed(text, packed)


def exists(folder):
    """Whether a folder holds a checkpoint; it may still be damaged."""
    return (Path(folder) / INDEX).is_file()


def write_atomic(path, content):
    """Put bytes into a file so that it holds the old or the new ones at any moment, even without power."""
    path = Path(path)
    partial = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder):
    """Make the names in a folder durable, where the operating system lets folders be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def failing(action, folder):
    """Turn whatever is wrong with a checkpoint into one CheckpointError."""
    from safetensors import SafetensorError

    wrong = (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    )
    try:
        yield
    except CheckpointError:
        raise
    except (*wrong, MinigradError, SafetensorError, MemoryError) as error:
        raise CheckpointError(f"checkpoint: cannot {action} {folder}: {reason(error)}") from error


def reason(error):
    """What an error met in a file says, in words."""
    return f"no field {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
