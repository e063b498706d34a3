"""Event files for TensorBoard, written by the package tensorboardX."""

import math

from minigrad_kernels.errors import StateError

from ..device import host
from .callback import Callback
from .team import module_of

__all__ = ["TensorBoard"]

TAGS = {
    "loss": "loss/train",
    "test_loss": "loss/test",
    "accuracy": "accuracy/train",
    "test_accuracy": "accuracy/test",
    "images_per_second": "images_per_second",
}


class TensorBoard(Callback):
    """A callback that writes what `tensorboard --logdir FOLDER` shows; a context that closes the file at its end.

    folder      where the event files go; one of an earlier call of fit may lie there
    model       its weights and latest gradients are written as histograms after each epoch, if it is given
    optimizer   its rate is written after each update, if it is given

    The step of a figure is the number of updates so far. After each update: step/loss, the mean over the images of the
    update, and step/lr. After each epoch, of its row in the history: loss/train, loss/test, accuracy/train,
    accuracy/test (fractions of 1) and images_per_second, as far as the row has them; then weights/NAME and
    gradients/NAME of each parameter. Figures of later steps that a run left behind, which then was taken up from an
    earlier checkpoint, are marked as gone.

    Errors  RuntimeError where tensorboardX is not installed
    """

    def __init__(self, folder, model=None, optimizer=None):
        self.check_installed()
        self.folder, self.model, self.optimizer = folder, model, optimizer
        self.writer = None
        self.before = 0.0, 0  # sum of losses, images of the epoch when a figure was written last

    @staticmethod
    def check_installed():
        """Errors: RuntimeError where tensorboardX is not installed, with the command that does."""
        from importlib.util import find_spec

        if find_spec("tensorboardX") is None:
            raise StateError('TensorBoard: tensorboardX is not installed; pip install -e ".[tensorboard]"')

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Write what is not in the file yet, and close it."""
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def on_start(self, history):
        from tensorboardX import SummaryWriter

        if self.writer is None:
            first = history.steps + 1  # in the file's name too: names have whole seconds alone
            self.writer = SummaryWriter(str(self.folder), purge_step=first, filename_suffix=f".{first}")
        self.before = history.running.loss, history.running.images

    def on_step(self, history):
        (loss, images), running = self.before, history.running
        self.writer.add_scalar("step/loss", (running.loss - loss) / (running.images - images), history.steps)
        if self.optimizer is not None:
            self.writer.add_scalar("step/lr", self.optimizer.param_groups[0]["lr"], history.steps)
        self.before = running.loss, running.images

    def on_epoch(self, history):
        row = history[-1]
        for name, tag in TAGS.items():
            if row.get(name) is not None:
                self.writer.add_scalar(tag, row[name], history.steps)
        if self.model is not None:
            for name, parameter in module_of(self.model).named_parameters():
                self._histogram(f"weights/{name}", parameter, history.steps)
                self._histogram(f"gradients/{name}", parameter.grad, history.steps)
        self.before = 0.0, 0
        self.writer.flush()

    def _histogram(self, tag, tensor, step):
        """Of finite elements; TensorBoard has no bin for others."""
        values = None if tensor is None else host(tensor.data)
        if values is not None and values.size and math.isfinite(values.sum()):
            self.writer.add_histogram(tag, values, step)
