"""Transport: messages between ranks, the little that all collectives on the host are built from."""

import time
from typing import Protocol

import numpy as np

from .errors import CommunicationError, DisagreementError

__all__ = ["CONTROL", "NOTHING", "Delivery", "Exchange", "Transport", "deadline_after"]

COLLECTIVE, CONTROL, FIRST_TAG = 0, 1, 2  # channels: for collectives, for words, and from there on for tags
NOTHING = np.empty(0, np.uint8)
FIRST = 600.0  # seconds for an operation of a world that has not made two steps: each rank compiles kernels meanwhile


def deadline_after(seconds):
    """The value of time.monotonic() so many seconds from now."""
    return time.monotonic() + seconds


class Delivery:
    """A message on its way; this one has left already."""

    def wait(self, deadline):
        """Return once the payload may be changed. Errors: DeadlineError, PeerLost."""


class Transport(Protocol):
    """Messages between `size` ranks, of which this is `rank`.

    backend     who does collectives of arrays on GPUs, unless the Communicator is told: "nccl" or "host"
    local_rank, local_size  the number of this rank among those of its host, and how many these are
    young       whether kernels may still be compiled between two operations, so that a rank is waited for longer
    taken       whether there is a Communicator

    Messages of one rank to another on one channel arrive in the order in which they were posted; channels (integers
    from 0 to 32767) do not wait for one another. Deadlines are values of time.monotonic().
    """

    name: str
    rank: int
    size: int
    backend: str = "nccl"
    taken: bool = False
    young: bool = False
    local_rank: int = 0
    local_size: int = 1

    def post(self, to, channel, header, payload) -> Delivery:
        """Begin to send a header (bytes, at most 64 KiB) and a payload to a rank; returns at once.

        payload     a contiguous array of uint8, which must stay as it is until the Delivery was waited for
        Errors      what ended the transport, if anything did
        """

    def take(self, source, channel, deadline) -> tuple[bytes, np.ndarray]:
        """The next message of that rank on that channel: its header, and its payload in memory that is the caller's.

        Errors  DeadlineError if none came in time, PeerLost if that rank is gone, CommunicationError with the reason
                if a rank aborted
        """

    def check(self):
        """Errors: CommunicationError with the reason if communication has ended."""

    def abort(self, reason):
        """End communication for all ranks: whoever waits, or will, gets a CommunicationError with the reason."""

    def close(self):
        """End it for this rank in good order; may be called twice."""


class Exchange:
    """The step of which all collectives on the host consist: every rank sends every other one message.

    It begins with what the rank is about to do; whoever reads something else than what itself does says so.
    """

    def __init__(self, transport, timeout):
        self.transport, self.seconds, self.rank, self.size = transport, timeout, transport.rank, transport.size
        # Each begins with another peer, so that no rank is flooded.
        self.peers = [(self.rank + step) % self.size for step in range(1, self.size)]

    @property
    def timeout(self):
        """Seconds for one operation."""
        return max(self.seconds, FIRST) if self.transport.young else self.seconds

    def swap(self, what, payload_of, kind=COLLECTIVE):
        """{peer: the payload that it sent}, where payload_of(peer) is what it gets, both contiguous arrays.

        what    this call in words; all ranks must say the same
        Errors  those of the module `errors`; all ranks are told then
        """
        deadline, header = deadline_after(self.timeout), what.encode()
        try:
            sent = [self.transport.post(peer, kind, header, payload_of(peer).view(np.uint8)) for peer in self.peers]
            found = {}
            for peer in self.peers:
                theirs, found[peer] = self.transport.take(peer, kind, deadline)
                if theirs != header:
                    raise DisagreementError(f"rank {peer} does {theirs.decode()}, rank {self.rank} does {what}")
            for delivery in sent:
                delivery.wait(deadline)
        except CommunicationError as error:
            said = str(error)  # another rank of the same call may have said it
            failed = type(error)(said if said.startswith(f"{what}:") else f"{what}: {said}")
            self.transport.abort(str(failed))
            raise failed from None
        except BaseException as error:  # half a call is worse than none: the next would take its messages
            self.transport.abort(f"{what}: rank {self.rank}: {type(error).__name__}: {error}")
            raise
        return found

    def post(self, to, tag, what, payload):
        """Begin to send one message to a rank; returns the Delivery."""
        return self.transport.post(to, FIRST_TAG + tag, what.encode(), payload.view(np.uint8))

    def take(self, source, tag):
        """(what it is, payload) of the next message of a rank with this tag."""
        header, payload = self.transport.take(source, FIRST_TAG + tag, deadline_after(self.timeout))
        return header.decode(), payload
