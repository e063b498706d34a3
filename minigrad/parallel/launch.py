"""Launch: mpiexec starts the ranks, and starts all of them again when one fails.

Ranks that have lost one of them cannot go on. So an attempt ends with its first failure, and the next one goes on from
the last checkpoint, which is the command's affair.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

from minigrad_kernels.errors import ShapeError

from . import rank
from .rank import FAILED, HARD, with_parent

__all__ = ["Launch", "fitting", "parse_hosts"]

REFUSED = 2  # exit code of a command that makes no sense, and would make none a second time
SIGNALS = signal.SIGINT, signal.SIGTERM
ONCE = 1.0  # seconds in which a signal that comes again is the same one: some send it to a process and its group
TICK = 0.1  # seconds between looks at what has happened
PROBE = 30.0  # seconds in which a host has to start a process
BANNER = re.compile(rb"^\n?=+\n=   BAD TERMINATION", re.MULTILINE)  # how MPICH says that a process ended badly
LINE = re.compile(rb"^\n?(=+\n?)?\Z", re.MULTILINE)  # what may become it


def parse_hosts(text):
    """[(name, how many ranks fit)] of a:4,b:4; one fits where no number is given. Errors: ValueError"""
    hosts = []
    for part in text.split(","):
        name, _, count = part.partition(":")
        if not name or name in dict(hosts) or not (count or "1").isdecimal() or not int(count or 1):
            raise ShapeError(f"launch: --hosts has {part!r}, wanted NAME or NAME:RANKS, each host once")
        hosts.append((name, int(count or 1)))
    return hosts


def fitting(ranks, places, least=1):
    """The largest number of ranks that fits into so many places and can take the shards of `ranks`; None if none can.

    Shards are dealt out evenly, a power of two to each rank; or all of them to one.
    """
    halves = itertools.takewhile(lambda count: count >= 1, (ranks / 2**k for k in itertools.count()))
    sizes = [int(count) for count in halves if count == int(count)] + [1]
    return next((size for size in sizes if least <= size <= places), None)


def mpiexec():
    """The path of mpiexec: the one of this Python, else the one that a shell finds. Errors: ValueError"""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    path = beside if os.path.exists(beside) else shutil.which("mpiexec")
    if path is None or find_spec("mpi4py") is None:
        missing = "mpiexec" if path is None else "mpi4py"
        raise ShapeError(f"launch: {missing} is not installed; pip install 'minigrad-engine[mpi]'")
    return path


class Launch:
    """A command on many ranks, as often as it takes.

    words        what Python is to run on each rank: a script or -m MODULE, with arguments
    ranks        how many ranks
    hosts        pairs (name, ranks that fit) or None for this host
    min_ranks    with how many ranks it may go on where a host is gone
    timeout      seconds that a rank waits for another, from its second step on
    grace        seconds that ranks have to leave after SIGTERM
    logs         folder for what ranks other than 0 print; hosts share it
    """

    def __init__(self, words, ranks, hosts=None, max_restarts=3, min_ranks=None, timeout=30.0, grace=30.0, logs=None):
        self.words, self.ranks, self.hosts, self.max_restarts = words, ranks, hosts, max_restarts
        self.least, self.timeout, self.grace = min_ranks or ranks, timeout, grace
        self.name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self.logs = os.path.abspath(logs or os.path.join("launch-logs", self.name))
        self.mpiexec = mpiexec()
        said = subprocess.run([self.mpiexec, "--version"], capture_output=True, text=True).stdout
        self.is_open_mpi = "Open MPI" in said or "prte" in said.lower()
        self.stop = self.stopped = self.stop_at = None  # the first signal, when, and when patience with ranks ends

    def run(self):
        """Attempts until one ends well; the exit code: see `minigrad launch --help`."""
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            for number in itertools.count():
                if (size := self._room(number)) is None:
                    return 1 if self.stop is None else HARD + self.stop
                if (code := self._attempt(number, size)) is not None:
                    return code
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ---- one attempt ---------------------------------------------------------------------------------------------

    def _attempt(self, number, size):
        """Start the ranks and wait for their end; an exit code, or None to try again."""
        folder, began = os.path.join(self.logs, f"attempt-{number}"), time.monotonic()
        os.makedirs(folder, exist_ok=True)
        for stale in _notes(folder, self.ranks):  # of another job with the same logs, whose logs stay
            os.remove(os.path.join(folder, f"rank-{stale}.json"))
        variables = {
            "MINIGRAD_ATTEMPT": str(number),
            "MINIGRAD_JOB": self.name,
            "MINIGRAD_TIMEOUT": f"{self.timeout:g}",
        }
        command = self._command(size, variables, [sys.executable, "-P", rank.__file__, folder, *self.words])
        with subprocess.Popen(
            command, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, preexec_fn=with_parent,
        ) as job:  # fmt: skip
            readers = [threading.Thread(target=_pass_on, args=pair) for pair in ((job.stdout, 1), (job.stderr, 2))]
            for reader in readers:
                reader.start()
            self._wait(job)
            for reader in readers:
                reader.join()
        notes, seconds = _notes(folder, size), time.monotonic() - began
        if self.stop is not None:
            well = job.returncode == 0 or all(note.get("code") in (0, HARD + signal.SIGINT) for note in notes.values())
            self._print(f"stopped by signal {self.stop}" + ("" if well else "; not all ranks left in time"))
            return HARD + self.stop if self.stop == signal.SIGINT or not well else 0
        if job.returncode == 0:
            return 0
        who, refused = _blame(notes, folder, job.returncode)
        again = number < self.max_restarts and not refused
        then = "it would refuse again" if refused else "no restarts are left"
        if again:
            then = f"starting again ({number + 1} of {self.max_restarts} restarts)"
        self._print(f"attempt {number}: {who} after {seconds:.1f} s; {then}; logs: {folder}")
        return None if again else REFUSED if refused else 1

    def _command(self, size, variables, words):
        hosts = ",".join(f"{name}:{count}" for name, count in self.hosts or ())
        command = [self.mpiexec, "-n", str(size)]
        if self.is_open_mpi:
            command += ["--oversubscribe", *(word for name in variables for word in ("-x", name))]
        if hosts:
            command += ["--host" if self.is_open_mpi else "-hosts", hosts]
        return [*command, *words]

    def _wait(self, job):
        """Until mpiexec ends; after a signal for so long that the ranks can leave."""
        told = False
        while job.poll() is None:
            if self.stop is not None and not told:
                told = True
                self._print(f"signal {self.stop}: the ranks are asked to leave; once more to end them at once")
                job.terminate()  # mpiexec passes it on
            if self.stop is not None and time.monotonic() > self.stop_at:
                break
            time.sleep(TICK)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # and what it left
        job.wait()

    def _room(self, number):
        """How many ranks to start: all, or after a failure as many as fit on the hosts that answer; None if too few."""
        if number == 0 or not self.hosts:
            return self.ranks
        limit = time.monotonic() + max(PROBE, self.timeout)
        while self.stop is None:
            there = [host for host in self.hosts if self._answers(host[0])]
            size = fitting(self.ranks, sum(count for _, count in there), self.least)
            if size is not None:
                self.hosts = there
                return size
            if time.monotonic() > limit:
                gone = ", ".join(name for name, count in self.hosts if (name, count) not in there)
                self._print(f"gave up: no answer from {gone}, and {self.least} ranks are wanted")
                return None
            time.sleep(TICK)
        return None

    def _answers(self, host):
        flag = "--host" if self.is_open_mpi else "-hosts"
        command = [self.mpiexec, flag, host, "-n", "1", "true"]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _note(self, number, frame):
        now = time.monotonic()
        if self.stop is None:
            self.stop, self.stopped, self.stop_at = number, now, now + self.grace
        elif now - self.stopped > ONCE:
            self.stop_at = now

    def _print(self, text):
        _write(2, f"launch: {text}\n".encode())


def _pass_on(stream, to):
    """Write what comes from mpiexec to a descriptor, up to MPICH's words on a bad end."""
    held = b""  # such words, and what may become them when more comes
    while chunk := os.read(stream.fileno(), 1 << 16):
        chunk = held + chunk
        begun = BANNER.search(chunk) or LINE.search(chunk)
        held = chunk[begun.start() :] if begun else b""
        _write(to, chunk[: len(chunk) - len(held)])
    if not BANNER.search(held):
        _write(to, held)


