"""What hangs on the training loop."""

__all__ = ["Callback"]


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
