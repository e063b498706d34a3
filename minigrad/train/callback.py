"""What hangs on the training loop."""

__all__ = ["Callback", "Callbacks"]


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


class Callbacks(Callback):
    """Several as one, called in their order."""

    def __init__(self, callbacks):
        self.callbacks = list(callbacks)

    def on_start(self, history):
        for callback in self.callbacks:
            callback.on_start(history)

    def on_step(self, history):
        for callback in self.callbacks:
            callback.on_step(history)

    def on_epoch(self, history):
        for callback in self.callbacks:
            callback.on_epoch(history)

    def stop(self, history):
        return any([callback.stop(history) for callback in self.callbacks])  # a list, so that each is asked
