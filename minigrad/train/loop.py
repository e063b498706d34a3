"""The training loop.

Images come as batches (images, labels) of Tensors; a model maps images to scores, one for each class. A loss
is called as loss(scores, labels) and gives the mean over the batch.
"""

import contextlib
import itertools
import math
import time
from numbers import Real

from minigrad_kernels.errors import KindError, MinigradError, OutOfMemory, ShapeError, StateError

from .. import ops
from ..data import Dataset
from ..modes import no_grad
from ..nn import Module
from ..optim import Optimizer, clip_grad_norm_
from ..optim.lr_scheduler import LRScheduler, MetricLR
from ..parallel import ShardedOptimizer
from .callback import Callbacks
from .history import History
from .team import team_of

__all__ = ["evaluate", "evaluation", "fit", "on_device"]


def fit(
    model,
    loader,
    optimizer,
    epochs,
    *,
    test=None,
    loss=ops.cross_entropy,
    schedule=None,
    accumulate=1,
    clip=None,
    history=None,
    callbacks=(),
):
    """Train until the history has `epochs` rows, one an epoch, or a callback says stop; returns the history.

    model       may be a DataParallel: then each rank calls fit alike, with a loader that has the model's sampler, and
                all get the same history
    test        batches to evaluate after each epoch, on several ranks shared among them
    schedule    stepped after each update; one that watches a metric (MetricLR) instead after each epoch, with the
                loss on the test data, or of the epoch's row where there are none, before callbacks see the epoch
    accumulate  batches to an update; it is the update of the one large batch, also where the last is smaller
    clip        the largest 2-norm of the gradient of all parameters together
    history     of an earlier call, to go on from; the loader then stands where that call left it
    callbacks   Callbacks; with none, nothing is printed: Progress(images, epochs) shows a line for each epoch

    loss and accuracy of a row are means over the epoch while the weights changed, in training mode.
    Errors  RuntimeError at a loss that is not finite, the weights as before that update, or at a test loss that
            is not; ValueError and TypeError for options out of range
    """
    _check_parts(model, optimizer, schedule, loader=loader, test=test)
    _check_options(epochs, accumulate, clip, optimizer)
    history, callback, team = History() if history is None else history, Callbacks(callbacks), team_of(model)
    options = {"epochs": epochs, "accumulate": accumulate, "clip": clip, "optimizer": optimizer}
    team.agree({**options, "updates so far": history.steps, "loader": getattr(loader, "state_dict", dict)()})
    stop = lambda: team.agreed(callback.stop(history))
    history.first_step_seconds = None
    watcher = schedule if isinstance(schedule, MetricLR) else None
    stepped = schedule if watcher is None else None
    update = lambda batches: _update(model, team, batches, optimizer, loss, stepped, clip, history.steps + 1)
    callback.on_start(history)
    while len(history) < epochs:
        running = history.running
        if running.lr is None:
            running.lr = optimizer.param_groups[0]["lr"]
        if not running.trained:
            model.train()
            running.trained = _train_epoch(loader, accumulate, update, history, callback, stop)
        if not running.trained or not _close_epoch(model, test, loss, history, stop):
            break
        if watcher is not None:
            watcher.step(history[-1].get("test_loss", history[-1]["loss"]))
        callback.on_epoch(history)
        if stop():
            break
    return history


def _train_epoch(loader, accumulate, update, history, callback, stop):
    """Update on every group of batches; False if told to stop."""
    before = time.perf_counter()
    for batches in _groups(loader, accumulate):
        loss, correct, images = update(batches)
        running, now = history.running, time.perf_counter()
        running.loss += loss
        running.correct += correct
        running.images += images
        if history.first_step_seconds is None:
            history.first_step_seconds = now - before
        else:
            running.seconds += now - before
            running.timed_images += images
        history.steps += 1
        before = now
        callback.on_step(history)
        # A short group used the loader up, which then stands at the next epoch: this one is done.
        if len(batches) == accumulate and stop():
            return False
    return True


def _close_epoch(model, test, loss, history, stop):
    """Evaluate and add the row; False if told to stop before."""
    if not history.running.images:
        raise ShapeError(f"fit: loader has no images in epoch {len(history) + 1}")
    row = {"epoch": len(history) + 1, "step": history.steps, **history.running.row()}
    if test is not None:
        measured = evaluate(model, test, loss, stop)
        if measured is None:
            return False
        if not math.isfinite(measured[0]):
            hint = "lower the learning rate or clip the gradient"
            raise StateError(f"fit: the test loss is {measured[0]} after step {history.steps}; {hint}")
        row["test_loss"], row["test_accuracy"] = measured
    history.append(row)
    return True


