"""Work ahead of the consumer, in one background thread."""

import contextvars
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

__all__ = ["prefetched"]

END = object()


def prefetched(items, ahead):
    """Yield what the iterable yields, computed in a thread, `ahead` items before they are asked for.

    An exception of the iterable is raised in the consumer, after the items before it, with its own traceback.
    The thread ends with the last item, or when this generator is closed: by its end, by an exception, or
    because the consumer drops it.
    """
    items, pool = iter(items), ThreadPoolExecutor(1, "minigrad-prefetch")
    run = contextvars.copy_context().run  # settings such as numpy.errstate hold in the thread too
    waiting = deque(pool.submit(run, next, items, END) for _ in range(ahead))
    try:
        while (item := waiting.popleft().result()) is not END:
            waiting.append(pool.submit(run, next, items, END))
            yield item
    finally:
        # The collector may run this in the very thread that ends here, which cannot wait for itself.
        own = threading.current_thread().name.startswith("minigrad-prefetch")
        pool.shutdown(wait=not own, cancel_futures=True)
