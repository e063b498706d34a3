"""A rank ends when its agent is gone: the agent holds one end of a pipe, and each rank waits for its end of file."""

import os
import threading

from ..transport import FAILED

__all__ = ["WATCH", "watch"]

WATCH = "MINIGRAD_WATCH"  # the number of the descriptor


def watch():
    """Begin to wait for the end of the agent in a thread, which then ends this process with exit code 75.

    Where there is no agent, nothing happens; nor on a second call. Linux kills a rank with its agent in any case.
    """
    number = os.environ.pop(WATCH, "")  # not for programs that this one starts: they do not have the descriptor
    if number.isdigit():
        os.set_inheritable(int(number), False)
        threading.Thread(target=_wait, args=(int(number),), name="minigrad watch", daemon=True).start()


def _wait(descriptor):
    while os.read(descriptor, 1):
        pass
    os._exit(FAILED)
