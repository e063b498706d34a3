"""Work ahead of the consumer, in one background thread."""

import contextvars
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from minigrad_kernels.errors import StateError

__all__ = ["prefetched"]

NAME = "minigrad-prefetch"
GONE = "Loader: the prefetch thread is gone (a forked process has none); use prefetch=0, or iterate anew in the child"


def prefetched(items, ahead):
    """Yield what the iterator yields, none of it None, computed in a thread, `ahead` items before they are asked for.

    Errors  RuntimeError in a process that was forked meanwhile, which has no such thread

    An exception of the iterator is raised in the consumer, after the items before it, with its own traceback.
    The thread ends with the last item, or when this generator is closed: by its end, by an exception, or
    because the consumer drops it.
    """
    pool, process = ThreadPoolExecutor(1, NAME), os.getpid()
    run = contextvars.copy_context().run  # settings such as numpy.errstate hold in the thread too
    waiting = deque(pool.submit(run, next, items, None) for _ in range(ahead))
    try:
        while (item := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(run, next, items, None))
            yield item
            if os.getpid() != process:
                raise StateError(GONE)
    finally:
        # The collector may run this in the very thread that ends here, which cannot wait for itself.
        own = threading.current_thread().name.startswith(NAME)
        if os.getpid() == process:
            pool.shutdown(wait=not own, cancel_futures=True)
