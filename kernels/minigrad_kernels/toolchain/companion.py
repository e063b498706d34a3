"""A second process that compiles ahead what a training will need, while this one compiles what it needs now.

It is started where the first kernel has to be compiled, and only by a program that has made an optimiser. What it is
told by a pipe, the names of the layers made and of the kernels compiled so far, says what will come: see ahead.py.
What it makes lies in the cache. It ends when this process ends, by the end of the pipe, or when it has had nothing to
do for a while. Without it all goes the same way, only later: MINIGRAD_AHEAD=0 switches it off.
"""

import atexit
import contextlib
import os
import sys
import threading
from pathlib import Path

from . import cpu
from .cache import cache_folder
from .claims import possible

__all__ = ["SWITCH", "TRAINING", "another", "expect", "tell"]

SWITCH = "MINIGRAD_AHEAD"
TRAINING = "training"
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from minigrad_kernels.ahead import main; main(sys.argv[1])"
FAREWELL = 2.0  # seconds that the end of this process waits for the other one

_expected: dict = {}  # names, in order, that it has not been told
_made: set = set()  # names of layers and optimisers
_companion = None


def expect(*names):
    """A program has made a layer or an optimiser of this name; TRAINING says that it will train.

    Of the second one on, the companion hears a name of its own: see `another`.
    """
    if _companion is not _NOBODY:
        _expected.update(dict.fromkeys(another(name) if name in _made else name for name in names))
        _made.update(names)


def another(name):
    """What a second layer of this name is called."""
    return f"another {name}"


def tell(name):
    """An entry of this name is about to be compiled here."""
    global _companion
    _expected[name] = None
    if _companion is None and TRAINING in _expected:
        _companion = _start() if _allowed() else _NOBODY
    if _companion:
        names = list(_expected)  # which other threads may add to meanwhile
        _companion.tell(names)
        for known in names:
            del _expected[known]


class _Companion:
    """Its process, the pipe to it, and a thread that waits for its end."""

    def __init__(self, number, pipe):
        self.number, self.pipe, self.lock = number, pipe, threading.Lock()
        self.reaper = threading.Thread(target=self._reap, daemon=True, name="minigrad-companion")
        self.reaper.start()

    def tell(self, names):
        with self.lock, contextlib.suppress(OSError):  # it is gone, or does not listen
            if self.pipe is not None:
                os.write(self.pipe, "".join(f"{name}\n" for name in names).encode())

    def leave(self):
        """Close the pipe, which ends the other process."""
        with self.lock:
            if self.pipe is not None:
                os.close(self.pipe)
            self.pipe = None

    def _reap(self):
        with contextlib.suppress(OSError):
            os.waitpid(self.number, 0)
        self.leave()

    def end(self):
        self.leave()
        self.reaper.join(FAREWELL)


_NOBODY = False


def _allowed():
    """Whether there is a CPU for it, a place where it can leave what it makes, and a Python to run it."""
    can = possible and hasattr(os, "posix_spawn") and "python" in Path(sys.executable or "").name.lower()
    return can and os.environ.get(SWITCH) != "0" and cpu.spare() and cache_folder() is not None


def _start():
    inside, outside = os.pipe()
    os.set_blocking(outside, False)
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    files = [(os.POSIX_SPAWN_DUP2, inside, 0), *nothing]
    command = [sys.executable, "-c", PROGRAM, str(cache_folder()), *map(str, sys.path)]
    try:
        number = os.posix_spawn(sys.executable, command, os.environ | {SWITCH: "0"}, file_actions=files)
    except OSError:
        os.close(outside)
        return _NOBODY
    finally:
        os.close(inside)
    companion = _Companion(number, outside)
    atexit.register(companion.end)
    return companion


def _after_fork():
    """A forked child has no companion, and does not keep that of its parent alive."""
    global _companion
    if _companion:
        atexit.unregister(_companion.end)
        _companion.lock = threading.Lock()  # another thread of the parent may have had it
        _companion.leave()
    _companion = _NOBODY


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
