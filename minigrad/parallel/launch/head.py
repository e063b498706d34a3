"""The head: it starts all ranks, and all again when one of them fails, until they end well or it has tried enough.

An attempt is a state of the whole job: ranks that have lost one of them cannot go on, so all are killed, and the
next attempt starts from the last checkpoint. The head never believes more than it hears: a host that is silent for
too long is lost, and its agent, which then hears nothing either, kills the ranks there.
"""

import contextlib
import itertools
import os
import selectors
import signal
import sys
import time

from ..connection import Connection, listen
from ..errors import CommunicationError
from .attempt import REFUSED, Attempt
from .command import fitting, placement
from .hosts import LEAVE_SECONDS, Host
from .messages import receive

__all__ = ["Head"]

TICK = 0.1  # seconds between looks at what has happened
HANDSHAKE = 1.0  # seconds
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = ("MINIGRAD_", "NCCL_", "NUMBA_", "OMP_", "PYTHON")  # variables that ranks on other hosts get too
HARD = 128  # exit codes of programs that were ended by a signal are above


class Head:
    """Runs one Job."""

    def __init__(self, job):
        self.job = job
        self.hosts = [Host(number, name, places, job) for number, (name, places) in enumerate(job.hosts)]
        self.listener = listen("127.0.0.1" if all(host.local for host in self.hosts) else "")
        self.attempt = None
        self.stop = None  # the first signal
        self.stop_at = None  # when patience with ranks that were asked to leave ends

    def run(self):
        """Attempts until one ends well; returns the exit code."""
        with self._signals():
            try:
                for number in itertools.count():
                    size = self.gather(number)
                    if size is None:
                        return 1 if self.stop is None else HARD + self.stop
                    code = self.try_once(number, size)
                    if code is not None:
                        return code
            finally:
                self.leave()

    # ---- one attempt ---------------------------------------------------------------------------------------------

    def gather(self, number):
        """Wait for hosts; with how many ranks to start, None if that cannot be.

        A host counts as lost once it has been silent for the heartbeat; at the first attempt all get more time.
        """
        began, patience = time.monotonic(), self.job.timeout if number == 0 else self.job.heartbeat
        while self.stop is None:
            self.pump()
            size = self.room(patience)
            if size is not None:
                return size
            if time.monotonic() - began > self.job.timeout:
                missing = ", ".join(host.absence() for host in self.hosts if host.state != "ready")
                self.print(f"gave up after {self.job.timeout:g} s: no answer from host {missing}")
                return None
        return None

    def room(self, patience):
        """With how many ranks to start; None if hosts that are missing may still come, or too few fit."""
        if any(host.state != "ready" and host.silence() <= patience for host in self.hosts):
            return None
        places = sum(host.places for host in self.hosts if host.state == "ready")
        return fitting(self.job.ranks, places, self.job.min_ranks)

    def try_once(self, number, size):
        """Start the ranks and see how they end; an exit code, or None to try again."""
        self.attempt = attempt = self.start(number, size)
        told = False
        while not attempt.over(hopeless=self.stop is None):
            if self.stop is not None and not told:
                told = True
                self.print(f"signal {self.stop}: the ranks are asked to leave; once more to end them at once")
                self.say_to_busy("terminate")
            if self.stop is not None and time.monotonic() > self.stop_at:
                break
            self.pump()
        seconds = time.monotonic() - attempt.began
        self.kill()
        self.attempt = None
        if attempt.well():
            self.print(f"attempt {number}: {self.named(size)} ended well after {seconds:.1f} s")
            return HARD + signal.SIGINT if self.stop == signal.SIGINT else 0
        if self.stop is not None:
            self.print(
                f"attempt {number}: stopped by signal {self.stop} after {seconds:.1f} s; not all ranks left well"
            )
            return HARD + self.stop
        again = number < self.job.max_restarts and not attempt.refused()
        self.explain(attempt, again)
        return None if again else REFUSED if attempt.refused() else 1

    def start(self, number, size):
        ready = [host for host in self.hosts if host.state == "ready"]
        placed = [pair for pair in zip(ready, placement(size, [host.places for host in ready]), strict=True) if pair[1]]
        hosts = [host for host, _ in placed]
        for host, ranks in placed:
            host.state = "busy"
            host.say(
                "start",
                attempt=number,
                ranks=ranks,
                size=size,
                command=self.job.command,
                folder=os.getcwd(),
                logs=self.job.log_folder(),
                mpi=self.job.mpi,
                address=_address(hosts),
                port=hosts[0].port,
                environment=self.environment(number),
            )
        return Attempt(number, size, {rank: host for host, ranks in placed for rank in ranks}, self.job.timeout)

    def environment(self, number):
        """The variables that all ranks of an attempt share."""
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        return passed_on | {
            "MINIGRAD_ATTEMPT": str(number),
            "MINIGRAD_JOB": self.job.name,
            "MINIGRAD_KEY": self.job.key.hex(),
            "MINIGRAD_TIMEOUT": f"{self.job.timeout:g}",
        }

    def kill(self):
        """End what runs, and wait until the agents say that it has."""
        self.say_to_busy("kill")
        deadline = time.monotonic() + max(self.job.heartbeat, LEAVE_SECONDS)
        while any(host.state == "busy" for host in self.hosts) and time.monotonic() < deadline:
            self.pump()

    def say_to_busy(self, say):
        for host in self.hosts:
            if host.state == "busy":
                host.say(say)

    # ---- what happens --------------------------------------------------------------------------------------------

    def pump(self):
        """Look at everything once: who comes, who speaks, who is silent, whose agent is to be started."""
        for host in self.hosts:
            if host.deaf():
                self.lose(host)
            host.start_agent(self.listener.getsockname()[1])
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            for host in self.hosts:
                if host.connection is not None:
                    selector.register(host.connection, selectors.EVENT_READ, host)
            for key, _ in selector.select(TICK):
                self.admit() if key.data is None else self.hear(key.data)
        for host in self.hosts:
            host.beat()
            if host.connection is not None and host.silence() > self.job.heartbeat:
                self.lose(host)

    def admit(self):
        """Someone knocks: an agent, or a stranger, who is turned away."""
        connection = None
        try:
            connection = Connection.accept(self.listener, self.job.key, time.monotonic() + HANDSHAKE)
            message = receive(connection, HANDSHAKE)
            host = self.hosts[message["host"]]
            if message["say"] == "ready" and message["instance"] == host.instance:
                self.lose(host)  # an agent that comes again has lost its first connection
                host.arrive(connection, message["port"])
                return
        except (CommunicationError, LookupError, TypeError):  # the latter two: it knows the key, but is no agent
            pass
        if connection is not None:
            connection.close()

    def hear(self, host):
        """Take one message of an agent."""
        try:
            message = receive(host.connection, HANDSHAKE)
        except CommunicationError:
            self.lose(host)
            return
        host.heard = time.monotonic()
        if message["say"] == "ready":
            host.port, host.state = message["port"], "ready"
        elif message["say"] == "ended" and self.attempt is not None and message["attempt"] == self.attempt.number:
            self.attempt.note(message)

    def lose(self, host):
        if host.drop() and self.attempt is not None:
            self.attempt.lost = host

    # ---- the end -------------------------------------------------------------------------------------------------

    def leave(self):
        """Send all agents away; none stays behind."""
        self.listener.close()  # an agent that is still on its way finds nobody, and goes
        deadline = time.monotonic() + LEAVE_SECONDS
        for host in self.hosts:
            host.say("leave")
        for host in self.hosts:
            host.wait_for_agent(time.monotonic() if host.connection is None else deadline)
            host.drop()

    @contextlib.contextmanager
    def _signals(self):
        """The first signal is a wish that ranks leave, the second an order."""
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number, frame):
        now = time.monotonic()
        self.stop_at = now if self.stop is not None else now + self.job.grace
        if self.stop is None:
            self.stop = number

    # ---- words ---------------------------------------------------------------------------------------------------

    def print(self, text):
        with contextlib.suppress(OSError):  # nobody may be there to read it
            print(f"launch: {text}", file=sys.stderr, flush=True)

    def named(self, count):
        return "mpiexec" if self.job.mpi else f"{count} rank{'s' if count > 1 else ''}"

    def explain(self, attempt, again):
        """Say who failed, with its last words, and what comes next."""
        who, how, seconds, tail = attempt.account(self.job.mpi)
        if tail:
            self.print(f"the last lines of {who}:\n{tail}")
        then = "it would refuse again" if attempt.refused() else "no restarts are left"
        if again:
            size = self.room(self.job.heartbeat)
            then = f"starting again with {self.named(size)}" if size else "starting again when there is room"
            then += f" ({attempt.number + 1} of {self.job.max_restarts} restarts)"
        self.print(f"attempt {attempt.number}: {who} {how} after {seconds:.1f} s; {then}")


def _address(hosts):
    """Where ranks on these hosts reach the first of them."""
    if all(host.local for host in hosts):
        return "127.0.0.1"
    if not hosts[0].local:
        return hosts[0].connection.address
    return next(host.connection.local_address for host in hosts if not host.local)
