"""Optimisers at their edges: words of refusals, states that are none, what other parts hear of a step."""

import math

import numpy as np
import pytest

from minigrad import Tensor, device, nn, optim
from minigrad.core.interceptors import Interceptor
from minigrad.optim.optimizer import Repeat
from minigrad_kernels.toolchain.modes import capturing
from tests.optim.optim_parts import give_gradients, parameters


def test_gradients_that_have_a_graph_are_filled_with_zeros_without_it():
    (w,) = params = [nn.Parameter(np.ones(3, "f"))]
    (w * w * w).sum().backward(create_graph=True)
    assert w.grad.requires_grad
    optim.SGD(params).zero_grad(set_to_none=False)
    assert not w.grad.requires_grad and not w.grad.array.any()


def test_a_state_is_refused_or_taken_over_as_a_whole():
    params = parameters()
    optimizer = optim.Adam(params, lr=0.5)
    give_gradients(params, 0)
    optimizer.step()
    good = optimizer.state_dict()
    (group,) = good["param_groups"]
    with pytest.raises(ValueError, match=r"^Adam.load_state_dict: wanted what state_dict gives"):
        optimizer.load_state_dict({**good, "state": {0: 5}})
    with pytest.raises(ValueError, match="^Adam: eps is -1, wanted at least 0"):
        optimizer.load_state_dict({**good, "param_groups": [{**group, "eps": -1, "lr": 2.0}]})
    with pytest.raises(ValueError, match="^Adam: lr is nan, wanted at least 0"):
        optimizer.load_state_dict({**good, "param_groups": [{**group, "lr": math.nan}]})
    assert optimizer.param_groups[0]["lr"] == 0.5 and len(optimizer.state) == 4
    optimizer.load_state_dict({**good, "param_groups": [{**group, "lr": -1e-20}]})  # where a schedule ended at 0
    assert optimizer.param_groups[0]["lr"] == -1e-20


KEPT = {  # of the state: what must be there, what may be
    optim.SGD: ("", "momentum_buffer"),
    optim.Adam: ("step exp_avg exp_avg_sq", "max_exp_avg_sq"),
    optim.RMSprop: ("step square_avg", "grad_avg momentum_buffer"),
    optim.Adagrad: ("step sum", ""),
}
ALL = dict(momentum=0.5, amsgrad=True, centered=True)  # the options that make all of it


@pytest.mark.parametrize("rule", KEPT, ids=lambda rule: rule.__name__)
def test_a_state_lacks_only_what_it_may(rule):
    params = parameters()[:1]
    optimizer = rule(params, lr=0.5)
    optimizer = rule(params, **{name: value for name, value in ALL.items() if name in optimizer.defaults})
    give_gradients(params, 0)
    optimizer.step()
    state, (needed, others) = optimizer.state_dict(), map(str.split, KEPT[rule])
    assert set(state["state"][0]) == {*needed, *others}
    for name, value in state["state"][0].items():
        rest = {other: kept for other, kept in state["state"][0].items() if other != name}
        if name in needed:
            with pytest.raises(
                ValueError, match=rf"^{rule.__name__}.load_state_dict: state\[0\] has .*, wanted .*{name}"
            ):
                optimizer.load_state_dict({**state, "state": {0: rest}})
        else:
            optimizer.load_state_dict({**state, "state": {0: rest}})
            assert optimizer.state[params[0]].keys() == rest.keys()
        with pytest.raises(ValueError, match=r"state\[0\] has .*'other', wanted"):
            optimizer.load_state_dict({**state, "state": {0: {**rest, "other": value}}})
    optimizer.load_state_dict(state)
    assert optimizer.state[params[0]].keys() == state["state"][0].keys()


def test_a_group_may_bring_the_rate_from_which_a_schedule_begins():
    params = parameters()
    optimizer = optim.SGD(params[:1], lr=0.5)
    optimizer.add_param_group({"params": params[1:], "initial_lr": 0.25})
    assert optimizer.param_groups[1]["initial_lr"] == 0.25


def test_options_that_a_schedule_added_go_with_a_state_from_before():
    optimizer = optim.SGD(parameters(), lr=0.5)
    before = optimizer.state_dict()
    optim.lr_scheduler.StepLR(optimizer, 2)
    assert "initial_lr" in optimizer.param_groups[0]
    optimizer.load_state_dict(before)
    assert optimizer.param_groups[0].keys() == {"params", *optimizer.defaults}