def _write(to, text):
    with contextlib.suppress(OSError):  # nobody may be there to read it
        os.write(to, text)


def _notes(folder, size):
    """{rank: what it noted}; nothing of a rank that did not begin."""
    found = {}
    for number in range(size):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, f"rank-{number}.json")) as file:
            found[number] = json.load(file)
    return found


def _blame(notes, folder, code):
    """(who failed and how, whether it was a refusal).

    The first rank that failed by itself; else the first that was failed by another, and says by whom.
    """
    failed = sorted((note["at"], number) for number, note in notes.items() if note.get("code"))
    if not failed:
        return f"mpiexec exited with code {code}", False
    own = [number for _, number in failed if notes[number]["code"] != FAILED]
    number = own[0] if own else failed[0][1]
    note, code = notes[number], notes[number]["code"]
    how = note.get("why") or (f"was killed by signal {-code}" if code < 0 else f"exited with code {code}")
    said = "" if "why" in note else _last_line(os.path.join(folder, f"rank-{number}.log"))
    return f"rank {number} on {note['host']}: {how}{said and f' ({said})'}", code == REFUSED


def _last_line(path):
    """The last line of a log; empty where there is none."""
    try:
        with open(path, errors="replace") as file:
            return next((line.strip() for line in reversed(file.readlines()) if line.strip()), "")
    except OSError:
        return ""
