"""What tests that start ranks share: programs, launches that leave nothing behind, scripts for ranks, who still runs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli_runs import environment

MPIEXEC = Path(sys.executable).with_name("mpiexec")
LAUNCH = [sys.executable, "-m", "minigrad", "launch"]
HOST = os.uname().nodename

BEGIN = """
import json, os, signal, sys, time
rank, attempt, folder = int(os.environ["PMI_RANK"]), int(os.environ["MINIGRAD_ATTEMPT"]), sys.argv[1]
record = {"pid": os.getpid(), "parent": os.getppid(), "environment": dict(os.environ)}
def note(name, value):
    with open(f"{folder}/{name}.part", "w") as file:
        json.dump(value, file)
    os.replace(f"{folder}/{name}.part", f"{folder}/{name}")
"""
END = """
note(f"{attempt}-{rank}", record)
"""


def started(*words, cwd=None, **variables):
    """A program, in a session of its own, with its output to be read."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([*map(str, words)], cwd=cwd, env=environment() | variables, **options)


def finished(process, seconds=240):
    """(exit code, stdout, stderr), once it has ended; it is killed if it does not."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"not done after {seconds} s:\n{out}\n{err}")
    return process.returncode, out, err


def script(folder, body, before=""):
    """A script for ranks: after `before`, a piece of code, each notes in the folder who it is, then does `body`."""
    path = Path(folder) / "script.py"
    path.write_text(BEGIN + before + END + body)
    return [str(path), str(folder)]


def records(folder, attempt, ranks=0):
    """{rank: what it noted} of an attempt, once so many ranks have."""
    paths = lambda: [path for path in Path(folder).glob(f"{attempt}-*") if path.suffix != ".part"]
    assert wait_for(lambda: len(paths()) >= ranks), f"attempt {attempt} has not begun"
    return {int(path.name.split("-")[1]): json.loads(path.read_text()) for path in paths()}


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
            notes = [note for attempt in range(10) for note in records(folder, attempt).values()]
            left = gone_or_killed({note[name] for note in notes for name in ("pid", "parent")})
    assert not left, f"still running: {left}"


def gone_or_killed(pids, seconds=10):
    """Those that have not ended after so many seconds; they are killed."""
    wait_for(lambda: not any(map(alive, pids)), seconds)
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


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
