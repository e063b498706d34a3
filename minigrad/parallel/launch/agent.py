"""The agent: the process on each host that starts ranks there, and kills them when the head says so or is gone.

python -m minigrad.parallel.launch.agent, with one line of JSON on its standard input: where the head listens, the key
of the job (which must not stand on a command line, where all users of the host could read it), and who it is.
"""

import json
import os
import signal
import socket
import sys
import time

from ..connection import Connection, listen
from ..errors import CommunicationError, DeadlineError, PeerLost
from .guard import Guard
from .messages import BEAT, receive, send
from .processes import CANNOT_START, Process, last_lines
from .watch import WATCH

__all__ = ["Agent", "main"]

TICK = 0.1  # seconds between looks at the ranks
KNOCK = 3.0  # seconds for one try to come to the head


class Agent:
    """What an agent knows.

    addresses, port  where the head may be reached
    key              bytes
    host, instance   its number, and how often the head has started an agent there
    heartbeat        seconds of silence after which the head is gone
    patience         seconds for which it then tries to come back
    """

    def __init__(self, addresses, port, key, host, instance, heartbeat, patience):
        self.addresses, self.port, self.key = addresses, port, key
        self.host, self.instance = host, instance
        self.heartbeat, self.patience = heartbeat, patience
        self.attempt = 0
        self.running = {}  # rank: Process
        self.guard = None
        # Never written to: that it is closed, as it is when this process is gone, is the message.
        self.watched, self._held = os.pipe()

    def run(self):
        """Serve the head until it says leave or is gone for good."""
        done = False
        while not done and (connection := self.join()) is not None:
            try:
                done = self.serve(connection)
            except CommunicationError:  # the head is silent or gone: nobody wants these ranks any more
                pass
            finally:
                self.kill()
                connection.close()

    def join(self):
        """A connection with the head; None if nobody listens there any more, or it cannot be reached in time."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            refused = 0
            for address in self.addresses:
                try:
                    socket.create_connection((address, self.port), KNOCK).close()
                    connection = Connection.connect(address, self.port, self.key, time.monotonic() + KNOCK)
                    self.addresses = [address]  # the one that leads there
                    return connection
                except ConnectionRefusedError:  # that host is there, and the head is not
                    refused += 1
                except (OSError, DeadlineError, PeerLost):
                    pass
            if refused == len(self.addresses):
                return None
            time.sleep(TICK)
        return None

    def serve(self, connection):
        """Do what the head says; True once it says leave. Errors: CommunicationError when it is silent or gone"""
        self.report(connection)
        heard = sent = time.monotonic()
        while True:
            if connection.poll(TICK):
                message = receive(connection, self.heartbeat)
                heard = time.monotonic()
                if message["say"] == "leave":
                    return True
                self.obey(message, connection)
            self.look(connection)
            now = time.monotonic()
            if now - sent >= BEAT:
                send(connection, "alive")
                sent = now
            if now - heard > self.heartbeat:
                raise DeadlineError(f"launch: the head was silent for {now - heard:.1f} s")

    def report(self, connection):
        """Say that no rank runs here, and which port is free."""
        with listen() as free:
            port = free.getsockname()[1]
        send(connection, "ready", host=self.host, instance=self.instance, port=port)

    def obey(self, message, connection):
        say = message["say"]
        if say == "start":
            self.start(message, connection)
        elif say == "terminate":
            for process in self.running.values():
                process.signal(signal.SIGTERM)
        elif say == "kill":
            self.kill()
            self.report(connection)

    def start(self, message, connection):
        """Start the ranks of this host."""
        self.guard = self.guard or Guard()
        self.attempt = message["attempt"]
        for local, rank in enumerate(message["ranks"]):
            log = None
            if rank:
                log = os.path.join(message["logs"], f"attempt-{self.attempt}", f"rank-{rank}.log")
            environment = self.environment(message, rank, local)
            watch = self.watched if WATCH in environment else None
            try:
                process = Process(message["command"], environment, message["folder"], log, watch)
            except OSError as error:
                self.ended(connection, rank, CANNOT_START, 0.0, f"it could not be started: {error}")
            else:
                self.running[rank] = process
                self.guard.add(process.group)

    def environment(self, message, rank, local):
        """The variables of a rank."""
        count = len(message["ranks"])
        variables = dict(os.environ) | message["environment"]
        variables.setdefault("PYTHONUNBUFFERED", "1")  # so that the log of a rank that is killed is complete
        if message["mpi"]:
            return variables
        variables.setdefault("MINIGRAD_THREADS", str(max(1, _cores() // count)))
        return variables | {
            "RANK": str(rank),
            "WORLD_SIZE": str(message["size"]),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": message["address"],
            "MASTER_PORT": str(message["port"]),
            WATCH: str(self.watched),
        }

    def look(self, connection):
        """Report the ranks that have ended."""
        for rank, process in list(self.running.items()):
            code = process.poll()
            if code is not None:
                self.forget(rank)
                tail = last_lines(process.log) if code and process.log else ""
                self.ended(connection, rank, code, time.monotonic() - process.began, tail)

    def ended(self, connection, rank, code, seconds, tail):
        send(connection, "ended", attempt=self.attempt, rank=rank, code=code, seconds=seconds, tail=tail)

    def kill(self):
        """End all ranks, first all at once, then wait for each."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        for rank in list(self.running):
            self.forget(rank)

    def forget(self, rank):
        """A rank has ended."""
        self.guard.remove(self.running.pop(rank).group)


def _cores():
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main():
    """Be the agent that the line on standard input describes; returns the exit code."""
    told = json.loads(sys.stdin.readline() or "{}")
    if not told:
        print("launch: an agent is started by minigrad launch alone", file=sys.stderr)
        return 2
    told["key"] = bytes.fromhex(told["key"])
    agent = Agent(**told)
    try:
        agent.run()
    except CommunicationError as error:
        print(f"launch: agent on {socket.gethostname()}: {error}", file=sys.stderr)
        return 1
    finally:
        agent.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
