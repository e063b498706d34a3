"""One process at a time compiles an entry: whoever comes second waits for the first, and loads what that has kept.

A claim is a lock on one byte of a file that all processes of the cache share; a hash says which byte. The system takes
it back when its process ends, however that ends, and no forked child inherits it. A process holds one claim at most,
so nobody waits in a circle. Where there are no such locks nobody claims anything, and two may compile the same.
"""

import os
import time
import zlib
from contextlib import contextmanager

from . import progress

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

__all__ = ["Busy", "claim", "held", "possible"]

LOOK = 0.01  # seconds between two looks
PATIENCE = 60.0  # seconds for one entry, after which its process is taken to stand still
BYTES = 1 << 31

possible = fcntl is not None
patient = True  # whether to wait for another process, or to leave the entry to it
_claiming = False


class Busy(Exception):
    """Another process compiles what this one would."""


@contextmanager
def claim(place, function):
    """Within this block no other process compiles the function for the file `place`, as far as claims can tell.

    Waits for another one that does so, or, where this one is not patient, raises Busy.
    """
    global _claiming
    if place is None or _claiming or not possible:
        yield
        return
    file, _claiming = _file(place), True
    try:
        if file is not None:
            _wait(file, zlib.crc32(os.fsencode(place)) % BYTES, function)
        yield
    finally:
        _claiming = False
        if file is not None:
            os.close(file)  # and with it the lock


def held(path):
    """Lock a file for as long as this process lives; whether nobody else had."""
    try:
        return possible and _locked(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), 0)
    except OSError:
        return False


def _file(place):
    try:
        return os.open(place.parent.with_name(".claims"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _locked(file, byte):
    """Whether the lock is ours now, or cannot be had at all."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):  # which of them says that another process has it depends on the system
        return False
    return True


def _wait(file, byte, function):
    begin = time.monotonic()
    try:
        if _locked(file, byte):
            return
        if not patient:
            raise Busy(function.__name__)
        with progress.waiting(function):
            while not _locked(file, byte) and time.monotonic() - begin < PATIENCE:
                time.sleep(LOOK)
    except OSError:  # a file system without locks
        return
