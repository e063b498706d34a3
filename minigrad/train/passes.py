"""Forward and backward passes of an update, with figures that stay where the model is."""

import contextlib

from minigrad_kernels.errors import KindError, ShapeError

from .. import ops
from ..core.tensor import Tensor

__all__ = ["made", "on_device", "passes", "right"]


def on_device(batches, model):
    """The batches where the parameters are."""
    parameter = next(iter(model.parameters()), None)
    for images, labels in batches:
        there = parameter is None or isinstance(labels, range)
        yield (images, labels) if there else (images.to(parameter.device), labels.to(parameter.device))


def made(batch):
    """(images, labels), made now where the GPU knows which are next: (what makes them, the range of their numbers)."""
    source, labels = batch
    return tuple(map(Tensor, source.following(len(labels)))) if isinstance(labels, range) else batch


def right(scores, labels):
    """How many scores are highest at their label, on their device."""
    return (ops.argmax(scores, 1) == labels).sum()


def passes(model, team, batches, loss_function, scaler):
    """Compute the gradients of an update; gives (loss, right answers, images) of each of this rank's batches."""
    total = sum(team.images(batches))
    for part in team.parts(batches):
        for number, (images, labels) in enumerate(on_device(part, model), 1):
            scores = model(images)
            loss = loss_function(scores, labels)
            if not isinstance(loss, Tensor):
                raise KindError(f"fit: loss gave a {type(loss).__name__}, want a Tensor")
            if loss.numel() != 1:
                raise ShapeError(f"fit: loss gave shape {loss.shape}, want one number, the mean over the batch")
            correct = right(scores, labels)
            share = len(labels) * team.shards / total  # the mean over all images weighs each batch by its own
            with team.holding() if number < len(part) else contextlib.nullcontext():
                scaler.scale(loss if share == 1 else loss * share).backward()
            yield loss, correct, len(labels)
