"""What the tests of `minigrad launch` share: scripts for ranks, launches that leave nothing behind, who still runs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli_runs import environment

LAUNCH = [sys.executable, "-m", "minigrad", "launch"]

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


def script(folder, body, before=""):
    """A script for ranks: after `before`, a piece of code, each notes in the folder who it is, then does `body`."""
    path = Path(folder) / "script.py"
    path.write_text(BEGIN + before + END + body)
    return [str(path), str(folder)]


def records(folder, attempt):
    """{rank: what it noted} of an attempt."""
    found = {}
    for path in Path(folder).glob(f"{attempt}-*"):
        if path.suffix != ".part":
            found[int(path.name.split("-")[1])] = json.loads(path.read_text())
    return found


def launch(folder, *arguments, seconds=60):
    """Run to the end: (exit code, stdout, stderr)."""
    with launched(folder, *arguments) as head:
        out, err = head.communicate(timeout=seconds)
    return head.returncode, out, err


@contextlib.contextmanager
def launched(folder, *arguments):
    """A launch that runs; at the end it is killed, and so is what it left, which fails the test."""
    command = [*LAUNCH, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment(), start_new_session=True, **pipes) as head:
        try:
            yield head
        finally:
            if head.poll() is None:
                head.kill()
            left = gone_or_killed(processes(folder))
    assert not left, f"still running: {left}"


def processes(folder):
    """The processes of all ranks and of their parents that were noted in the folder."""
    notes = [note for attempt in range(10) for note in records(folder, attempt).values()]
    return {note[name] for note in notes for name in ("pid", "parent")}


def gone_or_killed(pids, seconds=5):
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


def started(folder, attempt, ranks):
    """The notes of all ranks of an attempt, once they are there."""
    assert wait_for(lambda: len(records(folder, attempt)) == ranks), f"attempt {attempt} has not begun"
    return records(folder, attempt)
