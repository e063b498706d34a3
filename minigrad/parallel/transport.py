"""Transport: messages between ranks, the little that all collectives on the host are built from."""

import time
from typing import Protocol

import numpy as np

__all__ = ["Delivery", "Done", "Transport", "deadline_after"]


def deadline_after(seconds):
    """The value of time.monotonic() so many seconds from now."""
    return time.monotonic() + seconds


class Delivery(Protocol):
    """A message on its way."""

    def wait(self, deadline):
        """Return once the payload may be changed. Errors: DeadlineError, PeerLost."""


class Done:
    """A message that has left."""

    def wait(self, deadline):
        """Nothing to wait for."""


class Transport:
    """Messages between `size` ranks, of which this is `rank`.

    backend     who does collectives of arrays on GPUs, unless the Communicator is told: "nccl" or "host"
    local_rank, local_size  the number of this rank among those of its host, and how many these are
    young       whether kernels may still be compiled between two operations, so that a rank is waited for longer
    taken       whether there is a Communicator

    Messages of one rank to another on one channel arrive in the order in which they were posted; channels (integers
    from 0 to 32767) do not wait for one another. Deadlines are values of time.monotonic().
    """

    name = "transport"
    backend = "nccl"
    taken, young = False, False
    local_rank, local_size = 0, 1
    rank: int
    size: int

    def post(self, to, channel, header, payload) -> Delivery:
        """Begin to send a header (bytes, at most 64 KiB) and a payload to a rank; returns at once.

        payload     a contiguous array of uint8, which must stay as it is until the Delivery was waited for
        Errors      what ended the transport, if anything did
        """
        raise NotImplementedError

    def take(self, source, channel, deadline) -> tuple[bytes, np.ndarray]:
        """The next message of that rank on that channel: its header, and its payload in memory that is the caller's.

        Errors  DeadlineError if none came in time, PeerLost if that rank is gone, CommunicationError with the reason
                if a rank aborted
        """
        raise NotImplementedError

    def abort(self, reason):
        """End communication for all ranks: whoever waits, or will, gets a CommunicationError with the reason."""
        raise NotImplementedError

    def close(self):
        """End it for this rank in good order; may be called twice."""
        raise NotImplementedError
