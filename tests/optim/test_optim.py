"""Optimisers: groups, state, layouts, refusals. Rules beside PyTorch's: tests/oracles/test_optim_torch."""

import json

import numpy as np
import pytest

from minigrad import MinigradError, Tensor, optim
from minigrad.optim import lr_scheduler
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from tests.optim.optim_parts import arrays, every_rule, give_gradients, parameters, same, same_states, train

# ---- steps -----------------------------------------------------------------------------------------------------------


@every_rule
def test_parameters_without_a_gradient_stay(make):
    params = parameters()
    before, optimizer = arrays(params), make(params)
    optimizer.step()
    assert same(arrays(params), before) and not optimizer.state
    give_gradients(params, 0)
    params[1].grad = None
    optimizer.step()
    assert not np.array_equal(arrays(params)[0], before[0]) and np.array_equal(arrays(params)[1], before[1])
    assert [parameter.version[0] for parameter in params[:2]] == [1, 0] and params[1] not in optimizer.state


@every_rule
def test_layouts_of_parameter_gradient_and_state(make):
    """The same bits whichever way filter and gradient lie; the state lies as its parameter."""
    results = []
    for order, gradient_order in ((None, None), (None, FILTER), (FILTER, None), (FILTER, FILTER)):
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


def relaid(optimizer):
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.data = np.array(parameter.array, order="C")
    optimizer.load_state_dict(optimizer.state_dict())  # which lays the state likewise


def halved_states(optimizer):
    for state in optimizer.state.values():
        state.update({name: np.asarray(value / 2, value.dtype) for name, value in state.items() if name != "step"})


def without_two(optimizer):
    for parameter in optimizer.param_groups[0]["params"][:2]:
        parameter.grad = None


def with_other_options(optimizer):
    optimizer.param_groups[0]["lr"] *= 2
    optimizer.param_groups[0]["maximize"] = True
    optimizer.param_groups[0]["params"].reverse()


CHANGES = None, None, relaid, None, halved_states, without_two, None, with_other_options, None


@every_rule
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_changes_between_steps_is_followed(make, dtype):
    """As if nothing were known from the steps before."""
    params, others = parameters(dtype), parameters(dtype)
    steady, forgetful = make(params), make(others)
    for step, change in enumerate(CHANGES):
        for optimizer, of in ((steady, params), (forgetful, others)):
            give_gradients(of, step, (FILTER, None, CHANNELS_LAST)[step // 3])
            if change is not None:
                change(optimizer)
        forgetful._plans.clear()
        steady.step(), forgetful.step()
        assert same(arrays(params), arrays(others)), step
    same_states(steady, forgetful)


def test_gradients_that_do_not_fit_are_refused_before_any_change():
    params = parameters()
    optimizer = optim.Adam([{"params": params[:2]}, {"params": params[2:]}], lr=0.1)
    for steps in (0, 3):  # at first, and where all fitted before
        train(optimizer, params, range(steps))
        before, versions, state = arrays(params), [p.version[0] for p in params], str(optimizer.state_dict())
        wrong = Tensor(np.ones(3, np.float32)), Tensor(np.ones(7)), np.ones(7, np.float32)
        for gradient, words in zip(wrong, ("has shape", "has elements", "is a ndarray, wanted a Tensor"), strict=True):
            give_gradients(params, 3)
            params[2].grad = gradient
            with pytest.raises((ValueError, TypeError), match=f"^Adam: a gradient {words}"):
                optimizer.step()
        assert same(arrays(params), before) and [p.version[0] for p in params] == versions
        assert str(optimizer.state_dict()) == state


def test_zero_grad():
    params = parameters()
    optimizer = optim.SGD(params)
    (params[1] ** 3).sum().backward(create_graph=True)
    held = params[1].grad.array
    optimizer.zero_grad(set_to_none=False)
    assert params[1].grad.array is held and not held.any() and not params[1].grad.requires_grad
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in params)


# ---- groups and options ----------------------------------------------------------------------------------------------


def test_groups():
    params = parameters()
    optimizer = optim.AdamW([{"params": params[0], "lr": 0.5}, {"params": iter(params[1:3]), "weight_decay": 0.3}])
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2]
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 1e-3]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-2, 0.3]
    assert repr(optimizer).startswith("AdamW({'lr': 0.5, 'betas': (0.9, 0.999), ")
    for group in ({"params": params[2:]}, {"params": params[3:], "lr": -1}, {"params": [params[3], params[3]]}):
        with pytest.raises(MinigradError):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 2  # what is refused changes nothing
    optimizer.add_param_group({"params": [params[3]], "betas": (0.5, 0.5), "initial_lr": 0.25})
    added = optimizer.param_groups[2]
    assert (added["betas"], added["eps"], added["initial_lr"]) == ((0.5, 0.5), 1e-8, 0.25)


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
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(optimizer, params, range(1), schedule)
    assert schedule.get_last_lr() == [0.125, 0.25]
    assert json.loads(json.dumps(optimizer.state_dict()["param_groups"][0]))["lr"] == 0.125


