"""How ranks find one another without MPI.

Rank 0 listens at an address that all know; the others connect to it, say who they are and where they listen
themselves, and get the table of all addresses. Then every pair connects, the lower rank accepting, each tells rank 0
how that went, and rank 0 gives the verdict: either all ranks meet, or all get the same error.

The rank whose patience ends first ends it for all, for without it they cannot meet.
"""

import ipaddress
import json
import secrets
import time
from collections import Counter
from dataclasses import dataclass

from minigrad_kernels.errors import MinigradError, ShapeError

from .connection import STALL, Connection, listen
from .errors import CommunicationError, DeadlineError, DisagreementError, PeerLost

__all__ = ["Meeting", "meet"]

GUEST = {"rank": int, "size": int, "note": str, "host": str, "port": int, "patience": float}  # says it to rank 0
PAIR = {"rank": int, "meeting": str}  # the higher rank says it to the lower
GRACE = 3.0  # seconds after the deadline in which what went wrong still travels from rank to rank
ERRORS = {error.__name__: error for error in (CommunicationError, DeadlineError, DisagreementError, PeerLost)}


@dataclass
class Meeting:
    """The connections of one rank to all others, by rank."""

    rank: int
    size: int
    connections: dict[int, Connection]

    def close(self):
        for connection in self.connections.values():
            connection.close()


def meet(rank, size, address, port, key, deadline, note=b""):
    """Connect every rank with every other, as the ranks of this job do at the same time.

    address, port  where rank 0 listens, on all networks of its host
    key            bytes that only this job knows
    deadline       a value of time.monotonic()
    note           a short text on which all must agree: versions, say
    Errors         on every rank: DeadlineError that names the ranks that did not come, DisagreementError for a rank
                   that came twice, another size or another note, WrongKey, PeerLost; CommunicationError if the port
                   is taken
    """
    if not 0 <= rank < size:
        raise ShapeError(f"meet: rank is {rank}, want at least 0 and below {size}")
    meeting = Meeting(rank, size, {})
    party = _Party(meeting, key, note, deadline)
    try:
        if size > 1:
            party.host(port) if rank == 0 else party.visit(address, port)
    except BaseException:
        meeting.close()
        raise
    return meeting


