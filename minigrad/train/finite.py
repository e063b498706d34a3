"""A loss that is not finite: why, and how what went on after it is taken back."""

import math

import numpy as np

from minigrad_kernels.errors import StateError

from .. import device
from ..core.tape import write
from ..data.loader import Shards
from .team import module_of

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
    parts = [part for batch in batches for part in (batch.parts if isinstance(batch, Shards) else [batch]) if part]
    wrong = [f"images[{i}]" for images, _ in parts for i in np.flatnonzero([not _finite(one) for one in images])]
    if wrong:
        advice, before = f"{wrong[0]} has NaN or infinity: mend the data or the transform", ""
    else:
        tensors = module_of(model).state_dict()
        advice, before = ADVICE, next((f"; {name} is not finite" for name in tensors if not _finite(tensors[name])), "")
    return NotFinite(f"fit: {what}; {advice} (epoch {len(history) + 1}{before})")


def _finite(tensor):
    return bool(np.isfinite(device.host(tensor.array)).all())


def marked(model):
    """A function that gives buffers that are no longer finite, such as running statistics, what they hold now."""
    copies = [(buffer, device.copy(buffer.array)) for buffer in module_of(model).buffers()]

    def back():
        for buffer, kept in copies:
            if not _finite(buffer):
                device.assign(write(buffer), kept)

    return back
