"""ReduceLROnPlateau in fit: stepped once an epoch, also in a run that is stopped and goes on."""

import numpy as np
import pytest

import minigrad
from minigrad import checkpoint, data, optim
from minigrad.optim.lr_scheduler import ReduceLROnPlateau
from minigrad.train import Callback, History, evaluate, fit
from tests.train.small_training import images, network


class Rates(Callback):
    """The rate and the first weight that callbacks see after each epoch."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.seen = model, optimizer, []

    def on_epoch(self, history):
        weight = next(self.model.parameters()).array.ravel()[0]
        self.seen.append((self.optimizer.param_groups[0]["lr"], float(weight)))


@pytest.mark.parametrize("tested", [False, True])
def test_fit_steps_it_once_an_epoch(tested):
    """As the loop written out; a large rate makes the loss rise now and then."""

    def parts():
        model = network()
        optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)
        return model, optimizer, ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    test = data.Loader(images(seed=1), 20) if tested else None
    model, optimizer, schedule = parts()
    callback = Rates(model, optimizer)
    loader = data.Loader(images(), 16, shuffle=True)
    history = fit(model, loader, optimizer, 8, test=test, schedule=schedule, callbacks=[callback])
    other, written, watcher = parts()
    loader, seen = data.Loader(images(), 16, shuffle=True), []
    for _ in range(8):
        row = fit(other, loader, written, 1)[-1]
        watcher.step(evaluate(other, test)[0] if tested else row["loss"])
        seen.append((written.param_groups[0]["lr"], float(next(other.parameters()).array.ravel()[0])))
    assert callback.seen == seen and len({rate for rate, _ in seen}) > 1
    assert schedule.last_epoch == 8 and schedule.best == min(history["test_loss" if tested else "loss"])


class Stop(Callback):
    """Says stop at the nth question."""

    def __init__(self, questions):
        self.questions = questions

    def stop(self, history):
        self.questions -= 1
        return self.questions <= 0


@pytest.mark.parametrize("questions", range(1, 26, 4))
def test_fit_stopped_anywhere_and_continued_equals_uninterrupted(tmp_path, questions):
    """Between updates, amid the evaluation, after an epoch; through a checkpoint in a folder."""

    def parts():
        model = network(dropout=0.2)
        optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)
        schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        return model, optimizer, schedule, data.Loader(images(), 16, shuffle=True)

    def run(parts, history, callbacks=()):
        model, optimizer, schedule, loader = parts
        test = data.Loader(images(seed=1), 20)
        return fit(model, loader, optimizer, 5, test=test, schedule=schedule, history=history, callbacks=callbacks)

    whole, wanted = parts(), History()
    run(whole, wanted)
    assert whole[2].get_last_lr() != [0.5]
    first, history = parts(), History()
    run(first, history, [Stop(questions)])
    checkpoint.save(tmp_path, *first[:3], history=history, loader=first[3])
    second, history = parts(), History()
    rest = {"history": history, "generator": minigrad.default_generator}
    checkpoint.load(tmp_path, *second[:3], loader=second[3], **rest)
    run(second, history)
    assert checkpoint.weights_hash(second[0]) == checkpoint.weights_hash(whole[0])
    for part in (1, 2):
        np.testing.assert_equal(second[part].state_dict(), whole[part].state_dict())
    assert history["test_loss"] == wanted["test_loss"] and history["lr"] == wanted["lr"]
