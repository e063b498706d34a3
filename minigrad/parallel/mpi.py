"""MPI below the ranks: mpiexec starts them, mpi4py carries their messages.

A message is a header and a payload, one after the other. Whoever waits asks MPI again and again, with sleeps between,
so that a deadline and the words of other ranks are seen: messages on channels of their own say "I abort, because ..."
and "I leave".

MPI itself neither notices nor ends a rank that others wait for in vain. So a process that leaves in disorder, be it by
an exception or because communication was aborted, ends the whole job by MPI_Abort, after a moment in which the other
ranks hear the reason and raise it.

Source  MPI: A Message-Passing Interface Standard 4.1, sections 3.8.2 (matched probe) and 11.6 (threads)
"""

import atexit
import faulthandler
import sys
import threading
import time

import numpy as np

from minigrad_kernels.errors import StateError

from .errors import CommunicationError, DeadlineError, PeerLost
from .rank import FAILED
from .transport import Transport, deadline_after

SHORTEST, LONGEST = 5e-5, 2e-3  # seconds of sleep between two questions; ranks may be more than cores
GRACE = 0.5  # seconds in which the others may hear why a job ends, or a last message of a rank that left arrive
WORDS = 4096  # bytes of a reason: so few are there at once
ABORT, LEAVE = 32766, 32767  # channels of words, the last ones that every MPI has


def _mpi(seconds):
    """The module, once all ranks have begun."""
    # MPI begins with all ranks, and waits in C for one that does not come: only C can end that.
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise StateError(f'MPI cannot be used ({error}); pip install -e ".[mpi]"') from error
    finally:
        faulthandler.cancel_dump_traceback_later()
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        level = f"MPI offers thread level {MPI.Query_thread()}, wanted {MPI.THREAD_MULTIPLE} (multiple)"
        raise StateError(f"{level}; leave mpi4py.rc.thread_level as it is, or use another MPI")
    return MPI


class MpiTransport(Transport):
    """Messages between the processes that mpiexec started; one is made per process.

    seconds for all of them to begin; a process that waits longer for another is ended
    Errors  RuntimeError without mpi4py, without an MPI, and with one that serves a single thread
    """

    name = "MPI"

    def __init__(self, seconds=120.0):
        self.mpi = _mpi(seconds)
        world, limit = self.mpi.COMM_WORLD, deadline_after(seconds)
        self.messages, begun = world.Idup()  # never the user's own
        while not begun.Test():
            if time.monotonic() > limit:
                sys.stderr.write(f"rank {world.Get_rank()}: not all ranks came within {seconds:g} s\n")
                world.Abort(FAILED)
            time.sleep(SHORTEST)
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self._others = [(self.rank + step) % self.size for step in range(1, self.size)]
        here = world.Split_type(self.mpi.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = here.Get_rank(), here.Get_size()
        here.Free()
        # (requests, memory, peer): MPI reads or writes that memory, whether someone waits or not.
        self._pending, self._lock = [], threading.Lock()
        self._reason, self._closed = None, False
        atexit.register(self._leave)

    # ---- messages ------------------------------------------------------------------------------------------------

    def post(self, to, channel, header, payload):
        self.check()
        return self._send(to, channel, np.frombuffer(header.encode(), np.uint8), payload.view(np.uint8).copy())

    def _send(self, to, channel, *parts):
        return self._keep([self.messages.Isend([part, self.mpi.BYTE], to, channel) for part in parts], parts, to)

    def _keep(self, *begun):
        """Keep (requests, memory, peer) until MPI is done with it."""
        with self._lock:
            self._pending = [one for one in self._pending if not self.mpi.Request.Testall(one[0])] + [begun]
        return begun

    def take(self, source, channel, deadline):
        header, payload = (self._received(source, channel, deadline) for _ in range(2))
        return header.tobytes().decode(), payload

    def _received(self, source, channel, deadline):
        message, status = None, self.mpi.Status()

        def matched():
            nonlocal message
            message = self.messages.Improbe(source, channel, status)
            return message is not None

        self.until(matched, deadline, source, f"no message from rank {source} came in time")
        memory = np.empty(status.Get_count(self.mpi.BYTE), np.uint8)
        begun = self._keep([message.Irecv([memory, self.mpi.BYTE])], memory, source)
        self._finish(begun, deadline, f"a message from rank {source} did not arrive in time")
        return memory

    def settle(self, deadline, posted=None):
        for sending in self._pending if posted is None else posted:
            self._finish(sending, deadline, f"rank {sending[2]} did not take a message in time")

    def _finish(self, begun, deadline, late):
        requests, _, peer = begun

        def done():
            with self._lock:  # MPI wants a request to be asked by one thread at a time
                return self.mpi.Request.Testall(requests)

        self.until(done, deadline, peer, late)

    def until(self, done, deadline, peer, late):
        """Ask done() until it is so, while `peer`, if any, is there.

        Errors  DeadlineError with the words `late`, PeerLost, CommunicationError with the reason if a rank aborted
        """
        pause, missed = SHORTEST, None
        while not done():
            self.check()
            now = time.monotonic()
            if missed is None and peer is not None and self._has_left(peer):
                missed = now + GRACE
            if missed is not None and now > missed:
                raise PeerLost(f"rank {peer} has ended; rank {self.rank}: {late}")
            if now > deadline:
                raise DeadlineError(f"rank {self.rank}: {late}")
            time.sleep(pause)
            pause = min(1.3 * pause, LONGEST)

    # ---- words about ranks ---------------------------------------------------------------------------------------

    def check(self):
        status = self.mpi.Status()
        word = self.messages.Improbe(self.mpi.ANY_SOURCE, ABORT, status)
        if word is not None:
            text = bytearray(status.Get_count(self.mpi.BYTE))
            word.Recv([text, self.mpi.BYTE])
            self._reason = self._reason or text.decode()
        if self._reason:
            raise CommunicationError(self._reason)

    def _has_left(self, peer):
        return self.messages.Iprobe(peer, LEAVE)

    def _tell(self, channel, text=""):
        text = text.encode()[:WORDS].decode(errors="ignore").encode()
        for peer in self._others:
            self._send(peer, channel, text)

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
        self.close()
        try:
            self.until(lambda: all(map(self._has_left, self._others)), float("inf"), None, "")
            self._linger(self._sent)  # some may never be taken
        except CommunicationError as why:
            if self.size > 1:
                sys.stderr.write(f"rank {self.rank}: the job ends: {why}\n")  # in one piece, for all write at once
                self._linger(lambda: self._sent() and False)  # in which the others may raise it
                self.mpi.COMM_WORLD.Abort(FAILED)

    def _sent(self):
        with self._lock:
            return all([self.mpi.Request.Testall(requests) for requests, *_ in self._pending])

    def _linger(self, enough):
        """A moment in which MPI goes on, as long as it is not enough."""
        limit = deadline_after(GRACE)
        while not enough() and time.monotonic() < limit:
            time.sleep(LONGEST)
