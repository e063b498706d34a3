"""A thread that looks on while NCCL works, and ends the process where that will never end.

A host that waits for its GPU cannot be woken. So the thread asks three things, again and again: whether the work has
ended, whether NCCL or the GPU failed, and whether the host's transport knows that the others are gone.
"""

import os
import sys
import threading
import time
from collections import deque

from .collectives import Work
from .errors import CommunicationError
from .rank import FAILED
from .transport import deadline_after

POLL = 0.05  # seconds between two looks at what goes on
GRACE = 2.0  # seconds in which the other ranks are told why this process ends, or in which it hears of their end
PATIENT = 3  # timeouts within which the caller's stream must come to a collective


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


class Started(Work):
    """What a stream was told to do: a collective, or a graph with collectives in it.

    before  an event of the caller's stream, after which it may start; after: one at its end
    kept    what holds its arrays, which must stay until it is done
    """

    ended = None  # the GPU alone knows

    def __init__(self, nccl, what, value, before, after, kept):
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
    """Looks at the works of NcclCollectives in their order, and ends the process where one is late or fails."""

    def __init__(self, nccl):
        self._nccl = nccl
        self._works, self._changed, self._closed = deque(), threading.Condition(), False
        self._thread = threading.Thread(target=self._serve, name="minigrad-nccl-watch", daemon=True)
        self._thread.start()

    def add(self, work):
        with self._changed:
            self._works.append(work)  # and so its arrays stay
            self._changed.notify_all()

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
            while (work := self._next()) is not None:
                why = self._looked_after(work)
                if why is not None and not self._closed:
                    return self._end(f"{work.what}: rank {self._nccl.rank}: {why}")
                with self._changed:
                    if self._works:  # none where it was closed meanwhile
                        self._works.popleft()
                    self._changed.notify_all()
                del work  # and with it the arrays

    def _next(self):
        """The oldest work, once there is one; None when the watch is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._works or self._closed)
            return None if self._closed else self._works[0]

    def _looked_after(self, work):
        """Wait for the end of a work; None, or why it will not end."""
        timeout = self._nccl.timeout
        limit, why = deadline_after(PATIENT * timeout), "the GPU did not come to it"
        begun = gone = False
        try:
            while not (work.done or self._closed):
                self._nccl.check()
                if not gone and (reason := self._reason()):
                    limit, why, gone = min(limit, deadline_after(GRACE)), reason, True
                if not (begun or gone) and work.begun:
                    limit, why, begun = deadline_after(timeout), f"not done after {timeout:g} s", True
                if time.monotonic() > limit:
                    return why
                time.sleep(POLL)
        except Exception as error:  # CuPy has no error of its own for every code
            return f"the GPU or NCCL failed: {error}"
        return None

    def _reason(self):
        """Why communication has ended on the host, None if it has not."""
        try:
            self._nccl.transport.check()
        except CommunicationError as error:
            return str(error)
        return None

    def _end(self, why):
        """Tell why, and end the process: the only way out for one that waits for its GPU."""
        sys.stderr.write(f"{why}\n")
        sys.stderr.flush()
        within(GRACE, self._nccl.gpu, lambda: self._nccl.transport.abort(why))
        os._exit(FAILED)
