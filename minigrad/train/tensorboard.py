"""Event files for TensorBoard, written by the package tensorboardX.

By its RecordWriter and not its SummaryWriter. That one writes in a thread of its own, behind a queue: where the disk is
full the thread ends, and the training would wait for room in the queue for ever.
"""

import os
import time
import warnings
from contextlib import AbstractContextManager, contextmanager, suppress

from minigrad_kernels.errors import StateError

from .callbacks import Callback

__all__ = ["TensorBoard"]

TAGS = {"loss": "loss/train", "test_loss": "loss/test", "accuracy": "accuracy/train", "test_accuracy": "accuracy/test"}


class TensorBoard(AbstractContextManager, Callback):
    """A callback that writes what `tensorboard --logdir FOLDER` shows; a context that closes the file at its end.

    folder      where the event files go; one of an earlier call of fit may lie there
    optimizer   its rate is written after each update, if it is given
    say         is called with a sentence where the file cannot be written, as on a full disk: then no more is written,
                and the training goes on. Default: warnings.warn

    The step of a figure is the number of updates so far. After each update: step/loss, the mean over the images of the
    update, and step/lr. After each epoch: loss/train, loss/test, accuracy/train and accuracy/test (fractions of 1), as
    far as the row of the history has them. Where a run goes on from an earlier checkpoint, the figures that it had
    written for later steps are marked as gone. How weights and gradients are distributed is in report.html.

    Errors  RuntimeError where tensorboardX is not installed
    """

    def __init__(self, folder, optimizer=None, say=warnings.warn):
        self.check_installed()
        self.folder, self.optimizer, self.say, self.writer = folder, optimizer, say, None

    @staticmethod
    def check_installed():
        """Errors: RuntimeError where tensorboardX is not installed, with the command that does."""
        from importlib.util import find_spec

        if find_spec("tensorboardX") is None:
            raise StateError('TensorBoard: tensorboardX is not installed; pip install -e ".[tensorboard]"')

    def __exit__(self, *exception):
        writer, self.writer = self.writer, None
        with suppress(OSError):
            if writer is not None:
                writer.close()

    @contextmanager
    def _giving_up(self):
        """Inside, a disk that fails ends the writing."""
        try:
            yield
        except OSError as error:
            self.__exit__()
            self.say(f"TensorBoard: {self.folder} cannot be written: {error}; the training goes on without")

    def _write(self, step, *events):
        from tensorboardX.proto.event_pb2 import Event

        with self._giving_up():
            for event in events if self.writer else ():
                self.writer.write(Event(step=step, wall_time=time.time(), **event).SerializeToString())
                self.writer.flush()

    def on_start(self, history):
        from tensorboardX.record_writer import RecordWriter

        self.before = history.running.loss, history.running.images  # when a figure was written last
        step, start = history.steps + 1, {"session_log": {"status": "START"}}  # what was written of later steps is gone
        with self._giving_up():
            os.makedirs(self.folder, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.0f}.{os.getpid()}.{step}"
            self.writer = RecordWriter(os.path.join(self.folder, name))
        self._write(step, {"file_version": "brain.Event:2"}, start)

    def on_step(self, history):
        (loss, images), running = self.before, history.running
        self.before = running.loss, running.images
        figures = {"step/loss": (running.loss - loss) / (running.images - images)}
        if self.optimizer is not None:
            figures["step/lr"] = self.optimizer.param_groups[0]["lr"]
        self._write(history.steps, *_scalars(figures))

    def on_epoch(self, history):
        self.before = 0.0, 0
        figures = {tag: history[-1][name] for name, tag in TAGS.items() if history[-1].get(name) is not None}
        self._write(history.steps, *_scalars(figures))


def _scalars(figures):
    """An event for each figure."""
    return [{"summary": {"value": [{"tag": tag, "simple_value": value}]}} for tag, value in figures.items()]