def _update(model, team, batches, optimizer, loss_function, schedule, clip, step):
    """One step of the optimiser on several batches; the sums of losses, of right answers, of images."""
    optimizer.zero_grad()
    try:
        rows = team.gathered(_gradients(model, team, batches, loss_function))
        _check_losses(rows, step)
    except OutOfMemory as error:
        optimizer.zero_grad()
        count = max(team.images(batches))
        raise OutOfMemory(f"fit: {error}; a batch had {count} images, try {max(1, count // 2)}") from error
    except MinigradError:
        optimizer.zero_grad()
        raise
    if clip is not None:
        clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    if schedule is not None:
        schedule.step()
    losses, right, images = zip(*rows, strict=True)
    return math.fsum(losses), int(sum(right)), int(sum(images))


def _gradients(model, team, batches, loss_function):
    """Compute the gradients of an update; rows (sum of losses, right answers, images) of this rank's batches."""
    total, rows = sum(team.images(batches)), []
    for part in team.parts(batches):
        for number, (images, labels) in enumerate(on_device(part, model), 1):
            scores = model(images)
            loss, right = loss_function(scores, labels), _right(scores, labels)
            share = len(labels) * team.shards / total  # the mean over all images weighs each batch by its own
            with team.holding() if number < len(part) else contextlib.nullcontext():
                (loss if share == 1 else loss * share).backward()
            value = loss.item()  # only now, because it waits for the device
            rows.append((value * len(labels), int(right.item()), len(labels)))
    return rows


def _check_losses(rows, step):
    for loss, _, images in rows:
        if not math.isfinite(loss):
            value = loss / images
            raise StateError(f"fit: the loss is {value} at step {step}; lower the learning rate or clip the gradient")


def evaluate(model, loader, loss=ops.cross_entropy, stop=lambda: False):
    """(mean loss, accuracy) over all batches, in evaluation mode; None if stop(), asked after each, says so.

    Of a DataParallel model all ranks call this: they share the batches, and all get the figures of the whole.
    The training flags of all modules are as before afterwards.
    Errors  ValueError if there are no batches, TypeError for a Dataset instead of them
    """
    _refuse_datasets("evaluate", loader=loader)
    team, loss_sum, correct, count = team_of(model), 0.0, 0, 0
    with evaluation(model):
        for batches in team.rounds(loader):
            rows = []
            for images, labels in on_device(batches, model):
                scores = model(images)
                value, right = loss(scores, labels).item(), int(_right(scores, labels).item())
                rows.append((value * len(labels), right, len(labels)))
            for one_loss, right, images in team.gathered(rows):
                loss_sum, correct, count = loss_sum + one_loss, correct + int(right), count + int(images)
            if stop():
                return None
    if not count:
        raise ShapeError("evaluate: loader has no images")
    return loss_sum / count, correct / count


@contextlib.contextmanager
def evaluation(model):
    """Inside, all modules are in evaluation mode and there is no tape; afterwards their flags are as before."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training


def _groups(batches, size):
    """Lists of `size` batches that follow one another; the last may be shorter."""
    batches = iter(batches)
    while group := list(itertools.islice(batches, size)):
        yield group


def on_device(batches, model):
    """The batches where the parameters are."""
    parameter = next(iter(model.parameters()), None)
    for images, labels in batches:
        yield ((images, labels) if parameter is None else (images.to(parameter.device), labels.to(parameter.device)))


def _right(scores, labels):
    """How many scores are highest at their label, on their device."""
    return (ops.argmax(scores, 1) == labels).sum()


def _refuse_datasets(op, **loaders):
    for name, batches in loaders.items():
        if isinstance(batches, Dataset):
            raise KindError(f"{op}: {name} is a Dataset, want its batches: data.Loader(dataset, batch_size)")


def _check_parts(model, optimizer, schedule, **loaders):
    for name, value, kind in (("model", model, Module), ("optimizer", optimizer, Optimizer)):
        if not isinstance(value, kind):
            raise KindError(f"fit: {name} is {value!r}, want an instance of {kind.__name__}")
    if not isinstance(schedule, LRScheduler | None):
        raise KindError(f"fit: schedule is {schedule!r}, want an LRScheduler or None")
    if schedule is not None and schedule.optimizer is not optimizer:
        raise ShapeError("fit: schedule belongs to another optimiser")
    _refuse_datasets("fit", **loaders)


def _check_options(epochs, accumulate, clip, optimizer):
    for name, value in (("epochs", epochs), ("accumulate", accumulate)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise KindError(f"fit: {name} is {value!r}, want an integer")
        if value < 1:
            raise ShapeError(f"fit: {name} is {value}, want at least 1")
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, Real)):
        raise KindError(f"fit: clip is {clip!r}, want a number or None")
    if clip is not None and not clip > 0:
        raise ShapeError(f"fit: clip is {clip}, want a number above 0 or None")
    if clip is not None and isinstance(optimizer, ShardedOptimizer) and optimizer.scattered:
        raise StateError("fit: clip wants all gradients on every rank; give ShardedOptimizer whole_gradients=True")