# ---- state -----------------------------------------------------------------------------------------------------------


@every_rule
def test_a_resumed_run_is_the_same_run(make):
    params = parameters()
    optimizer = make(params)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 8)
    train(optimizer, params, range(4), schedule)
    saved, plan = arrays(params), json.dumps(schedule.state_dict())
    state = json.loads(json.dumps(optimizer.state_dict(), default=np.ndarray.tolist))
    train(optimizer, params, range(4, 8), schedule)  # the state is a copy

    others = parameters(order=None)  # even if the filter lies otherwise
    for parameter, array in zip(others, saved, strict=True):
        parameter.array[...] = array
    resumed = make(others)
    continued = lr_scheduler.CosineAnnealingLR(resumed, 8)
    resumed.load_state_dict(state)
    continued.load_state_dict(json.loads(plan))
    train(resumed, others, range(4, 8), continued)
    assert same(arrays(others), arrays(params))
    same_states(optimizer, resumed)
    assert optimizer.state_dict()["param_groups"] == resumed.state_dict()["param_groups"]


def test_states_that_do_not_fit_change_nothing():
    params = parameters()
    optimizer = optim.Adam(params, amsgrad=True)
    train(optimizer, params, range(2))
    good, before = optimizer.state_dict(), str(optimizer.state_dict())
    (group,), first = good["param_groups"], good["state"][1]
    mean = first.pop("exp_avg")
    state = lambda **changes: {**good, "state": {**good["state"], 1: {**first, "exp_avg": mean, **changes}}}
    options = lambda **changes: {**good, "param_groups": [{**group, **changes}]}
    wrong = [
        (5, "Adam.load_state_dict: wanted what state_dict gives"),
        ({**good, "state": {0: 5}}, "wanted what state_dict gives"),
        (options(params=[0, 1, 2]), "groups of [3] parameters, wanted groups of [4]"),
        (options(params=[0, 1, 2, 9]), "state of parameter 3, which is in no group"),
        (good, "state[1] has 'exp_avg_sq', 'max_exp_avg_sq', 'step', wanted 'step', 'exp_avg'"),
        (state(exp_avg=np.ones((5, 8))), "state[1]['exp_avg'] has shape (5, 8)"),
    ]
    for given, text in wrong:
        with pytest.raises(ValueError) as caught:
            optimizer.load_state_dict(given)
        assert text in str(caught.value) and str(optimizer.state_dict()) == before
    lr_scheduler.StepLR(optimizer, 2)
    rest = {name: value for name, value in state()["state"][1].items() if name != "max_exp_avg_sq"}
    optimizer.load_state_dict({"state": {1: rest}, "param_groups": [{**group, "lr": -1e-20}]})  # a schedule ended at 0
    assert optimizer.param_groups[0]["lr"] == -1e-20 and optimizer.state[params[1]].keys() == rest.keys()
    assert optimizer.param_groups[0].keys() == {"params", *optimizer.defaults}  # without what the schedule added


def test_state_of_adam_in_adamw():
    first, second = optim.Adam(parameters(), weight_decay=0.1), optim.AdamW(parameters())
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["decoupled_weight_decay"] is True and second.param_groups[0]["weight_decay"] == 0.1
    first.load_state_dict(second.state_dict())
    assert first.param_groups[0]["decoupled_weight_decay"] is True
