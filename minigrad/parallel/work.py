"""Work: an operation that was begun, and the thread in which operations go on beside the caller."""

import queue
import threading
import time

from .errors import DeadlineError

__all__ = ["Work", "Worker"]


class Work:
    """What an operation that goes on by itself will give.

    ended   the time.perf_counter() of its end, None before
    """

    def __init__(self):
        self._ended = threading.Event()
        self._value = self._error = self.ended = None

    @property
    def done(self):
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def end(self, value, error=None):
        """Called once, by whoever does the work."""
        self._value, self._error, self.ended = value, error, time.perf_counter()
        self._ended.set()

    def wait(self, timeout=None):
        """The result, once it is there. Errors: those of the operation; DeadlineError after so many seconds."""
        if not self._ended.wait(timeout):
            raise DeadlineError(f"wait: not done after {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value


class Worker:
    """Does what it is given one after another, in a thread that is started when it is first needed."""

    def __init__(self):
        self._tasks, self._thread = queue.SimpleQueue(), None
        self._last = None

    @property
    def idle(self):
        return self._last is None or self._last.done

    def submit(self, run):
        """Have run() called after all that was submitted before; returns its Work."""
        work = self._last = Work()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="minigrad-communication", daemon=True)
            self._thread.start()
        self._tasks.put((run, work))
        return work

    def _serve(self):
        while (task := self._tasks.get()) is not None:
            run, work = task
            try:
                work.end(run())
            except BaseException as error:  # raised again where the work is waited for
                work.end(None, error)
            del task, run, work

    def close(self):
        """Wait until the thread has ended, after what it was given."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
