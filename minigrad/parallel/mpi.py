"""MPI below the ranks: mpiexec starts them, mpi4py carries their messages.

A message is one packet: the lengths of its header and of its payload, the header, and the payload if it is small; a
large one follows in pieces. Whoever waits asks MPI again and again, with sleeps between, so that a deadline and the
words of other ranks are seen: a communicator beside that of the messages carries "I abort, because ..." and "I leave".

MPI itself neither notices nor ends a rank that others wait for in vain. So a process that leaves in disorder, be it by
an exception or because communication was aborted, ends the whole job by MPI_Abort, after a moment in which the other
ranks hear the reason and raise it.

Source  MPI: A Message-Passing Interface Standard 4.1, sections 3.8.2 (matched probe) and 11.6 (threads)
"""

import atexit
import struct
import sys
import threading
import time

import numpy as np

from minigrad_kernels.errors import StateError

from .arrays import on_host, store
from .collectives import SMALL, HostCollectives
from .errors import CommunicationError, DeadlineError, PeerLost
from .exchange import NOTHING
from .transport import FAILED, Transport, deadline_after

__all__ = ["MpiCollectives", "MpiTransport"]

LENGTHS = struct.Struct("<IQ")  # bytes of header and payload
TOGETHER = 1 << 14  # bytes of a payload that travels in the packet of its header
PIECE = 1 << 30  # bytes, or elements, in one call: counts of MPI before version 4 are 32-bit
SHORTEST, LONGEST = 5e-5, 2e-3  # seconds of sleep between two questions; ranks may be more than cores
GRACE = 0.5  # seconds in which the others may hear why a job ends, or a last message of a rank that left arrive
WORDS = 4096  # bytes of a reason
ABORT, LEAVE = 1, 2


def _mpi():
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise StateError(f"MPI cannot be used ({error}); pip install 'minigrad-engine[mpi]'") from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise StateError(
            f"MPI offers thread level {MPI.Query_thread()}, wanted {MPI.THREAD_MULTIPLE} (multiple): a thread "
            "beside the main one communicates; leave mpi4py.rc.thread_level as it is, or use another MPI"
        )
    return MPI


