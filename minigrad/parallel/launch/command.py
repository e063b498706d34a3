"""What to start, how many times, and where."""

import os
import re
import secrets
import shutil
import socket
import sys
import time
from dataclasses import dataclass, field

from minigrad_kernels.errors import ShapeError

__all__ = ["Job", "fitting", "mpi_command", "parse_hosts", "placement", "python_arguments"]

LOCAL = {"localhost", "127.0.0.1", "::1"}


@dataclass
class Job:
    """All that the head knows of its task.

    command       the words of one process
    ranks         how many are wanted
    hosts         pairs (name, ranks that fit)
    min_ranks     with how many it may go on when a host is lost
    timeout       seconds for a collective, and for a host to come
    heartbeat     seconds of silence after which the other side is gone
    grace         seconds that ranks have to leave after SIGTERM
    logs          the folder for what ranks other than 0 print
    mpi           the command is mpiexec, which tells the ranks who they are
    """

    command: list
    ranks: int
    hosts: list
    max_restarts: int = 3
    min_ranks: int = 1
    timeout: float = 120.0
    heartbeat: float = 10.0
    grace: float = 30.0
    rsh: str = "ssh"
    logs: str | None = None
    mpi: bool = False
    name: str = field(default_factory=lambda: f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def log_folder(self):
        return os.path.abspath(self.logs or os.path.join("launch-logs", self.name))


def python_arguments(command, module=None):
    """What the interpreter is told: a script with its arguments, or a module with its own.

    module    the words after -m, or None
    Errors    ShapeError for what is neither
    """
    if module:
        return ["-m", *module]
    if not command:
        raise ShapeError("launch: nothing to start; want a Python script, or minigrad and its arguments, or -m MODULE")
    if command[0] == "minigrad":
        return ["-m", *command]
    if not os.path.isfile(command[0]):
        raise ShapeError(
            f"launch: {command[0]} is no file; want a Python script, or minigrad and its arguments, or -m MODULE"
        )
    return list(command)


def mpi_command(ranks, arguments, mpiexec=None):
    """mpiexec for so many ranks; under python -m mpi4py an exception in one of them ends all.

    mpiexec   a path; None for the one beside this interpreter, else the one that the shell would find
    Errors    ShapeError if there is none
    """
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    path = mpiexec or (beside if os.path.exists(beside) else shutil.which("mpiexec"))
    if path is None or shutil.which(path) is None:
        raise ShapeError(
            f"launch: {path or 'mpiexec'} is not there; install minigrad-engine[mpi], or give --mpiexec PATH"
        )
    return [path, "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]


def parse_hosts(text):
    """Pairs (name, ranks that fit) of a:2,b:2; one rank fits where none are stated. Errors: ShapeError"""
    hosts = []
    for part in text.split(","):
        match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::([0-9]+))?", part, re.ASCII)
        if match is None or not int(match[3] or 1):
            raise ShapeError(
                f"launch: {part!r} in --hosts {text!r} is no host, want NAME, NAME:RANKS or [ADDRESS]:RANKS"
            )
        hosts.append((match[1] or match[2], int(match[3] or 1)))
    names = [name for name, _ in hosts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ShapeError(f"launch: host {twice} stands twice in --hosts {text!r}; add up its ranks")
    return hosts


def is_local(name):
    return name in LOCAL or name == socket.gethostname()


def fitting(ranks, places, least):
    """The largest number of ranks that divides `ranks`, fits, and is at least `least`; None if there is none.

    It must divide because the shards of a batch, whose number does not change, are dealt out evenly.
    """
    for count in range(min(ranks, places), max(least, 1) - 1, -1):
        if ranks % count == 0:
            return count
    return None


def placement(ranks, places):
    """Which ranks run where: the first hosts are filled first. `places` has how many fit on each."""
    chosen, first = [], 0
    for count in places:
        last = min(first + count, ranks)
        chosen.append(list(range(first, last)))
        first = last
    return chosen
