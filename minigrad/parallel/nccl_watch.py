"""What NCCL was told to do, and a thread that looks on, so that no process waits for its GPU for ever."""

import os
import sys
import threading
import time
from collections import deque

from .transport import FAILED, deadline_after
from .work import Work

__all__ = ["GRACE", "Calling", "Started", "Watch"]

POLL = 0.05  # seconds between two looks at what goes on
GRACE = 2.0  # seconds in which the other ranks are told why this process ends


class Calling(Work):
    """A call of NCCL that has not come back: the first ones wait for the other ranks on the host."""

    begun, mercy = True, 5.0  # words by way of the host have a deadline of their own, which comes first

    def __init__(self, what):
        super().__init__()
        self.what = what


class Started(Work):
    """A collective that its stream was told to do.

    mercy   seconds beyond the deadline
    before  an event of the caller's stream, after which it may start
    kept    what holds its arrays, which must stay until it is done
    """

    mercy = 0.0

    def __init__(self, nccl, what, value, before, kept):
        super().__init__()
        self.what, self._nccl, self._value, self._before, self._kept = what, nccl, value, before, kept
        self._after = nccl.reached()

    @property
    def begun(self):
        """Whether the caller's stream has come to it, so that it waits for other ranks alone."""
        return self._before.done

    @property
    def done(self):
        return self._after.done

    def wait(self, timeout=None):
        """The array, for what the current stream is told from now on; the host does not wait."""
        with self._nccl.gpu.active():
            self._nccl.wait_for(self._after)
        return self._value


class Watch:
    """A thread that looks on while works are under way, and ends the process where one is late or fails."""

    def __init__(self, nccl, exchange, rank):
        self.rank, self.timeout = rank, exchange.timeout
        self._nccl, self._transport = nccl, exchange.transport
        self._works, self._changed, self._thread, self._closed = deque(), threading.Condition(), None, False

    def add(self, work):
        with self._changed:
            self._works.append(work)  # and so its arrays stay
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="minigrad-nccl-watch", daemon=True)
            self._thread.start()

    def drain(self):
        """Wait until all works are done."""
        with self._changed:
            self._changed.wait_for(lambda: not self._works or self._closed)

    def close(self):
        with self._changed:
            self._closed = True
            self._works.clear()
            self._changed.notify_all()

    def _serve(self):
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
        limit = None
        try:
            while not (work.done or self._closed):
                if self._nccl.connected:
                    self._nccl.check()
                if limit is None and work.begun:
                    limit = deadline_after(self.timeout + work.mercy)
                if limit is not None and time.monotonic() > limit:
                    return f"not done after {self.timeout:g} s"
                time.sleep(POLL)
        except Exception as error:  # CuPy has no error of its own for every code
            return f"the GPU or NCCL failed: {error}"
        return None

    def _end(self, why):
        """Tell why, and end the process: the only way out for one that waits for its GPU."""
        sys.stderr.write(f"{why}\n")
        sys.stderr.flush()
        for end in (lambda: self._transport.abort(why), self._nccl.abort):  # either may get stuck itself
            thread = threading.Thread(target=end, daemon=True)
            thread.start()
            thread.join(GRACE)
        os._exit(FAILED)