class MpiTransport(Transport):
    """Messages between the processes that mpiexec started; one is made per process.

    Errors  RuntimeError without mpi4py, without an MPI, and with one that serves a single thread
    """

    name = "MPI"

    def __init__(self):
        self.mpi = _mpi()
        world = self.mpi.COMM_WORLD
        self.messages, self._words = world.Dup(), world.Dup()  # never the user's own
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self._posting, self._sending = threading.Lock(), []
        self._asking = []  # keeps memory that MPI may write into, also where nobody waits for it any more
        self._gone, self._reason, self._closed = set(), None, False
        atexit.register(self._leave)

    def collectives(self, exchange):
        return MpiCollectives(exchange)

    # ---- messages ------------------------------------------------------------------------------------------------

    def post(self, to, channel, header, payload):
        self._hear()
        packet = LENGTHS.pack(len(header), payload.nbytes) + header
        together = payload.nbytes <= TOGETHER
        parts = [packet + payload.tobytes()] if together else [packet, *_pieces(payload)]
        with self._posting:  # the parts of two messages must not mix
            requests = [self.messages.Isend([part, self.mpi.BYTE], to, channel) for part in parts]
            sending = _Sending(self, to, requests)
            # MPI reads the memory until then, whether someone waits or not.
            self._sending = [other for other in self._sending if not other.done()] + [sending]
        return sending

    def take(self, source, channel, deadline):
        packet = self._received(source, channel, deadline)
        header_size, size = LENGTHS.unpack_from(packet)
        header, payload = packet[LENGTHS.size :][:header_size].tobytes(), packet[LENGTHS.size + header_size :]
        if size > TOGETHER:
            payload = np.empty(size, np.uint8)
            for piece in _pieces(payload):
                self._received(source, channel, deadline, piece)
        return header, payload

    def _received(self, source, channel, deadline, out=None):
        """The next message of MPI from there, in `out` or in memory of its own."""
        message, status = None, self.mpi.Status()

        def matched():
            nonlocal message
            message = self.messages.Improbe(source, channel, status)
            return message is not None

        self.until(matched, deadline, source, f"no message from rank {source} came in time")
        out = np.empty(status.Get_count(self.mpi.BYTE), np.uint8) if out is None else out
        request = message.Irecv([out, self.mpi.BYTE])
        self.until(request.Test, deadline, source, f"a message from rank {source} did not arrive in time")
        return out

    def until(self, done, deadline, peer, late):
        """Ask done() until it is so, while `peer`, if any, is there.

        Errors  DeadlineError with the words `late`, PeerLost, CommunicationError with the reason if a rank aborted
        """
        pause, missed = SHORTEST, None
        self._asking.append(done)
        while not self.asked(done):
            self._hear()
            if peer in self._gone and missed is None:
                missed = deadline_after(GRACE)
            now = time.monotonic()
            if missed is not None and now > missed:
                raise PeerLost(f"rank {peer} has ended; rank {self.rank}: {late}")
            if now > deadline:
                raise DeadlineError(f"rank {self.rank}: {late}")
            time.sleep(pause)
            pause = min(1.3 * pause, LONGEST)
        self._asking.remove(done)

    def asked(self, call):
        """What MPI answers. Errors: CommunicationError where it fails."""
        try:
            return call()
        except self.mpi.Exception as error:
            raise CommunicationError(f"rank {self.rank}: MPI failed: {error}") from error

    # ---- words about ranks ---------------------------------------------------------------------------------------

    def _hear(self):
        """Take notice of what other ranks say of themselves. Errors: CommunicationError if communication has ended."""
        status = self.mpi.Status()
        while (word := self._words.Improbe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status)) is not None:
            text = bytearray(status.Get_count(self.mpi.BYTE))
            word.Recv([text, self.mpi.BYTE])
            if status.Get_tag() == ABORT:
                self._reason = self._reason or text.decode()
            else:
                self._gone.add(status.Get_source())
        if self._reason:
            raise CommunicationError(self._reason)

    def _tell(self, kind, text=""):
        text = text.encode()[:WORDS].decode(errors="ignore").encode()
        with self._posting:
            for step in range(1, self.size):
                request = self._words.Isend([text, self.mpi.BYTE], (self.rank + step) % self.size, kind)
                self._sending.append(_Sending(self, None, [request]))

    def abort(self, reason):
        if self._reason is None:
            self._reason = reason
            self._tell(ABORT, reason)

    def close(self):
        """Say goodbye; the process stays until all have, or until one aborts, for MPI wants them to end together."""
        if not self._closed:
            self._closed = True
            self._tell(LEAVE)

    def _leave(self):
        """The process ends: in good order with all others, or at once with all others."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and self._reason is None and self.size > 1:
            self.abort(f"rank {self.rank} ended: {type(error).__name__}: {error}")
        self.close()
        ended = lambda: len(self._gone) == self.size - 1 and all([sending.done() for sending in self._sending])
        try:
            self.until(ended, float("inf"), None, "")
        except CommunicationError as why:
            if self.size > 1:
                sys.stderr.write(f"rank {self.rank}: the job ends: {why}\n")  # in one piece, for all write at once
                limit = deadline_after(GRACE)
                while time.monotonic() < limit and not ended():  # MPI sends while it is asked
                    time.sleep(LONGEST)
                self.mpi.COMM_WORLD.Abort(FAILED)


class _Sending:
    """A message on its way."""

    def __init__(self, transport, to, requests):
        self.transport, self.to, self.requests = transport, to, requests
        self._asking = threading.Lock()  # MPI wants a request to be asked by one thread at a time

    def done(self):
        with self._asking:
            return all([request.Test() for request in self.requests])

    def wait(self, deadline):
        self.transport.until(self.done, deadline, self.to, f"rank {self.to} did not take a message in time")


def _pieces(payload):
    return [payload[start : start + PIECE] for start in range(0, payload.size, PIECE)]


class MpiCollectives(HostCollectives):
    """With order "native", and for what is not added, the collectives of MPI itself, after a word with all ranks.

    The word comes first because MPI does not compare what ranks do, and writes beyond an array where it differs. The
    largest and smallest of fractions are taken as in order "fixed", since MPI does not say what becomes of NaN.
    """

    def __init__(self, exchange):
        super().__init__(exchange)
        self._transport, self._group = exchange.transport, None
        mpi = self._mpi = exchange.transport.mpi
        self._ops = {"sum": mpi.SUM, "mean": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN}

    def all_reduce(self, flat, op, order, wire, what):
        if not self._adds(flat, op, order, wire):
            return super().all_reduce(flat, op, order, wire, what)
        self._agree(what)
        values = on_host(flat)
        for part in _pieces(values):
            self._do(what, lambda group, part=part: group.Iallreduce(self._mpi.IN_PLACE, part, self._ops[op]))
        store(flat, self._divided(values, op))

    def reduce_scatter(self, part, flat, op, order, wire, what):
        if not self._adds(flat, op, order, wire) or flat.size > PIECE:
            return super().reduce_scatter(part, flat, op, order, wire, what)
        self._agree(what)
        values, total = on_host(flat), np.empty(part.size, part.dtype)
        self._do(what, lambda group: group.Ireduce_scatter_block(values, total, self._ops[op]))
        store(part, self._divided(total, op))

    def all_gather(self, whole, flat, what):
        if not SMALL < whole.nbytes <= PIECE:
            return super().all_gather(whole, flat, what)
        self._agree(what)
        values, found = on_host(flat), _room(whole, flat)
        self._do(what, lambda group: group.Iallgather(_bytes(values), _bytes(found)))
        store(whole, found)

    def all_to_all(self, whole, flat, what):
        if not SMALL < whole.nbytes <= PIECE:
            return super().all_to_all(whole, flat, what)
        self._agree(what)
        values, found = on_host(flat), _room(whole, flat)
        self._do(what, lambda group: group.Ialltoall(_bytes(values), _bytes(found)))
        store(whole, found)

    def broadcast(self, flat, root, what):
        if flat.nbytes <= SMALL:
            return super().broadcast(flat, root, what)
        self._agree(what)
        values = on_host(flat)
        for part in _pieces(_bytes(values)):
            self._do(what, lambda group, part=part: group.Ibcast(part, root))
        store(flat, values)

    def _adds(self, flat, op, order, wire):
        """Whether MPI does the sum."""
        kind, mpi = flat.dtype.kind, self._mpi
        known = mpi.Datatype.fromcode(flat.dtype.char) != mpi.DATATYPE_NULL  # some have no float16
        exact = kind in "iu" or kind == "f" and op in ("sum", "mean")
        # Of a small array the words alone would take as long as the whole exchange.
        return order == "native" and not wire and flat.nbytes > SMALL and known and exact

    def _divided(self, total, op):
        return np.divide(total, self.size, out=total) if op == "mean" else total

    def _agree(self, what):
        self.exchange.swap(what, lambda peer: NOTHING)
        if self._group is None:  # now all are here, so this cannot wait in vain
            world = self._transport.messages
            members = world.Get_group().Incl(self.exchange.members)
            self._group = world.Create_group(members, self.exchange.group)

    def _do(self, what, begin):
        transport = self._transport
        try:
            request = transport.asked(lambda: begin(self._group))
            transport.until(request.Test, deadline_after(self.exchange.timeout), None, "not done in time")
        except CommunicationError as error:
            failed = type(error)(f"{what}: {error}")
            transport.abort(str(failed))
            raise failed from None


def _room(out, array):
    """Memory of the host for what belongs in `out`: its own, if that is there and not what is sent."""
    there = type(out) is np.ndarray and not np.may_share_memory(out, array)
    return out if there else np.empty(out.size, out.dtype)


def _bytes(array):
    return array.view(np.uint8)
