"""Launch: mpiexec starts the ranks, and starts all of them again when one fails.

Ranks that have lost one of them cannot go on. So an attempt ends with its first failure, and the next one goes on from
the last checkpoint, which is the command's affair.
"""

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from minigrad_kernels.errors import ShapeError

from . import rank
from .rank import FAILED, HARD, with_parent

REFUSED = 2  # exit code of a command that makes no sense, and would make none a second time
SIGNALS = signal.SIGINT, signal.SIGTERM
TICK = 0.1  # seconds between looks at what has happened


def mpiexec():
    """The path of mpiexec: the one of this Python, else the one that a shell finds. Errors: ValueError"""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    path = beside if os.path.exists(beside) else shutil.which("mpiexec")
    if path is None or find_spec("mpi4py") is None:
        missing = "mpiexec" if path is None else "mpi4py"
        raise ShapeError(f'launch: {missing} is not installed; pip install -e ".[mpi]"')
    return path


class Launch:
    """A command on many ranks, as often as it takes.

    words        what Python is to run on each rank: a script or -m MODULE, with arguments
    ranks        how many ranks
    hosts        a:4,b:4 for mpiexec, hosts and how many ranks fit on each; default this host
    timeout      seconds that a rank waits for another
    grace        seconds that ranks have to leave after SIGTERM
    logs         folder for what ranks other than 0 print, in a folder of this job; hosts share it
    """

    def __init__(self, words, ranks, hosts=None, max_restarts=3, timeout=300.0, grace=30.0, logs=None):
        self.words, self.ranks, self.hosts, self.max_restarts = words, ranks, hosts, max_restarts
        self.timeout, self.grace = timeout, grace
        self.name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self.logs = Path(logs or "launch-logs", self.name).absolute()
        self.mpiexec = mpiexec()
        self.job = self.stop = None  # mpiexec, and the first signal
        self.end = math.inf  # when patience with ranks ends

    def run(self):
        """Attempts until one ends well; the exit code: see `minigrad launch --help`."""
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            return next(code for number in itertools.count() if (code := self._attempt(number)) is not None)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _attempt(self, number):
        """Start the ranks and wait for their end; an exit code, or None to try again."""
        folder = self.logs / f"attempt-{number}"
        folder.mkdir(parents=True)
        told = {"MINIGRAD_ATTEMPT": str(number), "MINIGRAD_JOB": self.name, "MINIGRAD_TIMEOUT": f"{self.timeout:g}"}
        command = [self.mpiexec, "-n", str(self.ranks), *(("-hosts", self.hosts) if self.hosts else ())]
        self.job = subprocess.Popen(
            [*command, sys.executable, "-P", rank.__file__, str(folder), *self.words],
            env=os.environ | told,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=with_parent,
        )
        code, notes = self._waited(), _notes(folder)
        if self.stop is not None:
            well = code == 0 or all(note.get("code") in (0, HARD + signal.SIGINT) for note in notes.values())
            self._print(f"stopped by signal {self.stop}" + ("" if well else "; not all ranks left in time"))
            return 0 if well and self.stop == signal.SIGTERM else HARD + self.stop
        if code == 0:
            return 0
        who, refused = _blame(notes, folder, code)
        again, then = False, "it would refuse again" if refused else "no restarts are left"
        if number < self.max_restarts and not refused:
            again, then = True, f"starting again ({number + 1} of {self.max_restarts} restarts)"
        self._print(f"attempt {number}: {who}; {then}; logs: {folder}")
        return None if again else REFUSED if refused else 1

    def _waited(self):
        """The exit code of mpiexec, once it has ended; after a signal the ranks have a while to leave."""
        while self.job.poll() is None and time.monotonic() < self.end:
            time.sleep(TICK)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.job.pid, signal.SIGKILL)  # and what it left
        return self.job.wait()

    def _note(self, number, frame):
        """A signal came: the ranks have a while to leave."""
        if self.stop is None:
            self.stop, self.end = number, time.monotonic() + self.grace
            self._print(f"signal {number}: the ranks are asked to leave, within {self.grace:g} s")
            if self.job is not None:
                self.job.terminate()  # mpiexec passes it on

    def _print(self, text):
        with contextlib.suppress(OSError):  # nobody may be there to read it
            os.write(2, f"launch: {text}\n".encode())


def _notes(folder):
    """{rank: what it noted}; nothing of a rank that did not begin."""
    found = {}
    for path in folder.glob("rank-*.json"):
        with contextlib.suppress(ValueError):
            found[int(path.stem.removeprefix("rank-"))] = json.loads(path.read_text())
    return found


def _blame(notes, folder, code):
    """(who failed and how, whether it was a refusal).

    A rank that was killed; else the first that failed by itself; else the first that was failed by another, and says
    by whom. Others may notice that a rank was killed before its own parent does.
    """
    failed = [number for number in notes if notes[number].get("code")]
    if not failed:
        return f"mpiexec exited with code {code}", False
    number = min(failed, key=lambda rank: (notes[rank]["code"] == FAILED, notes[rank]["code"] > 0, notes[rank]["at"]))
    note, code = notes[number], notes[number]["code"]
    how = note.get("why") or (f"was killed by signal {-code}" if code < 0 else f"exited with code {code}")
    log = folder / f"rank-{number}.log"
    said = log.read_text(errors="replace").split("\n") if "why" not in note and log.exists() else []
    last = next((f" ({line.strip()})" for line in reversed(said) if line.strip()), "")
    return f"rank {number} on {note['host']}: {how}{last}", code == REFUSED
