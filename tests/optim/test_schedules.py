"""Schedules: resuming, one after the other, in fit. Beside PyTorch: tests/oracles/test_optim_torch.py."""

import json
import math

import numpy as np
import pytest

from minigrad import Tensor, checkpoint, data, optim
from minigrad.optim import lr_scheduler
from minigrad.train import evaluate, fit
from tests.optim.optim_parts import SCHEDULES, parameters
from tests.train.small_training import images, network


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
    whole = make(lr_scheduler, two_groups())
    found = rates(whole, 20)
    assert found == [whole.rates_at(epoch) for epoch in range(21)]
    for stop in (0, 4, 5, 11):
        optimizer, resumed = two_groups(), two_groups()
        first, second = make(lr_scheduler, optimizer), make(lr_scheduler, resumed)
        rates(first, stop)
        resumed.load_state_dict(optimizer.state_dict())
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert rates(second, 20 - stop) == found[stop:]
    optimizer = two_groups()
    first, second = make(lr_scheduler, optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)
    for epoch in range(9):
        assert second.get_last_lr()[0] == pytest.approx(found[epoch][0] * 0.5**epoch, rel=1e-12, abs=1e-12)
        first.step(), second.step()


def test_functions_of_ones_own():
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
    assert first.get_last_lr() == second.get_last_lr() == [0.1 * 0.1] and first.last_epoch == second.last_epoch == 9


@pytest.mark.parametrize("test", [None, data.Loader(images(seed=1), 20)], ids=["loss", "test loss"])
def test_a_plateau_in_fit_is_as_the_loop_written_out(test):
    def fitted(written_out):
        model = network()
        optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)  # so large that the loss rises now and then
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        loader = data.Loader(images(), 16, shuffle=True)
        if not written_out:
            fit(model, loader, optimizer, 8, test=test, schedule=schedule)
        for _ in range(8 * written_out):
            row = fit(model, loader, optimizer, 1)[-1]
            schedule.step(evaluate(model, test)[0] if test else row["loss"])
        return checkpoint.weights_hash(model), schedule.get_last_lr(), schedule.state_dict()

    assert fitted(True) == fitted(False) and fitted(True)[1] != [0.5]
