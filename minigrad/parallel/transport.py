"""Transport: messages between ranks, the little that all collectives on the host are built from."""

import time


def deadline_after(seconds):
    """The value of time.monotonic() so many seconds from now."""
    return time.monotonic() + seconds


class Transport:
    """Messages between `size` ranks, of which this is `rank`: what LocalTransport and MpiTransport have in common.

    name        in words
    backend     who does collectives of arrays on GPUs, unless the Communicator is told: "nccl" or "host"
    local_rank, local_size  the number of this rank among those of its host, and how many these are

    post        (to, channel, header, payload): begin to send a header, which is text, and a copy of a contiguous
                array to a rank; returns at once what settle takes
    take        (source, channel, deadline) -> the next message of that rank on that channel: its header, and its
                payload as bytes that are the caller's. DeadlineError if none came in time, PeerLost for a rank that is
                gone
    settle      (deadline, posted=None): wait until these have left, or all: what is under way may need this rank
    check       () raises the reason if communication has ended; the three above do so, too
    abort       (reason): end communication for all ranks: whoever waits, or will, gets a CommunicationError with the
                reason
    close       () ends it for this rank in good order; may be called twice

    Messages of one rank to another on one channel arrive in the order in which they were posted; channels (integers
    from 0 to 32765) do not wait for one another. Deadlines are values of time.monotonic().
    """

    backend, local_rank, local_size = "nccl", 0, 1
