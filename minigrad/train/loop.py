"""The training loop.

Images come as batches (images, labels) of Tensors; a model maps images to scores, one for each class. A loss
is called as loss(scores, labels) and gives the mean over the batch.
"""

import functools
import itertools
import math
import time

from minigrad_kernels.errors import MinigradError, ShapeError, StateError

from .. import device, ops
from ..graph import CaptureError
from ..optim.lr_scheduler import ReduceLROnPlateau
from .callback import Callbacks
from .checks import check_options, check_parts, checked, naming_batch
from .evaluation import counted, evaluated, measuring
from .finite import Marks, NotFinite, check_losses, not_finite
from .history import History
from .passes import passes
from .precision import Arithmetic
from .replayed import Replayed
from .team import team_of

__all__ = ["fit"]


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
    precision=None,
    scaler=None,
    eager=False,
    history=None,
    callbacks=(),
):
    """Train until the history has `epochs` rows, one an epoch, or a callback says stop; returns the history.

    model       may be a DataParallel: then each rank calls fit alike, with a loader that has the model's sampler, and
                all get the same history
    test        batches to evaluate after each epoch, on several ranks shared among them
    schedule    stepped after each update; a ReduceLROnPlateau instead after each epoch, with the
                loss on the test data, or of the epoch's row where there are none, before callbacks see the epoch
    accumulate  batches to an update; it is the update of the one large batch, also where the last is smaller
    clip        the largest 2-norm of the gradient of all parameters together
    precision   "float32", the default, "tf32", "bfloat16" or "float16": in which types the model and the loss compute,
                on the test data too (see precision.py)
    scaler      the GradScaler of the loss, to go on with; default a new one for float16. An update that it leaves out
                does not step the schedule
    eager       on a GPU, do without graphs: else each update is one launch (see minigrad.graph), the loss and what the
                model does must wait for nothing, and figures of losses come when they come
    history     of an earlier call, to go on from; the loader then stands where that call left it
    callbacks   Callbacks; with none, nothing is printed: Progress(images, epochs) shows a line for each epoch

    loss and accuracy of a row are means over the epoch while the weights changed, in training mode.
    Errors  RuntimeError at a loss that is not finite: weights, optimiser, schedule and history are then as before that
            update, also where a GPU was told to do further ones before the loss was seen, and running statistics that
            are not finite are those of at most 16 updates before; at a test loss that is not finite, or where no scale
            of the loss keeps gradients finite. ValueError and TypeError for options out of range and for batches that
            are none
    """
    check_parts(model, loader, optimizer, test, loss, schedule, history, callbacks)
    arithmetic = Arithmetic("fit", precision, scaler)
    check_options(epochs, accumulate, clip, eager)
    history, callback, team = _opened(history), Callbacks(callbacks), team_of(model)
    options = {"epochs": epochs, "accumulate": accumulate, "clip": clip, "optimizer": optimizer}
    options |= arithmetic.options() | {"loader": getattr(loader, "state_dict", dict)()}
    team.agree({**options, "updates so far": history.steps})
    stop = lambda: team.agreed(callback.stop(history))
    history.first_step_seconds, history.precision = None, arithmetic.precision
    watcher, stepped = (schedule, None) if isinstance(schedule, ReduceLROnPlateau) else (None, schedule)
    update, measure = _ways(eager, model, team, optimizer, loss, stepped, clip, arithmetic, history)
    callback.on_start(history)
    while len(history) < epochs:
        running = history.running
        running.lr = optimizer.param_groups[0]["lr"] if running.lr is None else running.lr
        if not running.trained:
            model.train()
            running.trained = _train_epoch(loader, accumulate, update, history, callback, stop)
        if not running.trained or not _close_epoch(model, test, measure, arithmetic, history, watcher, callback, stop):
            break
    history.close()
    return history


def _opened(history):
    """The history to go on with, into which the figures of a call that was interrupted have come."""
    history = History() if history is None else history
    history.close()
    return history


def _ways(eager, *how):
    """(a function that updates on a group of batches, one that measures a batch): by graphs on a GPU, unless eager."""
    model, _, _, loss, schedule, *_ = how
    marks, graphs = Marks(model, schedule), _on_gpu(model) and not eager
    update = _replaying(marks, *how) if graphs else functools.partial(_update, marks, how)
    return update, measuring(model, loss, graphs)


