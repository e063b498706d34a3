"""The training loop."""

import itertools
import math
import time

from minigrad_kernels.errors import KindError, ShapeError

from ..core.check import instance_of, integer_of
from ..optim.lr_scheduler import ReduceLROnPlateau
from .callbacks import Callback
from .checks import check_model, checked
from .evaluation import evaluate
from .finite import not_finite
from .trainer import Trainer


def fit(model, loader, optimizer, epochs, *, test=None, schedule=None, accumulate=1, callbacks=(), **how):
    """Train until the history has `epochs` rows, one an epoch, or a callback says stop; returns the history.

    model       may be a DataParallel: then each rank calls fit alike, with a loader that has the model's sampler, and
                all get the same history
    test        batches to evaluate after each epoch, on several ranks shared among them
    schedule    stepped after each update; a ReduceLROnPlateau instead after each epoch, with the
                loss on the test data, or of the epoch's row where there are none, before callbacks see the epoch
    accumulate  batches to an update; it is the update of the one large batch, also where the last is smaller
    callbacks   Callbacks; with none, nothing is printed: Progress(images, epochs) shows a line for each epoch
    how         loss=, clip=, precision=, scaler=, eager= and history= as those of Trainer. With the history of an
                earlier call fit goes on from there; the loader then stands where that call left it

    loss and accuracy of a row are means over the epoch while the weights changed, in training mode.
    Errors  RuntimeError at a loss that is not finite: weights, optimiser, schedule and history are then as before that
            update, also where a GPU was told to do further ones before the loss was seen, and running statistics that
            are not finite are those of at most 16 updates before; at a test loss that is not finite, or where no scale
            of the loss keeps gradients finite. ValueError and TypeError for options out of range and for batches that
            are none
    """
    check_model("fit", model, loader=loader, **({} if test is None else {"test": test}))
    epochs, accumulate = integer_of("fit", "epochs", epochs, 1), integer_of("fit", "accumulate", accumulate, 1)
    if not hasattr(callbacks, "__iter__"):
        raise KindError(f"fit: callbacks is a {type(callbacks).__name__}, wanted a list of Callbacks: [callback]")
    callbacks = [instance_of("fit", f"callbacks[{i}]", one, Callback) for i, one in enumerate(callbacks)]
    watcher, stepped = (schedule, None) if isinstance(schedule, ReduceLROnPlateau) else (None, schedule)
    trainer = Trainer(model, optimizer, schedule=stepped, **how)
    history, team = trainer.history, trainer.team
    alike = {"epochs": epochs, "accumulate": accumulate, "clip": trainer.clip, "optimizer": optimizer}
    alike |= {"precision": trainer.precision, "scaler": trainer.scaler.state_dict()}
    team.agree(alike | {"loader": getattr(loader, "state_dict", dict)(), "updates so far": history.steps})

    def tell(event):
        """What all callbacks say to an event."""
        return [getattr(callback, event)(history) for callback in callbacks]

    stop = lambda: team.agreed(any(tell("stop")))
    begun = history.steps
    try:
        tell("on_start")
        while len(history) < epochs:
            running = history.running
            running.lr = optimizer.param_groups[0]["lr"] if running.lr is None else running.lr
            if not running.trained:
                model.train()
                running.trained = _train_epoch(trainer, loader, accumulate, begun, tell, stop)
            if not running.trained:
                break
            row = _row(trainer, test)
            history.append(row)
            if watcher is not None:
                watcher.step(row.get("test_loss", row["loss"]))
            tell("on_epoch")
            if stop():
                break
    finally:
        tell("on_end")
    history.close()
    return history


def _train_epoch(trainer, loader, accumulate, begun, tell, stop):
    """Update on every group of batches; False if told to stop. `begun`: the updates before this call of fit."""
    history, before = trainer.history, time.perf_counter()
    batches = checked("fit", loader)
    while group := list(itertools.islice(batches, accumulate)):
        trainer.update(*group)
        running, now = history.latest, time.perf_counter()
        if history.steps > begun + 1:  # kernels are compiled in the first update
            running.seconds += now - before
            running.timed_images += sum(trainer.team.images(group))
        before = now
        # A short group used the loader up, which then stands at the next epoch: what is saved now must say so.
        running.trained = len(group) < accumulate
        tell("on_step")
        if not running.trained and stop():
            return False
    return True


def _row(trainer, test):
    """The figures of an epoch, with those of the test data."""
    history = trainer.history
    if not history.running.images:
        raise ShapeError(f"fit: loader has no images in epoch {len(history) + 1}")
    row = {"epoch": len(history) + 1, "step": history.steps, **history.running.row()}
    if trainer.scaler.is_enabled():
        row |= {"loss_scale": trainer.scaler.get_scale(), "skipped": history.running.skipped}
    if test is not None:
        row["test_loss"], row["test_accuracy"] = evaluate(
            trainer.model, test, trainer.loss, precision=trainer.precision
        )
        if not math.isfinite(row["test_loss"]):
            raise not_finite(f"the test loss is {row['test_loss']} after step {history.steps}", history, trainer.model)
    return row
