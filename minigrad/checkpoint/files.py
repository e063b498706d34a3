"""The files of a checkpoint: written whole or not at all, read only when they are whole."""

import contextlib
import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from minigrad_kernels.errors import MinigradError

__all__ = [
    "FORMAT", "VERSION", "CheckpointError", "clean", "clear_partials", "exists", "failing", "find", "index_path",
    "made_folder", "newest", "numbers", "parsed", "read_index", "read_tensors", "reason", "sealed", "tensors_path",
    "verify", "verify_tensors", "write_atomic", "write_tensors",
]  # fmt: skip

FORMAT = "minigrad checkpoint"
VERSION = 1
INDEX = re.compile(r"checkpoint-([0-9]{1,9})\.json")
KINDS = "weights", "training"
TENSORS = re.compile(r"(weights|training)-([0-9]{1,9})\.safetensors")
PARTIAL = ".partial-"  # what an interrupted write leaves behind begins with this
MAX_TEXT_BYTES = 1 << 24  # of an index, and of the header of a file of tensors
CHUNK = 1 << 20


class CheckpointError(MinigradError, ValueError):
    """A checkpoint that is absent, damaged or of something else."""


class Stored(NamedTuple):
    """A file of tensors as an index describes it; tensors is {name: type and shape in words}."""

    sha256: str
    bytes: int
    tensors: dict


@contextlib.contextmanager
def failing(action, path):
    """Turn whatever is wrong with a checkpoint into one CheckpointError."""
    from safetensors import SafetensorError

    wrong = OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError
    try:
        yield
    except CheckpointError:
        raise
    except (*wrong, MinigradError, SafetensorError, MemoryError) as error:
        raise CheckpointError(f"checkpoint: cannot {action} {path}: {reason(error)}") from error


def reason(error):
    """What an error met in a file says, in words."""
    return f"no field {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


# ---- names -------------------------------------------------------------------------------------------------


def index_path(folder, number):
    return Path(folder) / f"checkpoint-{number}.json"


def tensors_path(folder, number, kind):
    """kind     one of KINDS"""
    return Path(folder) / f"{kind}-{number}.safetensors"


