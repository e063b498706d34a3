"""Exchange: the step of which all collectives on the host consist. Every rank of a group sends every other one
message, which begins with what it is about to do; whoever reads something else than what itself does says so."""

import numpy as np

from .errors import CommunicationError, DisagreementError
from .transport import deadline_after

__all__ = ["CHANNELS", "COLLECTIVE", "CONTROL", "FIRST_TAG", "GROUPS", "NOTHING", "Exchange"]

CHANNELS = 64  # of each group: for collectives, for words, and for tags
GROUPS = 512  # whose channels stay below the 32768 that every transport has
COLLECTIVE, CONTROL, FIRST_TAG = 0, 1, 2
NOTHING = np.empty(0, np.uint8)
FIRST = 600.0  # seconds for an operation of a world that has not made two steps: each rank compiles kernels meanwhile


class Exchange:
    """The messages of one group of ranks."""

    def __init__(self, transport, members, group, timeout):
        self.transport, self.members, self.group, self.seconds = transport, tuple(members), group, timeout
        self.rank, self.size = self.members.index(transport.rank), len(self.members)
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
        deadline, channel, header = deadline_after(self.timeout), self.group * CHANNELS + kind, what.encode()
        try:
            sent = [
                self.transport.post(self.members[peer], channel, header, payload_of(peer).view(np.uint8))
                for peer in self.peers
            ]
            found = {}
            for peer in self.peers:
                theirs, found[peer] = self.transport.take(self.members[peer], channel, deadline)
                if theirs != header:
                    raise DisagreementError(
                        f"rank {self.members[peer]} does {theirs.decode()}, rank {self.members[self.rank]} does {what}"
                    )
            for delivery in sent:
                delivery.wait(deadline)
        except CommunicationError as error:
            said = str(error)  # another rank of the same call may have said it
            failed = type(error)(said if said.startswith(f"{what}:") else f"{what}: {said}")
            self.transport.abort(str(failed))
            raise failed from None
        except BaseException as error:  # half a call is worse than none: the next would take its messages
            self.transport.abort(f"{what}: rank {self.members[self.rank]}: {type(error).__name__}: {error}")
            raise
        return found

    def post(self, to, tag, what, payload):
        """Begin to send one message to a rank; returns the Delivery."""
        return self.transport.post(self.members[to], self._channel(tag), what.encode(), payload.view(np.uint8))

    def take(self, source, tag):
        """(what it is, payload) of the next message of a rank with this tag."""
        header, payload = self.transport.take(self.members[source], self._channel(tag), deadline_after(self.timeout))
        return header.decode(), payload

    def _channel(self, tag):
        return self.group * CHANNELS + FIRST_TAG + tag
