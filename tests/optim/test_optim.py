"""Optimisers: groups, state, layouts, refusals. Rules beside PyTorch's: tests/oracles/test_optim_torch."""

import json
import math

import numpy as np
import pytest

from minigrad import MinigradError, Tensor, nn, optim
from minigrad.optim import lr_scheduler
from minigrad_kernels import optimizer as kernels
from minigrad_kernels.layout import FILTER
from tests.optim.optim_parts import RULES, arrays, every_rule, give_gradients, parameters, same, through_json, train

# ---- steps -----------------------------------------------------------------------------------------------------------


@every_rule
def test_parameters_without_a_gradient_stay(make):
    params = parameters()
    before, optimizer = arrays(params), make(params)
    optimizer.step()
    assert same(arrays(params), before)
    assert not optimizer.state
    give_gradients(params, 0)
    params[1].grad = None
    optimizer.step()
    after = arrays(params)
    assert [np.array_equal(a, b) for a, b in zip(before, after, strict=True)] == [False, True, False, False]
    assert [parameter.version[0] for parameter in params] == [1, 0, 1, 1]
    assert params[1] not in optimizer.state


def test_a_step_refuses_backward_through_the_old_values():
    layer = nn.Linear(2, 1)
    x = Tensor(np.ones((1, 2), np.float32), requires_grad=True)
    out, optimizer = layer(x).sum(), optim.SGD(layer.parameters(), lr=0.1)
    layer(x).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="weight was changed after it was used"):
        out.backward()


@every_rule
def test_layouts_of_parameter_gradient_and_state(make):
    """The same bits whichever way filter and gradient lie; the state lies as its parameter."""
    results = []
    for order in (None, FILTER):
        for gradient_order in (None, FILTER):
            params = parameters(order=order)
            optimizer = make(params)
            for step in range(3):
                give_gradients(params, step, gradient_order)
                optimizer.step()
            results.append(arrays(params))
            for name, array in optimizer.state.get(params[0], {}).items():
                assert name == "step" or array.strides == params[0].array.strides
            for saved in optimizer.state_dict()["state"].values():
                assert all(name == "step" or array.flags.c_contiguous for name, array in saved.items())
    assert all(same(results[0], result) for result in results[1:])


def test_one_launch_for_each_type_of_a_group(monkeypatch):
    calls = []
    adam = kernels.adam
    monkeypatch.setattr(
        kernels, "adam", lambda params, *rest, **more: calls.append(len(params)) or adam(params, *rest, **more)
    )
    first, second = parameters("float32"), parameters("float64")
    optimizer = optim.Adam([{"params": [*first, *second]}, {"params": parameters(), "lr": 0.1}])
    train(optimizer, [p for group in optimizer.param_groups for p in group["params"]], range(1))
    assert sorted(calls) == [4, 4, 4]


def test_gradients_that_do_not_fit_are_refused_before_any_change():
    params = parameters()
    optimizer = optim.SGD([{"params": params[:2]}, {"params": params[2:]}], lr=0.1, momentum=0.9)
    for wrong, error in ((np.ones(3, np.float32), ValueError), (np.ones(7, np.float64), TypeError)):
        give_gradients(params, 0)
        params[2].grad = Tensor(wrong)
        before = arrays(params)
        with pytest.raises(error, match="SGD: a gradient has"):
            optimizer.step()
        params[2].grad = np.ones(7, np.float32)
        with pytest.raises(TypeError, match="SGD: a gradient is a ndarray, wanted a Tensor"):
            optimizer.step()
        assert same(arrays(params), before) and not optimizer.state
        assert all(parameter.version == [0] for parameter in params)


def test_zero_grad():
    params = parameters()
    optimizer = optim.SGD(params)
    give_gradients(params, 0)
    held = params[1].grad.array
    optimizer.zero_grad(set_to_none=False)
    assert params[1].grad.array is held and not held.any()
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in params)


@every_rule
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_infinite_parameter_stays_infinite_without_weight_decay(make, dtype):
    """0 * inf would be NaN, in the parameter and in the state."""
    params = parameters(dtype)
    optimizer = make(params)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0
    params[1].array[2, 3], params[2].array[0] = math.inf, -math.inf
    train(optimizer, params, range(3))
    assert params[1].array[2, 3] == math.inf and params[2].array[0] == -math.inf
    assert [np.isinf(array).sum() for array in arrays(params)] == [0, 1, 1, 0]
    assert not any(np.isnan(array).any() for array in arrays(params))
    for values in optimizer.state.values():
        assert all(np.isfinite(value).all() for value in values.values())


def test_adagrad_begins_with_a_sum():
    params = parameters()
    optimizer = optim.Adagrad(params[:2], initial_accumulator_value=0.5)
    optimizer.add_param_group({"params": params[2:], "initial_accumulator_value": 8.0})
    train(optimizer, params, range(1))
    for parameter, start in zip(params, (0.5, 0.5, 8.0, 8.0), strict=True):
        total = optimizer.state[parameter]["sum"]
        assert total.strides == parameter.array.strides
        np.testing.assert_allclose(total, start + parameter.grad.array**2, rtol=1e-6)


def test_minimum_of_a_parabola():
    for make in RULES.values():
        x = nn.Parameter(np.array([3.0, -2.0]))
        optimizer = make([x])
        for _ in range(300):
            optimizer.zero_grad()
            (x * x).sum().backward()
            optimizer.step()
        assert np.abs(np.array(x.detach())).max() < 0.1


# ---- groups and options ----------------------------------------------------------------------------------------------


