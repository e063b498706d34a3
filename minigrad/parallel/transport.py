"""Transport: messages between ranks, the little that all collectives on the host are built from."""

import time
from typing import Protocol

import numpy as np

__all__ = ["Transport", "deadline_after"]


def deadline_after(seconds):
    """The value of time.monotonic() so many seconds from now."""
    return time.monotonic() + seconds


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

    def post(self, to, channel, header, payload):
        """Begin to send a header, which is text, and a payload to a rank; returns at once what settle() takes.

        payload     a contiguous array, of which a copy is sent
        Errors      what ended the transport, if anything did
        """

    def take(self, source, channel, deadline) -> tuple[str, np.ndarray]:
        """The next message of that rank on that channel: its header, and its payload as bytes that are the caller's.

        Errors  DeadlineError if none came in time, PeerLost if that rank is gone, CommunicationError with the reason
                if a rank aborted
        """

    def settle(self, deadline, posted=None):
        """Wait until these have left, or all: what is under way may need this rank to go on. Errors: as take."""

    def check(self):
        """Errors: CommunicationError with the reason if communication has ended."""

    def abort(self, reason):
        """End communication for all ranks: whoever waits, or will, gets a CommunicationError with the reason."""

    def close(self):
        """End it for this rank in good order; may be called twice."""
