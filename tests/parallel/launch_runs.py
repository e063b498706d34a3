"""What tests that start ranks share: programs, scripts for ranks, launches that leave nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.cli_runs import environment

MPIEXEC = Path(sys.executable).with_name("mpiexec")
LAUNCH = [sys.executable, "-m", "minigrad", "launch"]
HOST = os.uname().nodename

BEGIN = """
import os, signal, sys, time
rank, attempt, folder = int(os.environ["PMI_RANK"]), int(os.environ["MINIGRAD_ATTEMPT"]), sys.argv[1]
note = lambda name: open(f"{folder}/{name}", "w").close()
"""
END = """
note(f"{attempt}-{rank}-{os.getpid()}-{os.getppid()}")
"""


def started(*words, cwd=None, **variables):
    """A program, in a session of its own, with its output to be read."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([*map(str, words)], cwd=cwd, env=environment() | variables, **options)


def finished(process, seconds=240):
    """(exit code, stdout, stderr), once it has ended; it is killed if it does not."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, err


def script(folder, body, before=""):
    """A script for ranks: after `before`, a piece of code, each notes in the folder who it is, then does `body`."""
    path = Path(folder) / "script.py"
    path.write_text(BEGIN + before + END + body)
    return [str(path), str(folder)]


def pids(folder, attempt="*", ranks=0):
    """[(process, its parent)] of the ranks of an attempt, in their order, once so many have begun."""
    names = lambda: sorted(path.name for path in Path(folder).glob(f"{attempt}-*-*-*"))
    assert wait_for(lambda: len(names()) >= ranks), f"attempt {attempt} has not begun"
    return [tuple(map(int, name.split("-")[2:])) for name in names()]


def launch(folder, *arguments):
    """Run to the end: (exit code, stdout, stderr)."""
    with launched(folder, *arguments) as head:
        return finished(head, 60)


@contextlib.contextmanager
def launched(folder, *arguments):
    """A launch that runs in a folder; at the end it is killed, and so is what it left, which fails the test."""
    with started(*LAUNCH, *arguments, cwd=folder) as head:
        try:
            yield head
        finally:
            if head.poll() is None:
                head.kill()
            left = gone_or_killed(folder)
    assert not left, f"still running: {left}"


def gone_or_killed(folder, seconds=10):
    """The processes of ranks and their parents that have not ended after so many seconds; they are killed."""
    left = lambda: [pid for pair in pids(folder) for pid in pair if alive(pid)]
    wait_for(lambda: not left(), seconds)
    for pid in (found := left()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def alive(pid):
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=20):
    """What the condition gives once it holds, or at the end of the time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value
