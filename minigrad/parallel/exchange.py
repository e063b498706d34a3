"""Exchange: the step of which all collectives on the host consist. Every rank sends every other one
message, which begins with what it is about to do; whoever reads something else than what itself does says so."""

import numpy as np

from .errors import CommunicationError, DisagreementError
from .transport import deadline_after

__all__ = ["COLLECTIVE", "CONTROL", "NOTHING", "Exchange"]

COLLECTIVE, CONTROL, FIRST_TAG = 0, 1, 2  # channels: for collectives, for words, and from there on for tags
NOTHING = np.empty(0, np.uint8)
FIRST = 600.0  # seconds for an operation of a world that has not made two steps: each rank compiles kernels meanwhile


class Exchange:
    """The messages of a rank."""

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
