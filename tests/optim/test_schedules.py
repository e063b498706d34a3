"""Schedules: resuming, one after the other, in fit. Beside PyTorch: tests/oracles/test_optim_schedules_torch."""

import json
import math

import numpy as np
import pytest

import minigrad
from minigrad import MinigradError, Tensor, checkpoint, data, optim
from minigrad.optim import lr_scheduler
from minigrad.train import Callback, History, evaluate, fit
from tests.optim.optim_parts import parameters
from tests.train.small_training import images, network

SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [4, 2, 4, 12], 0.5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.25, 4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=6),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 9, 0.001),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, 30),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1), lr_scheduler.CosineAnnealingLR(o, 20)], [5]
    ),
    "nested": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1), SCHEDULES["SequentialLR"](o)], [4]
    ),
}


def two_groups():
    return optim.SGD([{"params": parameters()}, {"params": parameters(), "lr": 0.2}], lr=0.1)


def rates(schedule, steps):
    """The rates from now on, over so many steps of the schedule."""
    found = [schedule.get_last_lr()]
    for _ in range(steps):
        schedule.step()
        found.append(schedule.get_last_lr())
    return found


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_is_a_function_of_the_epoch(make):
    """Its rate after t steps is rates_at(t), also where it was resumed; others act beside it by their factors."""
    whole = make(two_groups())
    found = rates(whole, 20)
    assert found == [whole.rates_at(epoch) for epoch in range(21)]
    for stop in (0, 4, 5, 11):
        optimizer, resumed = two_groups(), two_groups()
        first, second = make(optimizer), make(resumed)
        rates(first, stop)
        resumed.load_state_dict(optimizer.state_dict())
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert rates(second, 20 - stop) == found[stop:]
    optimizer = two_groups()
    first, second = make(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)
    for epoch in range(9):
        assert second.get_last_lr()[0] == pytest.approx(found[epoch][0] * 0.5**epoch, rel=1e-12, abs=1e-12)
        first.step(), second.step()


def test_by_hand():
    multi = lr_scheduler.MultiStepLR(optim.SGD(parameters(), lr=1.0), [2, 4, 2], gamma=0.5)
    assert rates(multi, 5) == [[1.0], [1.0], [0.25], [0.25], [0.125], [0.125]]
    own = lr_scheduler.LRScheduler(two_groups(), lambda t, first: first / (1 + t))
    assert rates(own, 2) == [[0.1, 0.2], [0.05, 0.1], [0.1 / 3, 0.2 / 3]]
    for factor in (Tensor(0.5), np.float32(0.5), np.array([0.5])):
        assert lr_scheduler.LambdaLR(optim.SGD(parameters(), lr=2), lambda t, f=factor: f).get_last_lr() == [1]


def test_plateau_resumed_and_of_tensors():
    first, second = (lr_scheduler.ReduceLROnPlateau(optim.SGD(parameters(), lr=0.1), patience=2) for _ in range(2))
    for epoch, metric in enumerate((2.0, 3.0, 1.0, math.nan, 0.5, 0.6, 0.7, 0.8, 0.9)):
        first.step(metric)
        second.step(Tensor([[metric]], requires_grad=True))
        assert first.state_dict() == second.state_dict()
        if epoch == 6:
            third = lr_scheduler.ReduceLROnPlateau(second.optimizer, patience=2)
            third.load_state_dict(json.loads(json.dumps(second.state_dict())))
            second = third
    assert first.get_last_lr() == second.get_last_lr() == [0.1 * 0.1]


def test_refusals():
    for kind in (optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad):
        optimizer = kind([parameter := Tensor([1.0], requires_grad=True)], lr=0.1)
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
        optimizer.param_groups[0]["lr"] = "0.1"
        parameter.grad = Tensor([1.0])
        with pytest.raises(TypeError, match=f"{kind.__name__}: lr is .*, wanted a number") as caught:
            optimizer.step()
        assert isinstance(caught.value, MinigradError) and parameter.tolist() == [1.0]
        with pytest.raises(TypeError):
            schedule.step()
    cycle = lr_scheduler.OneCycleLR(optim.SGD(parameters()), 0.5, 3)
    assert rates(cycle, 3)[2] == [pytest.approx(0.5 / 25 / 1e4)]
    with pytest.raises(RuntimeError, match="OneCycleLR: step 4 of 3"):
        cycle.step()
    schedule = SCHEDULES["SequentialLR"](optim.SGD(parameters(), lr=0.1))
    before = schedule.state_dict()
    for state in (5, {}, cycle.state_dict(), {**before, "base_lrs": [0.1, 0.2]}):
        with pytest.raises(ValueError, match="SequentialLR.load_state_dict: got"):
            schedule.load_state_dict(state)
    assert schedule.state_dict() == before


# ---- a plateau in fit: stepped once an epoch -------------------------------------------------------------------------


def parts(dropout=0.0):
    model = network(dropout=dropout)
    optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)  # so large that the loss rises now and then
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    return model, optimizer, schedule, data.Loader(images(), 16, shuffle=True)


@pytest.mark.parametrize("tested", [False, True])
def test_fit_steps_it_as_the_loop_written_out(tested):
    test = data.Loader(images(seed=1), 20) if tested else None
    model, optimizer, schedule, loader = parts()
    history = fit(model, loader, optimizer, 8, test=test, schedule=schedule)
    other, written, watcher, loader = parts()
    for _ in range(8):
        row = fit(other, loader, written, 1)[-1]
        watcher.step(evaluate(other, test)[0] if tested else row["loss"])
    assert checkpoint.weights_hash(model) == checkpoint.weights_hash(other)
    assert schedule.get_last_lr() == watcher.get_last_lr() != [0.5]
    assert schedule.last_epoch == 8 and schedule.best == min(history["test_loss" if tested else "loss"])


class Stop(Callback):
    """Says stop at the nth question."""

    def __init__(self, questions):
        self.questions = questions

    def stop(self, history):
        self.questions -= 1
        return self.questions <= 0


@pytest.mark.parametrize("questions", [3, 9, 14])
def test_fit_stopped_anywhere_and_continued_equals_uninterrupted(tmp_path, questions):
    """Between updates, amid the evaluation, after an epoch; through a checkpoint in a folder."""

    def run(parts, history, callbacks=()):
        model, optimizer, schedule, loader = parts
        test = data.Loader(images(seed=1), 20)
        return fit(model, loader, optimizer, 5, test=test, schedule=schedule, history=history, callbacks=callbacks)

    whole, wanted = parts(0.2), History()
    run(whole, wanted)
    first, history = parts(0.2), History()
    run(first, history, [Stop(questions)])
    checkpoint.save(tmp_path, *first[:3], history=history, loader=first[3])
    second, history = parts(0.2), History()
    rest = {"history": history, "generator": minigrad.default_generator}
    checkpoint.load(tmp_path, *second[:3], loader=second[3], **rest)
    run(second, history)
    assert checkpoint.weights_hash(second[0]) == checkpoint.weights_hash(whole[0])
    for part in (1, 2):
        np.testing.assert_equal(second[part].state_dict(), whole[part].state_dict())
    assert history["test_loss"] == wanted["test_loss"] and history["lr"] == wanted["lr"]