@pytest.mark.parametrize("name", ["lr", "momentum"])
def test_an_option_that_became_no_number_is_refused_at_the_step(name):
    params = parameters()
    optimizer = optim.SGD(params, lr=0.5, momentum=0.5)
    optimizer.param_groups[0][name] = "0.1"
    give_gradients(params, 0)
    with pytest.raises(TypeError, match=f"^SGD: {name} is '0.1', wanted a number$"):
        optimizer.step()


def test_dampening_below_0():
    """b = 2 * 1 + (1 + 2) * 1 at the second step; of options that are integers, too."""
    parameter = nn.Parameter(np.zeros(1))
    optimizer = optim.SGD([parameter], lr=1, momentum=2, dampening=-2)
    for wanted in (-1, -6):
        parameter.grad = Tensor(np.ones(1))
        optimizer.step()
        assert parameter.detach().item() == wanted


def test_options_are_shown_by_group():
    params = parameters()
    shown = repr(optim.Adagrad([{"params": params[:1]}, {"params": params[1:], "lr": 0.5}], eps=0.25))
    options = "'lr': {}, 'lr_decay': 0, 'weight_decay': 0, 'eps': 0.25, 'initial_accumulator_value': 0"
    groups = ["{" + options.format(lr) + ", 'maximize': False}" for lr in (0.01, 0.5)]
    assert shown == f"Adagrad({', '.join(groups)})"


@pytest.mark.parametrize("flag", [None, 0.0])
def test_a_graph_is_told_of_each_launch_and_each_gradient(flag):
    class Recorder(Interceptor):
        def __init__(self):
            self.gradients, self.notes = [], []

        def before_gradient(self, leaf, adds):
            self.gradients.append(leaf)

        def note(self, *calls):
            self.notes.append(calls)

    params, recorder = [*parameters(), *parameters("float64")], Recorder()
    optimizer = optim.SGD(params, lr=0.5)
    give_gradients(params, 0)
    token = capturing.set(recorder)
    try:
        with recorder:
            optimizer.step(found_inf=None if flag is None else device.full((1,), flag, "float64"))
            optimizer.zero_grad()
    finally:
        capturing.reset(token)
    assert recorder.gradients == params and len(recorder.notes) == 2
    assert [again.__self__.unsure is None for again, _, _ in recorder.notes] == [flag is None] * 2


def test_what_a_graph_repeats_is_told_from_another_step():
    params = parameters()
    optimizer = optim.Adam(params, weight_decay=0.5)
    give_gradients(params, 0)
    optimizer.step()
    (group,), first = optimizer.param_groups, optimizer.state[params[0]]
    repeat = Repeat(optimizer, group, 1, params, None)
    assert repeat.check()
    group["lr"], first["step"] = 0.25, 1  # what a step reads anew
    assert repeat.check()
    first["step"] = 7
    assert not repeat.check()  # one launch has one age
    first["step"] = 1
    mean, first["exp_avg"] = first["exp_avg"], first["exp_avg"].copy()
    assert not repeat.check()  # other memory
    first["exp_avg"], first["more"] = mean, mean
    assert not repeat.check()
    del first["more"]
    assert repeat.check()


def test_a_step_that_a_graph_did_not_make_is_taken_back():
    class Plan:
        told = []

        def repeat(self, numbers):
            self.told.append(("repeat", tuple(numbers)))

        def retract(self, numbers):
            self.told.append(("retract", tuple(numbers)))

    params = parameters()[:1]  # of one alone, too
    optimizer = optim.Adam(params)
    give_gradients(params, 0)
    optimizer.step()
    (group,), plan = optimizer.param_groups, Plan()
    repeat = Repeat(optimizer, group, 0, params, plan, "a launch")
    before = optimizer.numbers(group, 0), optimizer.numbers(group, 1)
    repeat.again()
    assert [state["step"] for state in optimizer.state.values()] == [2] and optimizer._unsure == {
        "a launch": (params, plan)
    }
    repeat.undo()
    assert [state["step"] for state in optimizer.state.values()] == [1]
    assert Plan.told == [("repeat", tuple(before[1])), ("retract", tuple(before[0]))]
    assert repeat.check()
    repeat.again()
    assert repeat.check()  # also where the steps count further


def test_a_buffer_goes_with_a_first_step_that_was_skipped():
    params = parameters()
    optimizer = optim.SGD(params, momentum=0.5)
    give_gradients(params, 0)
    optimizer.step()
    optimizer.recount([optimizer.state[params[0]]], 0)
    assert set(optimizer.state[params[0]]) == {"momentum_buffer"}
    optimizer.recount([optimizer.state[params[0]]], 1)  # the first step has still to come
    assert not optimizer.state[params[0]]
