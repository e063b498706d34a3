"""What surrounds the compilation of a kernel, which happens once on each machine: a line on a terminal tells of it."""

import gc
import sys
import time
from contextlib import contextmanager, suppress

PATIENCE = 1.0  # seconds of compilation before anything is said
WIDTH = 79

_count = 0
_seconds = 0.0


def name_of(function):
    """What a kernel is called where its family matters."""
    return f"{function.__module__.removeprefix('minigrad_kernels.')}.{function.__name__}"


@contextmanager
def compiling(function):
    """The function is compiled within this block."""
    global _count, _seconds
    _count += 1
    start = time.perf_counter()
    shown = _seconds > PATIENCE and sys.stderr and not sys.stderr.closed and sys.stderr.isatty()
    if shown:
        _write("\r" + f"compiling kernels for this machine, once: {_count}, {name_of(function)}"[:WIDTH].ljust(WIDTH))
    try:
        yield
    finally:
        _seconds += time.perf_counter() - start
        if shown:
            _write("\r" + " " * WIDTH + "\r")


@contextmanager
def no_collection():
    """Numba makes millions of objects: to look through them again and again meanwhile costs a tenth of its time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _write(text):
    with suppress(OSError):  # nobody reads it any more: no reason to stop compiling
        sys.stderr.write(text)
        sys.stderr.flush()
