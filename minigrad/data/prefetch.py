"""Work ahead of the consumer, in one background thread."""

import contextvars
import os
import threading
from collections import deque

from minigrad_kernels.errors import StateError

__all__ = ["prefetched"]

LOOK_AGAIN = 1.0  # seconds; a bounded wait lets Ctrl-C through on every system and notices a thread that is gone
LAST_WAIT = 5.0  # seconds for the thread to finish the item in hand, once nobody wants it
GONE = "Loader: the prefetch thread is gone (a forked process has none); use prefetch=0, or iterate anew in the child"


def prefetched(items, ahead):
    """Yield what the iterable yields, computed in a thread that keeps at most `ahead` items waiting.

    An exception of the iterable is raised in the consumer, after the items before it, with its own traceback.
    The thread ends with the last item, or when this generator is closed: by its end, by an exception, or
    because the consumer drops it.
    """
    channel = _Channel(ahead)
    # The context carries settings such as numpy.errstate into the thread.
    run = contextvars.copy_context().run
    thread = threading.Thread(target=run, args=(_fill, channel, items), name="minigrad-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = channel.get(thread)
            if kind == "end":
                return
            if kind == "error":
                try:
                    raise value
                finally:
                    del value  # else the exception, its traceback and this frame hold each other
            yield value
    finally:
        channel.close()
        # The collector may run this in the very thread it is to end.
        if thread is not threading.current_thread():
            thread.join(LAST_WAIT)


def _fill(channel, items):
    try:
        for item in items:
            if not channel.put(("item", item)):
                return
        channel.put(("end", None))
    except BaseException as error:
        channel.put(("error", error))


class _Channel:
    """A bounded queue that its consumer can close."""

    def __init__(self, capacity):
        # Its lock may be taken twice by one thread: close() can run in a collection inside put or get.
        self.changed = threading.Condition()
        self.entries = deque()
        self.capacity = capacity
        self.closed = False
        self.process = os.getpid()

    def put(self, entry):
        """Wait for room and add the entry; False if nobody wants it any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.entries) < self.capacity)
            if not self.closed:
                self.entries.append(entry)
                self.changed.notify_all()
            return not self.closed

    def get(self, thread):
        if self.process != os.getpid():  # the thread of the parent may have held the lock at the fork
            raise StateError(GONE)
        with self.changed:
            while not self.changed.wait_for(lambda: self.entries, LOOK_AGAIN):
                if not thread.is_alive() and not self.entries:
                    raise StateError(GONE)
            entry = self.entries.popleft()
            self.changed.notify_all()
            return entry

    def close(self):
        if self.process != os.getpid():
            return
        with self.changed:
            self.closed = True
            self.entries.clear()
            self.changed.notify_all()