def test_groups():
    params = parameters()
    optimizer = optim.AdamW([{"params": params[0], "lr": 0.5}, {"params": iter(params[1:3]), "weight_decay": 0.3}])
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2]
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 1e-3]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-2, 0.3]
    optimizer.add_param_group({"params": [params[3]], "betas": (0.5, 0.5)})
    assert optimizer.param_groups[2]["betas"] == (0.5, 0.5) and optimizer.param_groups[2]["eps"] == 1e-8
    assert repr(optimizer).startswith("AdamW({'lr': 0.5, 'betas': (0.9, 0.999), ")
    optimizer.add_param_group({"params": []})
    assert optimizer.param_groups[3]["params"] == []


def test_numbers_may_come_in_tensors_and_numpy_scalars():
    params = parameters()
    optimizer = optim.Adam(
        [{"params": params[:2]}, {"params": params[2:], "lr": np.float32(0.5)}],
        lr=Tensor([[0.25]], requires_grad=True),
        betas=[Tensor(0.5), 0.75],
        weight_decay=Tensor([2]),
        amsgrad=np.True_,
    )
    first, second = optimizer.param_groups
    assert (first["lr"], second["lr"], first["betas"], first["weight_decay"]) == (0.25, 0.5, (0.5, 0.75), 2)
    assert optimizer.defaults["lr"] == 0.25 and first["amsgrad"] is True
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(optimizer, params, range(1), schedule)
    assert schedule.get_last_lr() == [0.125, 0.25]
    assert json.loads(json.dumps(optimizer.state_dict()["param_groups"][0]))["lr"] == 0.125


def test_a_refused_group_changes_nothing():
    params = parameters()
    optimizer = optim.SGD(params[:2])
    for group in ({"params": params[1:]}, {"params": params[2:], "lr": -1}, {"params": [params[2], params[2]]}):
        with pytest.raises(MinigradError):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1 and optimizer.param_groups[0]["params"] == params[:2]


# ---- state -----------------------------------------------------------------------------------------------------------


@every_rule
def test_a_resumed_run_is_the_same_run(make):
    params = parameters()
    optimizer = make(params)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 8)
    train(optimizer, params, range(4), schedule)
    saved, state, plan = arrays(params), through_json(optimizer.state_dict()), json.dumps(schedule.state_dict())
    train(optimizer, params, range(4, 8), schedule)

    others = parameters(order=None)  # even if the filter lies otherwise
    for parameter, array in zip(others, saved, strict=True):
        parameter.array[...] = array
    resumed = make(others)
    continued = lr_scheduler.CosineAnnealingLR(resumed, 8)
    resumed.load_state_dict(state)
    continued.load_state_dict(json.loads(plan))
    train(resumed, others, range(4, 8), continued)
    assert same(arrays(others), arrays(params))
    first, second = optimizer.state_dict(), resumed.state_dict()
    assert first["param_groups"] == second["param_groups"] and first["state"].keys() == second["state"].keys()
    for index, values in first["state"].items():
        assert same(values.values(), second["state"][index].values())


def test_state_is_a_copy():
    params = parameters()
    optimizer = optim.Adam(params)
    train(optimizer, params, range(1))
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"][...] = 0
    state["param_groups"][0]["lr"] = 5
    assert optimizer.state[params[0]]["exp_avg"].any() and optimizer.param_groups[0]["lr"] == 1e-3


def test_states_that_do_not_fit_change_nothing():
    params = parameters()
    optimizer = optim.Adam(params)
    train(optimizer, params, range(2))
    good = optimizer.state_dict()

    def changed(**changes):
        state = {
            "state": {i: dict(v) for i, v in good["state"].items()},
            "param_groups": [dict(good["param_groups"][0])],
        }
        state["state"][1] |= changes.pop("first", {})
        state["param_groups"][0] |= changes
        return state

    wrong = [
        ({}, "wanted what state_dict gives"),
        (5, "wanted what state_dict gives"),
        ({**good, "param_groups": []}, "groups of [], wanted groups of [4]".replace("of [],", "of [] parameters,")),
        (changed(params=[0, 1, 2]), "groups of [3] parameters"),
        (changed(params=[0, 1, 2, 9]), "state of parameter 3, which is in no group"),
        (changed(first={"exp_avg": np.ones((5, 8))}), "state[1]['exp_avg'] has shape (5, 8)"),
        (changed(first={"exp_avg": "text"}), "state[1]['exp_avg'] has shape ()"),
        (changed(first={"exp_avg": np.full((5, 7), "text")}), "could not convert"),
        (changed(first={"step": math.nan}), "NaN"),
        (changed(params=["a", "b", "c", "d"]), "wanted what state_dict gives"),
        (changed(lr=math.nan), "Adam: lr is nan, wanted at least 0"),
    ]
    for state, text in wrong:
        with pytest.raises(ValueError) as caught:
            optimizer.load_state_dict(state)
        assert text in str(caught.value)
        now = optimizer.state_dict()
        assert now["param_groups"] == good["param_groups"]
        for index, values in good["state"].items():
            assert same(values.values(), now["state"][index].values())


def test_state_of_adam_in_adamw():
    params, others = parameters(), parameters()
    first = optim.Adam(params, weight_decay=0.1)
    train(first, params, range(2))
    second = optim.AdamW(others)
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["decoupled_weight_decay"] is True and second.param_groups[0]["weight_decay"] == 0.1
    first.load_state_dict(second.state_dict())
    assert first.param_groups[0]["decoupled_weight_decay"] is True
