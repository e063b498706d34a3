"""A loss that is not finite: why, and how what went on after it is taken back."""

import math
from collections import deque

import numpy as np

from minigrad_kernels.errors import StateError

from .. import device
from ..core.tape import write
from ..data.shards import Shards
from .team import module_of

__all__ = ["Marks", "NotFinite", "check_losses", "not_finite"]

EVERY = 16  # updates between two marks
ADVICE = "lower the learning rate or clip the gradient"


class NotFinite(StateError):
    """A loss, a gradient or a weight that is infinite or NaN."""


def check_losses(rows, step, history, model, batches=()):
    """Refuse rows (sum of losses, right answers, images) of an update whose loss is not finite."""
    for loss, _, images in rows:
        if not math.isfinite(loss):
            raise not_finite(f"the loss is {loss / images} at step {step}", history, model, batches)


def not_finite(what, history, model, batches=()):
    """The error that says what is not finite, in which epoch, what to do, and what was not finite before."""
    wrong, tensors = _wrong_image(batches), module_of(model).state_dict()
    advice = ADVICE if wrong is None else f"{wrong}: mend the data or the transform"
    before = "" if wrong else next((f"; {name} is not finite" for name in tensors if not _finite(tensors[name])), "")
    return NotFinite(f"fit: {what}; {advice} (epoch {len(history) + 1}{before})")


def _wrong_image(batches):
    """The first image with elements that are not finite, in words; None if there is none."""
    for number, batch in enumerate(batches):
        for images, _ in filter(None, batch if isinstance(batch, Shards) else [batch]):
            array = device.host(images.array)
            wrong = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
            if wrong.size:
                of = f" of batch {number} of the update" if len(batches) > 1 else ""
                return f"images[{wrong[0]}]{of} has NaN or infinity"
    return None


def _finite(tensor):
    return bool(np.isfinite(device.host(tensor.array)).all())


class Marks:
    """What the buffers of a model, such as running statistics, held before some updates: a bad loss spoils them."""

    def __init__(self, model):
        self.buffers = list(module_of(model).buffers())
        self.marks: deque = deque()  # (number of the update that follows, copies of the buffers)

    def note(self, number, unknown):
        """The update of this number comes next; that of number `unknown` is the first whose loss was not seen yet."""
        self._pass(unknown)
        if not self.marks or number - self.marks[-1][0] >= EVERY:
            self.marks.append((number, [_on_its_device(device.copy, buffer.array) for buffer in self.buffers]))

    def _pass(self, unknown):
        """Leave the last mark before this update, and later ones."""
        while len(self.marks) > 1 and self.marks[1][0] <= unknown:
            self.marks.popleft()

    def restore(self, number):
        """Give buffers that are not finite what they held at the last mark before this update."""
        self._pass(number)
        for buffer, kept in zip(self.buffers, self.marks[0][1], strict=True):
            if not _finite(buffer):
                _on_its_device(device.assign, write(buffer), kept)
        self.marks.clear()


def _on_its_device(action, array, *others):
    with device.place_of(array).active():
        return action(array, *others)