class _Party:
    """What a rank does in order to meet the others."""

    def __init__(self, meeting, key, note, deadline):
        self.meeting = meeting
        self.rank, self.size, self.connections = meeting.rank, meeting.size, meeting.connections
        self.key, self.note, self.deadline = key, note.decode("latin-1"), deadline
        self.refused = []  # connections of those who cannot take part
        self.dropped = Counter()  # of those who did not know the key, and why
        self.begin = time.monotonic()

    def host(self, port):
        """What rank 0 does."""
        with listen("", port) as listener:
            try:
                places = self._gather(listener)
            except MinigradError as error:
                self._tell_all(_failure(error))
                raise
            finally:
                for connection in self.refused:
                    connection.close()
        self._tell_all({"places": places, "meeting": secrets.token_hex(8)})
        reports = [self._report_of(rank) for rank in range(1, self.size)]
        verdict = next((report for report in reports if "failed" in report), {})
        self._tell_all(verdict)
        _raise_failure(verdict)

    def visit(self, address, port):
        """What the other ranks do."""
        try:
            host = Connection.connect(address, port, self.key, self.deadline)
        except DeadlineError as error:
            raise DeadlineError(f"rendezvous: rank 0 did not come within {self._waited()}: {error}") from error
        self.connections[0] = host
        with listen() as listener:
            me = {"rank": self.rank, "size": self.size, "note": self.note, "host": host.local_address}
            me |= {"port": listener.getsockname()[1], "patience": self.deadline - time.monotonic()}
            host.send(json.dumps(me).encode(), self.deadline)
            table = self._word_of_host(self.deadline + GRACE)
            _raise_failure(table)
            try:
                self._connect_pairs(listener, table["places"], table["meeting"])
                report = {}
            except CommunicationError as error:
                report = _failure(error)
        host.send(json.dumps(report).encode(), self.deadline + GRACE)
        _raise_failure(self._word_of_host(self.deadline + 3 * GRACE))

    def _gather(self, listener):
        """Wait until all ranks have come; their addresses, by rank.

        Once one is found that cannot take part, the others are waited for a little longer, to hear of it too.
        """
        places, problem = {}, None
        while len(places) + len(self.refused) < self.size - 1 or self._drop_the_dead(places):
            try:
                guest = Connection.accept(listener, self.key, self.deadline, self.dropped)
            except DeadlineError as error:
                late = DeadlineError(f"rendezvous: {self._missing(range(1, self.size), places)} ({error})")
                raise problem or late from error
            said = _greeting(guest, GUEST, self.deadline)
            if not said:  # gone, or no rank; it may come again
                guest.close()
                continue
            found = self._problem_with(guest, said, places)
            if found:
                problem = problem or DisagreementError(f"rendezvous: {found}")
                self.refused.append(guest)
                self.deadline = min(self.deadline, time.monotonic() + GRACE)
                continue
            self.connections[said["rank"]] = guest
            places[said["rank"]] = [said["host"], said["port"]]
            self.deadline = min(self.deadline, time.monotonic() + said["patience"])
        if problem:
            raise problem
        return places

    def _drop_the_dead(self, places):
        """Forget those who left while they waited, for they may come again; whether there were any."""
        dead = [rank for rank in places if self.connections[rank].poll(0)]  # a guest says nothing after its greeting
        for rank in dead:
            self.connections.pop(rank).close()
            del places[rank]
        return bool(dead)

    def _problem_with(self, guest, said, places):
        """Why this guest cannot take part, or None."""
        rank, who = said["rank"], f"rank {said['rank']}, from {guest.address},"
        if said["size"] != self.size:
            return f"{who} counts {said['size']} ranks, rank 0 counts {self.size}"
        if said["note"] != self.note:
            return f"{who} says {said['note']!r}, rank 0 says {self.note!r}; all must run the same versions"
        if rank in places:
            self._drop_the_dead(places)
        if rank == 0 or rank in places:
            where = "is rank 0 itself" if rank == 0 else f"came from {self.connections[rank].address} already"
            return (
                f"rank {rank} came twice: one from {guest.address}, while one {where}; give each process its own rank"
            )
        return None

    def _connect_pairs(self, listener, places, meeting):
        """Connect to the ranks between 0 and this one, and accept those above."""
        for rank in range(1, self.rank):
            host, port = places[str(rank)]
            if ipaddress.ip_address(host.partition("%")[0]).is_loopback:
                # It runs on the host of rank 0, whose address as seen from here is right for it too.
                host = self.connections[0].address
            try:
                self.connections[rank] = Connection.connect(host, port, self.key, self.deadline)
            except CommunicationError as error:
                raise type(error)(f"rendezvous: rank {self.rank} cannot reach rank {rank}: {error}") from error
            _tell(self.connections[rank], {"rank": self.rank, "meeting": meeting})
        while len(self.connections) < self.size - 1:
            try:
                guest = Connection.accept(listener, self.key, self.deadline, self.dropped)
            except DeadlineError as error:
                missing = self._missing(range(self.rank + 1, self.size), self.connections)
                raise DeadlineError(f"rendezvous: {missing} to rank {self.rank} ({error})") from error
            said = _greeting(guest, PAIR, self.deadline)
            if said.get("meeting") == meeting:
                self.connections[said["rank"]] = guest
            else:  # of an earlier meeting, or gone already
                guest.close()

    def _report_of(self, rank):
        """What a rank says of its connections."""
        try:
            return json.loads(self.connections[rank].receive(self.deadline + 2 * GRACE))
        except CommunicationError as error:
            return _failure(type(error)(f"rendezvous: rank {rank} was lost before all had met: {error}"))

    def _word_of_host(self, deadline):
        try:
            return json.loads(self.connections[0].receive(deadline))
        except CommunicationError as error:
            raise type(error)(f"rendezvous: rank 0 was lost before all had met: {error}") from error

    def _tell_all(self, word):
        for connection in [*self.connections.values(), *self.refused]:
            _tell(connection, word)

    def _missing(self, wanted, came):
        missing = [str(rank) for rank in wanted if rank not in came]
        ranks = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(missing)
        return f"{ranks} of {self.size} did not come within {self._waited()}"

    def _waited(self):
        return f"{self.deadline - self.begin:.3g} s"


def _greeting(guest, fields, deadline):
    """What one who came says of itself; nothing if it does not say just that."""
    try:
        said = json.loads(guest.receive(min(deadline, time.monotonic() + STALL)))
    except (CommunicationError, ValueError):
        return {}
    fits = isinstance(said, dict) and {name: type(value) for name, value in said.items()} == fields
    return said if fits else {}


def _tell(connection, word):
    """Send what the other side need not have: if it is gone, its silence will be noticed."""
    try:
        connection.send(json.dumps(word).encode(), time.monotonic() + GRACE)
    except CommunicationError:
        pass


def _failure(error):
    name = next(
        name for name in (base.__name__ for base in (*type(error).__mro__, CommunicationError)) if name in ERRORS
    )
    return {"failed": str(error), "kind": name}


def _raise_failure(word):
    if "failed" in word:
        raise ERRORS[word["kind"]](word["failed"])