def numbers(folder):
    """The numbers of the checkpoints in a folder, the oldest first; they may be damaged."""
    try:
        found = [INDEX.fullmatch(name) for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint: cannot read the folder {folder}: {reason(error)}") from error
    return sorted({int(match[1]) for match in found if match and str(int(match[1])) == match[1]})


def exists(folder):
    """Whether a folder holds a checkpoint; it may still be damaged."""
    return bool(numbers(folder))


# ---- writing -----------------------------------------------------------------------------------------------


def made_folder(folder):
    """Make a folder and those above it, so that their names last."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in new:
        _sync_folder(place.parent)


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


def write_tensors(path, content, tensors):
    """Write a file of tensors; what an index says of it."""
    write_atomic(path, content)
    return Stored(hashlib.sha256(content).hexdigest(), len(content), tensors)._asdict()


def sealed(index):
    """The bytes of an index: JSON whose last field is the SHA-256 of all that stands before it."""
    head = json.dumps(index, indent=1, allow_nan=False).encode().removesuffix(b"\n}")
    return head + _seal(head)


def _seal(head):
    return f',\n "sha256": "{hashlib.sha256(head).hexdigest()}"\n}}\n'.encode()


def clear_partials(folder):
    """Remove what interrupted writes left in a folder, where that is possible; nobody may be writing there."""
    for file in Path(folder).glob(f"{PARTIAL}*"):
        with contextlib.suppress(OSError):
            file.unlink()


def clean(folder, keep):
    """Remove all but the newest, which is whole, and the keep - 1 whole ones before it, where that is possible."""
    *older, newest = numbers(folder)
    kept = {newest}
    for number in reversed(older):
        with contextlib.suppress(CheckpointError):
            if len(kept) < keep and verify(folder, number) is None:
                kept.add(number)
    for file in sorted(folder.iterdir()):  # an index goes before the files that it vouches for: "c" before "t" and "w"
        match = INDEX.fullmatch(file.name) or TENSORS.fullmatch(file.name)
        if match and int(match[match.lastindex]) not in kept:
            with contextlib.suppress(OSError):
                file.unlink()
    clear_partials(folder)


# ---- reading -----------------------------------------------------------------------------------------------


def read_index(folder, number):
    """The bytes of the index of a checkpoint, verified. Errors: CheckpointError if it is absent or damaged"""
    path = index_path(folder, number)
    with failing("load", path):
        if not path.is_file():
            raise CheckpointError(f"checkpoint: {path} is not there")
        if (size := path.stat().st_size) > MAX_TEXT_BYTES:
            raise ValueError(f"it has {size} bytes, want at most {MAX_TEXT_BYTES}")
        content = path.read_bytes()
        head = content[: -len(_seal(b""))]
        if content != head + _seal(head):
            raise ValueError("it is damaged: it does not end in the SHA-256 of what it holds")
        parsed(content)
        return content


def parsed(content):
    """(index, {kind: Stored}) of the bytes of an index."""
    index = _json(content)
    if not isinstance(index, dict) or index["format"] != FORMAT:
        raise ValueError(f"it is not the index of a {FORMAT}")
    if index["version"] != VERSION:
        raise ValueError(f"its version is {index['version']!r}, this release reads version {VERSION}")
    files = {kind: Stored(**index["files"][kind]) for kind in KINDS}
    for kind, stored in files.items():
        if [type(value) for value in stored] != [str, int, dict]:
            raise ValueError(f"what it says of its {kind} is malformed")
    return index, files


def _json(content):
    """Values from JSON in which no name stands twice and every number is one."""

    def unique(pairs):
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the name {max(names, key=names.count)!r} stands there twice")
        return fields

    def number(text):
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:40]} stands there for a number")
        return value

    return json.loads(content, object_pairs_hook=unique, parse_constant=number, parse_float=number)


def newest(folder, read):
    """(number, what read(number) gives, what is wrong with a newer one or None) of the newest that can be read."""
    damage = []
    for number in reversed(numbers(folder)):
        try:
            return number, read(number), f"{damage[0]}; going on from the one before" if damage else None
        except CheckpointError as error:
            damage.append(error)
    raise damage[0] if damage else CheckpointError(f"checkpoint: {folder} holds no checkpoint")


def find(folder):
    """(number of the newest whole checkpoint, what is wrong with the one after it in words, or None).

    Errors  CheckpointError if there is none
    """
    number, _, damage = newest(folder, lambda number: verify(folder, number))
    return number, damage


def _check_size(path, stored, most):
    if most is not None and stored.bytes > most + MAX_TEXT_BYTES:
        raise ValueError(f"{path.name} has {stored.bytes} bytes, want at most {most} and a header")
    if not path.is_file():
        raise ValueError(f"{path.name} is not there")
    if (size := path.stat().st_size) != stored.bytes:
        raise ValueError(f"{path.name} is damaged: it has {size} bytes, want {stored.bytes}")


def _compare(path, stored, digest):
    if digest != stored.sha256:
        raise ValueError(f"{path.name} is damaged: its SHA-256 is {digest}, want {stored.sha256}")


def verify(folder, number):
    """Compare the files of a checkpoint with their SHA-256. Errors: CheckpointError if one is absent or damaged"""
    _, files = parsed(read_index(folder, number))
    with failing("load", index_path(folder, number)):
        for kind, stored in files.items():
            verify_tensors(tensors_path(folder, number, kind), stored)


def verify_tensors(path, stored, most=None):
    """Compare a file of tensors with its SHA-256, in little memory; arguments as those of read_tensors."""
    _check_size(path, stored, most)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(CHUNK):
            digest.update(part)
    _compare(path, stored, digest.hexdigest())


def read_tensors(path, stored, most):
    """The bytes of a file of tensors, verified; `most` is how many bytes its elements may have, None for any."""
    _check_size(path, stored, most)
    content = path.read_bytes()
    _compare(path, stored, hashlib.sha256(content).hexdigest())
    header = int.from_bytes(content[:8], "little")
    if header > min(len(content) - 8, MAX_TEXT_BYTES):
        raise ValueError(f"{path.name} says that its header has {header} bytes, the file has {len(content)}")
    _json(content[8 : 8 + header])
    return content
