"""Whether the host has room for an array, asked before a large one is made.

Linux promises more memory than there is and ends the process that writes to it; a message does less harm.
"""

import contextlib
import math
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import OutOfMemory

__all__ = ["check_room", "free_bytes", "naming", "refuse", "refuse_memory", "room"]

LARGE = 1 << 28  # bytes from which on the host is asked, which takes a fraction of the time of writing as many
MEMINFO, GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
ADDRESSES = 1 << 62  # bytes that no array reaches, whatever the machine


def refuse(wanted, free=None):
    """Raise that these bytes are more than there are."""
    have = "" if free is None else f", but {free:,} are free"
    raise OutOfMemory(f"the host is out of memory: wanted {wanted:,} bytes{have}; use a smaller shape or batch")


def room(shape, dtype):
    """The bytes of an array of this shape, which some address can reach; empty dimensions count as one, as in NumPy.

    Errors  MemoryError
    """
    nbytes = math.prod([size or 1 for size in shape]) * np.dtype(dtype).itemsize
    if nbytes >= ADDRESSES:
        refuse(nbytes)
    return nbytes


def check_room(shape, dtype):
    """Raise MemoryError if an array of this shape is larger than what the host has left."""
    nbytes = room(shape, dtype)
    if nbytes >= LARGE and 0 not in shape and nbytes > (free := free_bytes()):
        refuse(nbytes, free)


def refuse_memory(op, error):
    """Raise a MemoryError, which may be one of NumPy's, with the name of the op that met it."""
    text = str(error) or "the host is out of memory; use a smaller shape or batch"
    raise OutOfMemory(text if text.startswith(f"{op}: ") else f"{op}: {text}") from error


@contextlib.contextmanager
def naming(op):
    """A context, or a decorator, within which a MemoryError says which op met it."""
    try:
        yield
    except MemoryError as error:
        refuse_memory(op, error)


def free_bytes():
    """Bytes that the host can still give: by Linux's estimate, within the limit of the container; else any number."""
    try:
        rows = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        free = sum(int(rows[name].split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        return ADDRESSES
    try:
        most, used = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        pages = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # "max": no limit
        return free
    return min(free, most - used + sum(int(pages[f"{kind}_file"]) for kind in ("inactive", "active")))
