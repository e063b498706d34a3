"""What ends the ranks of an agent that was killed itself, with all that they started.

A process that does nothing but read a pipe from the agent. When the pipe ends, so has the agent, in whatever way; then
it kills the process groups that the agent has told it of, and ends.
"""

import contextlib
import os
import signal

__all__ = ["Guard", "kill_group"]

DESCRIPTORS = 4096  # more than an agent has


class Guard:
    """The agent's side. The guard is a fork, so the agent must have no other threads."""

    def __init__(self):
        read, self._write = os.pipe()
        if os.fork() == 0:
            try:
                _guard(read)
            finally:
                os._exit(0)
        os.close(read)

    def add(self, group):
        """From now on this process group ends with the agent."""
        self._tell(f"+{group}\n")

    def remove(self, group):
        """It has ended; its number may come to mean another."""
        self._tell(f"-{group}\n")

    def _tell(self, line):
        with contextlib.suppress(BrokenPipeError):  # without a guard ranks still end with their agent, on Linux
            os.write(self._write, line.encode())


def _guard(read):
    os.setsid()
    os.dup2(read, 0)
    os.closerange(1, DESCRIPTORS)  # what the agent has open must close with it
    groups = set()
    with open(0) as lines:
        for line in lines:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        kill_group(group)


def kill_group(group):
    """End all processes of a group, also those that are stopped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left; macOS says the latter then
        os.killpg(group, signal.SIGKILL)
