"""Schedules: resuming, one after the other, refusals. Beside PyTorch: tests/oracles/test_optim_schedules_torch."""

import json
import math

import numpy as np
import pytest

from minigrad import MinigradError, Tensor, optim
from minigrad.optim import lr_scheduler
from tests.optim.optim_parts import parameters, rates, through_json

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
    "of the others": lambda o: lr_scheduler.SequentialLR(
        o, [SCHEDULES[name](o) for name in ("ConstantLR", "ExponentialLR", "MultiStepLR")], [5, 9]
    ),
    "nested": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1), SCHEDULES["SequentialLR"](o)], [4]
    ),
}


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_a_resumed_schedule_goes_on(make):
    def fresh():
        return optim.SGD([{"params": parameters()}, {"params": parameters(), "lr": 0.2}], lr=0.1)

    whole = rates(make(fresh()), 20)
    for stop in (0, 3, 4, 5, 11):
        optimizer = fresh()
        schedule = make(optimizer)
        rates(schedule, stop)
        plan, state = json.dumps(schedule.state_dict()), through_json(optimizer.state_dict())
        optimizer = fresh()
        schedule = make(optimizer)
        optimizer.load_state_dict(state)
        schedule.load_state_dict(json.loads(plan))
        assert rates(schedule, 20 - stop) == whole[stop:]


def test_plateau_resumed():
    def metrics(schedule, epochs):
        for epoch in epochs:
            schedule.step(1 / min(epoch + 1, 5))
        return schedule.get_last_lr()

    first, second = (lr_scheduler.ReduceLROnPlateau(optim.SGD(parameters(), lr=0.1), patience=2) for _ in range(2))
    metrics(first, range(7))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert metrics(first, range(7, 12)) == metrics(second, range(7, 12)) == [0.1 * 0.1 * 0.1]


def test_what_steps_at_a_metric_takes_tensors():
    first, second = (lr_scheduler.ReduceLROnPlateau(optim.SGD(parameters(), lr=0.1), patience=0) for _ in range(2))
    for metric in (2.0, 3.0, 1.0, math.nan, 0.5):
        first.step(metric)
        second.step(Tensor([[metric]], requires_grad=True))
        assert first.state_dict() == second.state_dict()


def test_a_rate_that_a_schedule_led_below_zero_is_loaded():
    optimizer = optim.SGD(parameters(), lr=0.001)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch)
    rates(schedule, 4)
    assert optimizer.param_groups[0]["lr"] < 0
    other = optim.SGD(parameters(), lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    with pytest.raises(ValueError, match="lr is nan, wanted at least 0"):
        state = optimizer.state_dict()
        state["param_groups"][0]["lr"] = math.nan
        other.load_state_dict(state)


def test_milestones_by_hand():
    schedule = lr_scheduler.MultiStepLR(optim.SGD(parameters(), lr=1.0), [2, 4, 2], gamma=0.5)
    assert rates(schedule, 5) == [[1.0], [1.0], [0.25], [0.25], [0.125], [0.125]]


def test_constant_by_hand():
    schedule = lr_scheduler.ConstantLR(optim.SGD(parameters(), lr=1.0), 0.25, 3)
    assert rates(schedule, 5) == [[0.25], [0.25], [0.25], [1.0], [1.0], [1.0]]


@pytest.mark.parametrize("make", list(SCHEDULES.values())[:8], ids=list(SCHEDULES)[:8])
def test_a_schedule_is_a_function_of_the_epoch(make):
    """Its rate after t steps is rates_at(t), whatever was before, and others act beside it by their factors."""
    schedule = make(optim.SGD(parameters(), lr=0.1))
    found = rates(schedule, 12)
    assert found == [schedule.rates_at(epoch) for epoch in range(13)]
    optimizer = optim.SGD(parameters(), lr=0.1)
    first, second = make(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)
    for epoch in range(9):
        assert second.get_last_lr()[0] == pytest.approx(found[epoch][0] * 0.5**epoch, rel=1e-12, abs=1e-12)
        first.step(), second.step()


@pytest.mark.parametrize("value", ["0.1", None, [0.1], b"1"])
def test_a_rate_that_is_no_number_is_refused_where_it_is_used(value):
    for kind in (optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad):
        optimizer = kind([parameter := Tensor([1.0], requires_grad=True)], lr=0.1)
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
        optimizer.param_groups[0]["lr"] = value
        parameter.grad = Tensor([1.0])
        with pytest.raises(TypeError, match=f"{kind.__name__}: lr is .*, wanted a number") as caught:
            optimizer.step()
        assert isinstance(caught.value, MinigradError) and parameter.tolist() == [1.0]
        with pytest.raises(TypeError):
            schedule.step()
        assert optimizer.param_groups[0]["lr"] == value


def test_a_function_may_give_one_number_in_an_array():
    optimizer = optim.SGD(parameters(), lr=2)
    for value in (Tensor(0.5), np.float32(0.5), np.array([0.5])):
        lr_scheduler.LambdaLR(optimizer, lambda epoch, value=value: value)
        assert optimizer.param_groups[0]["lr"] == 1.0
        optimizer.param_groups[0]["lr"] = 2


def test_one_cycle_ends():
    schedule = lr_scheduler.OneCycleLR(optim.SGD(parameters()), 0.5, 3)
    rates(schedule, 2)
    assert schedule.get_last_lr() == [pytest.approx(0.5 / 25 / 1e4)]
    schedule.step()
    with pytest.raises(RuntimeError, match="OneCycleLR: step 4 of 3"):
        schedule.step()


def test_states_of_other_schedules_are_refused():
    optimizer = optim.SGD(parameters(), lr=0.1)
    schedule = SCHEDULES["SequentialLR"](optimizer)
    before = schedule.state_dict()
    for state in (5, {}, lr_scheduler.StepLR(optimizer, 3).state_dict(), {**before, "base_lrs": [0.1, 0.2]}):
        with pytest.raises(ValueError, match="SequentialLR.load_state_dict: got"):
            schedule.load_state_dict(state)
    assert schedule.state_dict() == before


def test_a_schedule_of_ones_own_is_a_function():
    optimizer = optim.SGD([{"params": parameters()}, {"params": parameters(), "lr": 0.2}], lr=0.1)
    schedule = lr_scheduler.LRScheduler(optimizer, lambda t, first: first / (1 + t))
    assert rates(schedule, 2) == [[0.1, 0.2], [0.05, 0.1], [0.1 / 3, 0.2 / 3]]
    assert json.loads(json.dumps(schedule.state_dict()))["last_epoch"] == 2