def _train_epoch(loader, accumulate, update, history, callback, stop):
    """Update on every group of batches; False if told to stop."""
    before = time.perf_counter()
    for batches in _groups(checked("fit", counted(loader, hasattr(update, "replays"))), accumulate):
        loss, correct, images = update(batches)
        running, now = history.latest, time.perf_counter()
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
        # A short group used the loader up, which then stands at the next epoch: what is saved now must say so.
        running.trained = len(batches) < accumulate
        callback.on_step(history)
        if not running.trained and stop():
            return False
    return True


def _close_epoch(model, test, measure, arithmetic, history, watcher, callback, stop):
    """Evaluate, add the row and show it to a schedule that watches and to callbacks; False if told to stop."""
    if not history.running.images:
        raise ShapeError(f"fit: loader has no images in epoch {len(history) + 1}")
    row = {"epoch": len(history) + 1, "step": history.steps, **history.running.row()}
    row |= arithmetic.figures(history.running)
    if test is not None:
        try:
            measured = evaluated("fit", model, test, measure, stop, arithmetic.precision)
        except CaptureError as error:
            raise StateError(f"fit: {error}; eager=True trains without graphs") from error
        if measured is None:
            return False
        if not math.isfinite(measured[0]):
            raise not_finite(f"the test loss is {measured[0]} after step {history.steps}", history, model)
        row["test_loss"], row["test_accuracy"] = measured
    history.append(row)
    if watcher is not None:
        watcher.step(row.get("test_loss", row["loss"]))
    callback.on_epoch(history)
    return not stop()


def _on_gpu(model):
    parameter = next(iter(model.parameters()), None)
    return parameter is not None and device.place_of(parameter.array).captures is not None


def _update(marks, how, batches):
    """One step of the optimiser on several batches; the sums of losses, of right answers, of images."""
    model, team, optimizer, loss_function, schedule, clip, arithmetic, history = how
    step = history.steps + 1
    optimizer.zero_grad()
    marks.note(step)
    try:
        with arithmetic.computing(), naming_batch("fit", max(team.images(batches))):
            own = _gradients(model, team, batches, loss_function, arithmetic.scaler)
        rows = team.gathered(own)
        check_losses(rows, step, history, model, batches)
    except MinigradError:
        optimizer.zero_grad()
        marks.restore(step, history.steps)
        raise
    _go_on(arithmetic.step(optimizer, model.parameters(), clip), schedule, arithmetic, history)
    losses, hits, images = zip(*rows, strict=True)
    return math.fsum(losses), int(sum(hits)), int(sum(images))


def _go_on(made, schedule, arithmetic, history):
    """After an update that was made, or left out."""
    if not made:
        history.latest.skipped += 1
        if arithmetic.lost():
            step = history.steps + 1
            raise NotFinite(f"fit: at step {step} gradients are not finite at any scale of the loss; use bfloat16")
    elif schedule is not None:
        schedule.step()


def _replaying(marks, model, team, optimizer, loss_function, schedule, clip, arithmetic, history):
    """A function that does as _update, by graphs; figures of losses come later, to history.running."""
    replayed = Replayed(model, team, optimizer, loss_function, clip, arithmetic, history, marks)
    history.settle = replayed.settle

    def update(batches):
        try:
            with naming_batch("fit", max(team.images(batches))):
                images, made = replayed(batches)
        except CaptureError as error:
            raise StateError(f"fit: {error}; eager=True trains without graphs") from error
        _go_on(made, schedule, arithmetic, history)
        return 0.0, 0, images

    update.replays = True
    return update


def _gradients(model, team, batches, loss_function, scaler):
    """Compute the gradients of an update; rows (sum of losses, right answers, images) of this rank's batches."""
    found = passes(model, team, batches, loss_function, scaler)
    return [(loss.item() * images, int(correct.item()), images) for loss, correct, images in found]


def _groups(batches, size):
    """Lists of `size` batches that follow one another; the last may be shorter."""
    batches = iter(batches)
    while group := list(itertools.islice(batches, size)):
        yield group
