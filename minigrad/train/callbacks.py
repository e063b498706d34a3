"""What hangs on the training loop."""

import contextlib
import os
import signal
import threading

__all__ = ["Callback", "Interruption"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Callback:
    """Called by fit at the points that the methods name; each gets the History. Override what is needed."""

    def on_start(self, history):
        """Before the first update."""

    def on_step(self, history):
        """After each update; history.running holds the sums of the epoch so far."""

    def on_epoch(self, history):
        """After each epoch; history[-1] is its row."""

    def stop(self, history):
        """Whether to end now. Asked after each update and epoch, and while the test data are evaluated."""
        return False


class Interruption(Callback):
    """Ctrl-C, and the request to end that systems send, as a wish that is granted between two updates.

    While this is entered as a context, the first signal makes fit return after the update under way. A second one
    raises KeyboardInterrupt. On several ranks all leave after the same update, whichever got the signal.

    requested   the number of the signal, 0 before there was one
    """

    def __init__(self):
        self.requested = 0
        self.before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            self.before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *exception):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self.requested:
            raise KeyboardInterrupt
        self.requested = number
        # Not print: the signal may come while a print is at work. And nobody may be there to read it.
        with contextlib.suppress(OSError):
            os.write(2, b"\nstopping after this step; once more to quit at once\n")

    def stop(self, history):
        return self.requested != 0
