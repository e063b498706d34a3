"""Ctrl-C while the command `minigrad` is still being imported: one line and no traceback, as later on.

In any other program that imports the package nothing is done here.
"""

import os
import signal
import sys
import threading

__all__ = ["INTERRUPTED", "started"]

INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C


def _quit(number, frame):
    """Nothing was begun yet, so nothing is to be put in order."""
    os.write(2, b"minigrad: interrupted\n")
    os._exit(INTERRUPTED)


def _is_the_command():
    words = sys.orig_argv
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return module == ["minigrad"] or os.path.splitext(os.path.basename(sys.argv[0]))[0] == "minigrad"


def started():
    """From now on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    and _is_the_command()
):
    signal.signal(signal.SIGINT, _quit)
