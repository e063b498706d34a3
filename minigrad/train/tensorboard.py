"""Event files for TensorBoard, written by the package tensorboardX."""

import contextlib
import math
import os
import socket
import time
import warnings

from minigrad_kernels.errors import KindError, StateError

from ..device import host
from ..nn import Module
from ..optim import Optimizer
from .callback import Callback
from .team import module_of

__all__ = ["TensorBoard"]

GROWTH = [1e-12 * 1.1**k for k in range(775)]  # to 1e20, as TensorBoard's own histograms
EDGES = [*(-edge for edge in reversed(GROWTH)), 0.0, *GROWTH]

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
    say         is called with a sentence where the file cannot be written, as on a full disk: then no more is written,
                and the training goes on. Default: warnings.warn

    The step of a figure is the number of updates so far. After each update: step/loss, the mean over the images of the
    update, and step/lr. After each epoch, of its row in the history: loss/train, loss/test, accuracy/train,
    accuracy/test (fractions of 1) and images_per_second, as far as the row has them; then weights/NAME and
    gradients/NAME of each parameter. Figures of later steps that a run left behind, which then was taken up from an
    earlier checkpoint, are marked as gone.

    Errors  RuntimeError where tensorboardX is not installed, TypeError for arguments of other kinds
    """

    def __init__(self, folder, model=None, optimizer=None, say=warnings.warn):
        self.check_installed()
        if not isinstance(folder, str | os.PathLike):
            raise KindError(f"TensorBoard: folder is {folder!r}, want a string or a path")
        for name, value, kind in (("model", model, Module), ("optimizer", optimizer, Optimizer)):
            if value is not None and not isinstance(value, kind):
                raise KindError(f"TensorBoard: {name} is {value!r}, want an instance of {kind.__name__} or None")
        self.folder, self.model, self.optimizer, self.say = folder, model, optimizer, say
        self.writer, self.lost = None, False  # lost: whether the file could not be written
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
            self._tried(self.writer.close)
        self.writer = None

    def on_start(self, history):
        if self.writer is None and not self.lost:
            self._tried(self._open, history.steps + 1)
        self.before = history.running.loss, history.running.images

    def _open(self, first):
        """Begin a file in which figures of earlier sessions from this step on are marked as gone."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.record_writer import RecordWriter

        os.makedirs(self.folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{first}"  # times are of whole seconds
        self.writer = RecordWriter(os.path.join(self.folder, name))
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=first, session_log=SessionLog(status=SessionLog.START)))

    def _write(self, event):
        event.wall_time = time.time()
        self.writer.write(event.SerializeToString())

    def _tried(self, action, *arguments):
        """Do what needs the disk; where that fails, do without from now on."""
        try:
            action(*arguments)
        except OSError as error:
            self.lost = True
            with contextlib.suppress(OSError):
                if self.writer is not None:
                    self.writer.close()
            self.writer = None
            self.say(f"TensorBoard: {self.folder} cannot be written: {error}; the training goes on without")

    def _add(self, summary, step):
        from tensorboardX.proto.event_pb2 import Event

        if self.writer is not None:
            self._tried(self._write, Event(step=step, summary=summary))

    def _scalar(self, tag, value, step):
        from tensorboardX.summary import scalar

        self._add(scalar(tag, value), step)

    def on_step(self, history):
        (loss, images), running = self.before, history.running
        self._scalar("step/loss", (running.loss - loss) / (running.images - images), history.steps)
        if self.optimizer is not None:
            self._scalar("step/lr", self.optimizer.param_groups[0]["lr"], history.steps)
        self.before = running.loss, running.images

    def on_epoch(self, history):
        row = history[-1]
        for name, tag in TAGS.items():
            if row.get(name) is not None:
                self._scalar(tag, row[name], history.steps)
        if self.model is not None:
            for name, parameter in module_of(self.model).named_parameters():
                self._histogram(f"weights/{name}", parameter, history.steps)
                self._histogram(f"gradients/{name}", parameter.grad, history.steps)
        self.before = 0.0, 0
        if self.writer is not None:
            self._tried(self.writer.flush)

    def _histogram(self, tag, tensor, step):
        """Of finite elements; TensorBoard has no bin for others."""
        values = None if tensor is None else host(tensor.data)
        if values is not None and values.size and math.isfinite(values.sum()):
            from tensorboardX.summary import histogram

            self._add(histogram(tag, values, EDGES), step)
