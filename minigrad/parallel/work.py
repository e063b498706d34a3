"""Work: an operation that was begun and goes on beside the caller."""

from concurrent import futures

from .errors import DeadlineError

__all__ = ["Work"]


class Work:
    """What an operation that goes on by itself will give; its Future gives the time.perf_counter() of its end."""

    def __init__(self, future, value):
        self._future, self._value = future, value

    @property
    def done(self):
        """Whether it has ended, well or not."""
        return self._future.done()

    @property
    def ended(self):
        """The time.perf_counter() of its end, None before."""
        return self._future.result() if self.done else None

    def wait(self, timeout=None):
        """The result, once it is there. Errors: those of the operation; DeadlineError after so many seconds."""
        if not futures.wait([self._future], timeout).done:
            raise DeadlineError(f"wait: not done after {timeout} s")
        self._future.result()
        return self._value
