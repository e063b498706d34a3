"""One rank as a process, in a session of its own: it is killed with all that it started."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque

from .guard import kill_group

__all__ = ["CANNOT_START", "Process", "last_lines", "words"]

CANNOT_START = 127  # what shells report for a command that cannot be run
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
TAIL_BYTES = 1 << 14
KILL_SECONDS = 5.0  # that the system may take to end a killed process


class Process:
    """A command that runs.

    log       the file for its output; None leaves that to whoever started this process
    watch     a descriptor for it to inherit, or None
    Errors    OSError if it cannot be started
    """

    def __init__(self, command, environment, folder, log=None, watch=None):
        self.log = log
        self.began = time.monotonic()
        output = None
        if log is not None:
            os.makedirs(os.path.dirname(log), exist_ok=True)
            output = open(log, "wb")
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=() if watch is None else (watch,),
                preexec_fn=_die_with_parent(),
            )
        finally:
            if output is not None:
                output.close()

    @property
    def group(self):
        """The number of its process group."""
        return self._process.pid

    def poll(self):
        """Its exit code, negative for a signal, or None; once it has ended, what it started is killed too."""
        code = self._process.poll()
        if code is not None:
            self.kill()
        return code

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """End it and all that it started, also where it is stopped."""
        kill_group(self.group)

    def wait(self):
        """Return once it has ended, or cannot be ended: one that hangs in a driver must not hold up the others."""
        try:
            self._process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"launch: process {self._process.pid} does not end although it was killed", file=sys.stderr)


def _die_with_parent():
    """What a child does before it becomes the command, so that Linux kills it when its parent is gone.

    The parent must call this in a thread that lives as long as the process: the system means the thread.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare():
        prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it went before the system knew
            os._exit(CANNOT_START)

    return prepare


def words(code):
    """What an exit code means, to follow the name of a process."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


def last_lines(path, count=20):
    """The last lines of a text file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            lines = deque(file.read().decode(errors="replace").splitlines(), count)
    except OSError:
        return ""
    return "\n".join(lines)
