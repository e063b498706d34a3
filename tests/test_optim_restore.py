"""RestoreBest: when a metric puts the best back, and what comes back. Resuming: test_optim_restore_resume."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.core.tape import write
from minigrad.optim.lr_scheduler import CosineAnnealingLR, RestoreBest
from tests.optim_parts import arrays, every_rule, parameters, same, train


def one(lr=1.0, **options):
    """A parameter with one element and what watches it."""
    parameter = nn.Parameter(np.array([0.0]))
    optimizer = optim.SGD([parameter], lr=lr)
    return parameter, optimizer, RestoreBest(optimizer, **options)


def follow(metrics, **options):
    """(parameter, rate) after each metric, where the parameter counts the steps in between: 1, 2, ..."""
    parameter, optimizer, schedule = one(**options)
    found = []
    for metric in metrics:
        write(parameter)[...] += 1
        schedule.step(metric)
        found.append((parameter.detach().item(), optimizer.param_groups[0]["lr"]))
    return found


# ---- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rise", [2.5, 2, math.nan, math.inf, 1e300])
def test_a_rise_puts_the_best_back_and_cuts_the_rate(rise):
    assert follow([3, 2, rise, 1]) == [(1, 1), (2, 1), (2, 0.5), (3, 0.5)]


def test_before_the_first_metric_the_first_parameters_are_the_best():
    assert follow([math.nan, math.inf, 5, 6]) == [(0, 0.5), (0, 0.25), (1, 0.25), (1, 0.125)]


def test_threshold():
    """From 2 on, 1.8 is not better by more than 0.25; 1.7 is."""
    assert follow([2, 1.8, 1.7, 1.8], threshold=0.25) == [(1, 1), (1, 0.5), (2, 0.5), (2, 0.25)]


def test_patience_counts_rises_in_a_row():
    metrics = [1, 2, 2, 0.5, 2, 2, 2, 2, 2, 2]
    after = [1, 2, 3, 4, 5, 6, 4, 5, 6, 4]
    rates = [1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    assert follow(metrics, patience=2) == list(zip(after, rates, strict=True))


def test_rises_go_on_at_the_least_rate():
    rates = [rate for _, rate in follow([1, 2, 2, 2, 2], factor=0.1, min_lr=0.05)]
    assert rates == pytest.approx([1, 0.1, 0.05, 0.05, 0.05])
    assert [value for value, _ in follow([1, 2, 2, 2, 2], factor=0.1, min_lr=0.05)] == [1, 1, 1, 1, 1]
    assert follow([1, 2], lr=0.01, min_lr=0.05) == [(1, 0.01), (1, 0.01)]  # never up


def test_metric_in_a_tensor():
    parameter, optimizer, schedule = one()
    schedule.step(Tensor(2.0))
    write(parameter).fill(9)
    schedule.step(Tensor([[3.0]], requires_grad=True).sum())
    assert parameter.detach().item() == 0 and schedule.best == 2.0 and type(schedule.best) is float
    assert optimizer.param_groups[0]["lr"] == 0.5 and schedule.last_epoch == 2


# ---- what ------------------------------------------------------------------------------------------------------------


def states(optimizer):
    found = optimizer.state_dict()["state"]
    return {(index, name): np.array(value) for index, values in found.items() for name, value in values.items()}


@every_rule
@pytest.mark.parametrize("kept_at", [0, 3])
def test_training_goes_on_from_the_best_with_its_state(make, kept_at):
    """The same bits as if the steps after the best had not been; also from the start, without any state."""
    params, others = parameters(), parameters()
    optimizer, other = make(params), make(others)
    train(optimizer, params, range(kept_at))
    train(other, others, range(kept_at))
    schedule = RestoreBest(optimizer, 0.5)
    train(optimizer, params, range(10, 14))
    schedule.step(math.nan)
    assert same(arrays(params), arrays(others))
    before, wanted = states(optimizer), states(other)
    assert before.keys() == wanted.keys() and same(before.values(), wanted.values())
    for values, parameter in zip(map(optimizer.state.get, params), params, strict=True):
        assert all(name == "step" or value.strides == parameter.array.strides for name, value in (values or {}).items())
    for group in other.param_groups:
        group["lr"] *= 0.5
    train(optimizer, params, range(20, 23))
    train(other, others, range(20, 23))
    assert same(arrays(params), arrays(others))


def test_what_is_kept_does_not_change_with_training():
    params = parameters()
    optimizer = optim.Adam(params)
    train(optimizer, params, range(2))
    schedule = RestoreBest(optimizer)
    saved = schedule.state_dict()["copy"]
    train(optimizer, params, range(2, 4))
    schedule.step(math.inf)
    train(optimizer, params, range(4, 6))
    np.testing.assert_equal(schedule.state_dict()["copy"], saved)
    saved["arrays"]["1"][...] = 0
    saved["state"]["1"]["exp_avg"][...] = 0
    schedule.step(math.inf)
    assert np.array(params[1].detach()).all() and optimizer.state[params[1]]["exp_avg"].all()


def test_options_but_the_rate_stay():
    params = parameters()
    optimizer = optim.SGD(params, lr=1.0, momentum=0.5)
    schedule = RestoreBest(optimizer)
    optimizer.param_groups[0]["momentum"], optimizer.param_groups[0]["lr"] = 0.9, 0.25
    schedule.step(math.nan)
    assert optimizer.param_groups[0]["momentum"] == 0.9 and optimizer.param_groups[0]["lr"] == 0.125


def test_the_door_of_the_engine_is_used():
    layer = nn.Linear(2, 1)
    schedule = RestoreBest(optim.SGD(layer.parameters(), lr=0.1))
    out = layer(Tensor(np.ones((1, 2), np.float32), requires_grad=True)).sum()
    before = [parameter.version[0] for parameter in layer.parameters()]
    schedule.step(math.nan)
    assert [parameter.version[0] for parameter in layer.parameters()] == [version + 1 for version in before]
    with pytest.raises(RuntimeError, match="weight was changed after it was used"):
        out.backward()


def test_parameters_added_later_stay_until_they_are_kept():
    params = parameters()
    optimizer = optim.SGD(params[:2], lr=0.1, momentum=0.9)
    schedule = RestoreBest(optimizer)
    train(optimizer, params[:2], range(2))
    schedule.step(1.0)
    kept = arrays(params)
    optimizer.add_param_group({"params": params[2:], "lr": 0.5})
    train(optimizer, params, range(2, 4))
    later, buffers = arrays(params), [optimizer.state[p]["momentum_buffer"].copy() for p in params]
    schedule.step(2.0)
    assert same(arrays(params), [*kept[:2], *later[2:]])
    assert same([optimizer.state[p]["momentum_buffer"] for p in params[2:]], buffers[2:])
    assert schedule.get_last_lr() == [0.05, 0.25]
    schedule.step(0.5)
    kept = arrays(params)
    train(optimizer, params, range(4, 6))
    schedule.step(2.0)
    assert same(arrays(params), kept)


def normalised():
    """A network with running statistics and a layer that the optimiser does not have."""
    minigrad.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))
    model[3].requires_grad_(False)
    return model, optim.Adam([*model[0].parameters(), *model[1].parameters()], lr=0.1)


def test_buffers_and_other_parameters_of_the_model():
    for given in (False, True):
        model, optimizer = normalised()
        schedule = RestoreBest(optimizer, model=model if given else None)
        names = {name.removeprefix("model.") for name in schedule.copy["arrays"] if "model." in name}
        statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
        assert names == ({*statistics, "3.weight", "3.bias"} if given else set())
        before = {name: np.array(value) for name, value in model.state_dict().items()}
        model(minigrad.randn(4, 1, 6, 6)).sum().backward()
        optimizer.step()
        write(model[3].bias).fill(7)
        schedule.step(math.nan)
        changed = {n for n, value in model.state_dict().items() if not np.array_equal(np.array(value), before[n])}
        assert changed == (set() if given else {*statistics, "3.bias"})


def test_another_schedule_goes_on_beside_it():
    optimizer = optim.SGD(parameters(), lr=1.0)
    cosine, schedule = CosineAnnealingLR(optimizer, 10), RestoreBest(optimizer)
    wanted = CosineAnnealingLR(optim.SGD(parameters(), lr=1.0), 10)
    schedule.step(math.nan)
    for _ in range(10):
        cosine.step()
        wanted.step()
        assert cosine.get_last_lr()[0] == pytest.approx(wanted.get_last_lr()[0] / 2, abs=1e-15)
