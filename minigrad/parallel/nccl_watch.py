"""A thread that looks on while NCCL works, and ends the process where that will never end.

A host that waits for its GPU cannot be woken. So the thread asks three things, again and again: whether the work has
ended, whether NCCL or the GPU failed, and whether the host's transport knows that the others are gone.
"""

import os
import sys
import threading
import time
from collections import deque

from .errors import CommunicationError
from .rank import FAILED
from .transport import deadline_after
from .work import Work

__all__ = ["GRACE", "Calling", "Started", "Watch", "within"]

POLL = 0.05  # seconds between two looks at what goes on
GRACE = 2.0  # seconds in which the other ranks are told why this process ends, or in which it hears of their end
PATIENT = 10  # timeouts within which the caller's stream must come to a collective


def within(seconds, gpu, *calls):
    """Make calls that may never come back, each in a thread of its own, and wait for all of them only so long."""

    def run(call):
        with gpu.active():  # a thread that chooses none makes a context on GPU 0
            call()

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    limit = deadline_after(seconds)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))


class Calling(Work):
    """A call of NCCL that has not come back: the first ones wait for the other ranks on the host."""

    begun, mercy = True, 5.0  # words by way of the host have a deadline of their own, which comes first

    def __init__(self, what):
        super().__init__()
        self.what = what


class Started(Work):
    """What a stream was told to do: a collective, or a graph with collectives in it.

    mercy   seconds beyond the deadline
    before  an event of the caller's stream, after which it may start; after: one at its end
    kept    what holds its arrays, which must stay until it is done
    """

    mercy = 0.0

    def __init__(self, nccl, what, value, before, after, kept):
        super().__init__()
        self.what, self._nccl, self._value, self._kept = what, nccl, value, kept
        self._before, self._after = before, after

    @property
    def begun(self):
        """Whether the caller's stream has come to it, so that it waits for other ranks alone."""
        return self._nccl.has_passed(self._before)

    @property
    def done(self):
        return self._nccl.has_passed(self._after)

    def wait(self, timeout=None):
        """The array, for what the current stream is told from now on; the host does not wait."""
        with self._nccl.gpu.active():
            self._nccl.wait_for(self._after)
        return self._value


class Watch:
    """Looks at works in their order, and ends the process where one is late or fails."""

    def __init__(self, nccl, exchange):
        self.rank, self._exchange, self._nccl, self._transport = exchange.rank, exchange, nccl, exchange.transport
        self._works, self._changed, self._thread, self._closed = deque(), threading.Condition(), None, False

    def add(self, work):
        with self._changed:
            self._works.append(work)  # and so its arrays stay
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="minigrad-nccl-watch", daemon=True)
            self._thread.start()

    def drain(self):
        """Wait until all works are done, which they are in time or the process ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._works or self._closed)

    def close(self):
        with self._changed:
            self._closed = True
            self._works.clear()
            self._changed.notify_all()

    def _serve(self):
        with self._nccl.gpu.active():
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._works or self._closed)
                    if self._closed:
                        return
                    work = self._works[0]
                why = self._looked_after(work)
                with self._changed:
                    if self._closed:
                        return
                    if why is not None:
                        break
                    self._works.popleft()
                    self._changed.notify_all()
                del work  # and with it the arrays
            self._end(f"{work.what}: rank {self.rank}: {why}")

    def _looked_after(self, work):
        """Wait for the end of a work; None, or why it will not end."""
        limit, why = deadline_after(PATIENT * self._exchange.timeout), "the GPU did not come to it"
        begun = gone = False
        try:
            while not (work.done or self._closed):
                self._nccl.check()
                if not begun and (begun := work.begun) and not gone:
                    limit, why = (
                        deadline_after(self._exchange.timeout + work.mercy),
                        f"not done after {self._exchange.timeout:g} s",
                    )
                if not gone and (reason := self._reason()):
                    limit, why, gone = min(limit, deadline_after(GRACE)), reason, True
                if time.monotonic() > limit:
                    return why
                time.sleep(POLL)
        except Exception as error:  # CuPy has no error of its own for every code
            return f"the GPU or NCCL failed: {error}"
        return None

    def _reason(self):
        """Why communication has ended on the host, None if it has not."""
        try:
            self._transport.check()
        except CommunicationError as error:
            return str(error)
        return None

    def _end(self, why):
        """Tell why, and end the process: the only way out for one that waits for its GPU."""
        sys.stderr.write(f"{why}\n")
        sys.stderr.flush()
        within(GRACE, self._nccl.gpu, lambda: self._transport.abort(why))
        self._nccl.end("abort", GRACE)
        os._exit(FAILED)
