"""The head's view of one host: its agent, the connection with it, and when it was last heard."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time

from ..errors import CommunicationError
from .command import is_local
from .messages import BEAT, send

__all__ = ["Host"]

AGENT = "minigrad.parallel.launch.agent"
AGAIN = 1.0  # seconds between two starts of an agent
LEAVE_SECONDS = 8.0  # that agents have to kill their ranks and go


class Host:
    """One host of a job.

    state    "missing", "ready" (no rank runs there, and `port` is free) or "busy"
    """

    def __init__(self, number, name, places, job):
        self.number, self.name, self.places, self.job = number, name, places, job
        self.local = is_local(name)
        self.title = socket.gethostname() if self.local else name
        self.state = "missing"
        self.connection = None
        self.heard = self.sent = time.monotonic()
        self.port = 0
        self.process = None
        self.instance = -1  # how often an agent was started, less one
        self.started = 0.0

    # ---- the agent's process -------------------------------------------------------------------------------------

    def start_agent(self, port):
        """Start the agent if it is not there: for the first time, or after its process has ended."""
        gone = self.process is None or self.process.poll() is not None
        if self.connection is not None or not gone or time.monotonic() - self.started < AGAIN:
            return
        self.started = time.monotonic()
        self.instance += 1
        command = [sys.executable, "-m", AGENT]
        if not self.local:
            if os.environ.get("PYTHONPATH"):
                command = ["env", f"PYTHONPATH={os.environ['PYTHONPATH']}", *command]
            command = [*shlex.split(self.job.rsh), self.name, *command]
        # A session of its own: Ctrl-C is for the head, which passes it on.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        told = {
            "addresses": ["127.0.0.1"] if self.local else _addresses_towards(self.name),
            "port": port,
            "key": self.job.key.hex(),
            "host": self.number,
            "instance": self.instance,
            "heartbeat": self.job.heartbeat,
            "patience": self.job.timeout,
        }
        try:
            self.process.stdin.write(json.dumps(told).encode() + b"\n")
            self.process.stdin.close()
        except BrokenPipeError:  # it has ended already; it is started again
            pass

    def wait_for_agent(self, deadline):
        """Return once the agent's process has ended; at the deadline it is made to."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def absence(self):
        """Why the host is missing, in words."""
        code = None if self.process is None else self.process.poll()
        ended = "" if code is None else f" (its agent ended with code {code})"
        return self.title + ended

    # ---- messages ------------------------------------------------------------------------------------------------

    def arrive(self, connection, port):
        """The agent is here: take its connection."""
        self.connection, self.port, self.state = connection, port, "ready"
        self.heard = time.monotonic()

    def drop(self):
        """Forget the connection. True if ranks were running there."""
        was_busy, self.state = self.state == "busy", "missing"
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            if self.local and self.process is not None:
                self.process.kill()  # it may be stopped; its ranks end with it, and a new one is started
        return was_busy

    def say(self, say, **content):
        """Tell the agent; one that cannot be told is found to be gone where it is listened to."""
        if self.connection is not None:
            try:
                send(self.connection, say, **content)
                self.sent = time.monotonic()
            except CommunicationError:
                pass

    def beat(self):
        """Show a sign of life, once in a while."""
        if time.monotonic() - self.sent >= BEAT:
            self.say("alive")

    def deaf(self):
        """Whether a message could not be sent, which closes the connection."""
        return self.connection is not None and self.connection.fileno() < 0

    def silence(self):
        """Seconds since it was last heard."""
        return time.monotonic() - self.heard


def _addresses_towards(name):
    """The addresses under which that host may reach this one."""
    found = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:  # connecting it sends nothing, but chooses the route
                try:
                    probe.connect(address)
                except OSError:
                    continue
                found.append(probe.getsockname()[0])
    except OSError:  # a name that ssh alone knows
        pass
    return list(dict.fromkeys(found)) or [socket.gethostname()]
