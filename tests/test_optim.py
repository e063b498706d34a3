"""Optimisers: groups, state, layouts, refusals; schedules; clipping. Rules: oracles/test_optim_torch."""

import json
import math

import numpy as np
import pytest

from minigrad import MinigradError, Tensor, nn, optim
from minigrad.device import empty
from minigrad.optim import lr_scheduler
from minigrad_kernels import optimizer as kernels
from minigrad_kernels.layout import FILTER

RULES = {
    "SGD": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "SGD plain": lambda params: optim.SGD(params, lr=0.05),
    "SGD nesterov": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda params: optim.Adam(params, lr=0.05),
    "AdamW": lambda params: optim.AdamW(params, lr=0.05, amsgrad=True),
    "RMSprop": lambda params: optim.RMSprop(params, momentum=0.5, centered=True),
}
every_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def parameters(dtype="float32", order=FILTER):
    """A filter that lies in this order, a matrix, a vector, a scalar."""
    rng = np.random.default_rng(0)
    made = []
    for shape in ((4, 3, 3, 2), (5, 7), (7,), ()):
        array = empty(shape, dtype, order if len(shape) == 4 else None)
        array[...] = rng.standard_normal(shape)
        made.append(nn.Parameter(array))
    return made


def give_gradients(params, step, order=None):
    rng = np.random.default_rng(100 + step)
    for parameter in params:
        array = empty(parameter.shape, parameter.dtype, order if parameter.ndim == 4 else None)
        array[...] = rng.standard_normal(parameter.shape)
        parameter.grad = Tensor(array)


def train(optimizer, params, steps, schedule=None):
    for step in steps:
        give_gradients(params, step)
        optimizer.step()
        if schedule is not None:
            schedule.step()


def arrays(params):
    return [np.array(parameter.detach(), order="C") for parameter in params]


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


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
                assert name == "step" or array.strides == params[0].data.strides
            for saved in optimizer.state_dict()["state"].values():
                assert all(name == "step" or array.flags.c_contiguous for name, array in saved.items())
    assert all(same(results[0], result) for result in results[1:])


def test_one_launch_for_each_type_of_a_group(monkeypatch):
    calls = []
    adam = kernels.adam
    monkeypatch.setattr(kernels, "adam", lambda params, *rest: calls.append(len(params)) or adam(params, *rest))
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
        assert same(arrays(params), before) and not optimizer.state
        assert all(parameter.version == [0] for parameter in params)


def test_zero_grad():
    params = parameters()
    optimizer = optim.SGD(params)
    give_gradients(params, 0)
    held = params[1].grad.data
    optimizer.zero_grad(set_to_none=False)
    assert params[1].grad.data is held and not held.any()
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in params)


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
    assert "Parameter Group 2" in repr(optimizer) and "    lr: 0.5" in repr(optimizer)


P = parameters()
LEAF = nn.Parameter([1.0])
GAPS = nn.Parameter(np.zeros((4, 4), np.float32)[:, ::2])
REFUSED = [
    (lambda: optim.SGD([]), ValueError, "SGD: params is empty"),
    (lambda: optim.SGD(LEAF), TypeError, "SGD: params is a single Tensor"),
    (lambda: optim.SGD(5), TypeError, "SGD: params is a int"),
    (lambda: optim.SGD([LEAF, 5]), TypeError, "SGD: params[1] is a int, wanted a Tensor"),
    (lambda: optim.SGD([LEAF, LEAF]), ValueError, "SGD: params[1] (shape (1,)) is there twice"),
    (lambda: optim.SGD([{"params": [LEAF]}, {"params": [LEAF]}]), ValueError, "is there twice"),
    (lambda: optim.SGD([LEAF * 2]), RuntimeError, "SGD: params[0] was made by mul, wanted a leaf"),
    (lambda: optim.SGD([Tensor([1, 2])]), TypeError, "SGD: params[0] has elements int64, wanted floating"),
    (lambda: optim.SGD([GAPS]), ValueError, "SGD: params[0] (shape (4, 2)) is read-only or has gaps"),
    (lambda: optim.SGD([{"lr": 1.0}]), TypeError, "wanted a dictionary with 'params'"),
    (lambda: optim.SGD([{"params": [LEAF], "momentun": 1}]), ValueError, "a group has the options ['momentun']"),
    (lambda: optim.SGD(P, lr=-1), ValueError, "SGD: lr is -1, wanted at least 0"),
    (lambda: optim.SGD(P, lr=math.nan), ValueError, "SGD: lr is nan"),
    (lambda: optim.SGD(P, lr="0.1"), TypeError, "SGD: lr is '0.1', wanted a number"),
    (lambda: optim.SGD(P, momentum=-0.1), ValueError, "SGD: momentum is -0.1"),
    (lambda: optim.SGD(P, weight_decay=-1), ValueError, "SGD: weight_decay is -1"),
    (lambda: optim.SGD(P, nesterov=True), ValueError, "SGD: nesterov is True with momentum 0 and dampening 0"),
    (lambda: optim.SGD(P, momentum=0.9, dampening=0.1, nesterov=True), ValueError, "SGD: nesterov is True"),
    (lambda: optim.SGD(P, momentum=0.9, nesterov="no"), TypeError, "SGD: nesterov is 'no', wanted True or False"),
    (lambda: optim.Adam(P, maximize=2), TypeError, "Adam: maximize is 2, wanted True or False"),
    (lambda: optim.Adam(P, betas=(0.9, 1.0)), ValueError, "Adam: betas[1] is 1.0, wanted at least 0 and below 1"),
    (lambda: optim.Adam(P, betas=(-0.1, 0.9)), ValueError, "Adam: betas[0] is -0.1"),
    (lambda: optim.Adam(P, betas=0.9), TypeError, "Adam: betas is 0.9, wanted a pair"),
    (lambda: optim.AdamW(P, eps=-1), ValueError, "AdamW: eps is -1"),
    (lambda: optim.RMSprop(P, alpha=-1), ValueError, "RMSprop: alpha is -1"),
    (lambda: optim.RMSprop(P, momentum=-1), ValueError, "RMSprop: momentum is -1"),
]


@pytest.mark.parametrize("make, error, text", REFUSED, ids=[text for *_, text in REFUSED])
def test_options_refused(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value) and isinstance(caught.value, MinigradError)


def test_a_refused_group_changes_nothing():
    params = parameters()
    optimizer = optim.SGD(params[:2])
    for group in ({"params": params[1:]}, {"params": params[2:], "lr": -1}, {"params": [params[2], params[2]]}):
        with pytest.raises(MinigradError):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1 and optimizer.param_groups[0]["params"] == params[:2]


# ---- state -----------------------------------------------------------------------------------------------------------


def through_json(state):
    """The state as a checkpoint keeps it: arrays apart, the rest as JSON text."""
    kept = {(i, name): value for i, values in state["state"].items() for name, value in values.items()}
    groups = json.loads(json.dumps(state["param_groups"]))
    loaded = {}
    for (index, name), value in kept.items():
        loaded.setdefault(str(index), {})[name] = value if isinstance(value, int) else np.array(value)
    return {"state": loaded, "param_groups": groups}


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
        parameter.data[...] = array
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
        (changed(first={"step": np.ones(3)}), "state[1]['step'] has shape (3,)"),
        (changed(lr=-1.0), "Adam: lr is -1.0"),
    ]
    for state, text in wrong:
        with pytest.raises(ValueError) as caught:
            optimizer.load_state_dict(state)
        assert text in str(caught.value)
        now = optimizer.state_dict()
        assert now["param_groups"] == good["param_groups"]
        for index, values in good["state"].items():
            assert same(values.values(), now["state"][index].values())


# ---- schedules -------------------------------------------------------------------------------------------------------

SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
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


def rates(schedule, steps):
    found = [schedule.get_last_lr()]
    for _ in range(steps):
        schedule.step()
        found.append(schedule.get_last_lr())
    return found


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


def test_last_epoch_goes_on_where_another_schedule_stopped():
    optimizer = optim.SGD(parameters(), lr=0.1)
    whole = rates(lr_scheduler.LambdaLR(optim.SGD(parameters(), lr=0.1), lambda epoch: 0.5**epoch), 8)
    rates(lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch), 4)
    assert rates(lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch, last_epoch=4), 3) == whole[5:]
    with pytest.raises(RuntimeError, match="param_groups\\[0\\] has no 'initial_lr'"):
        lr_scheduler.StepLR(optim.SGD(parameters()), 3, last_epoch=4)


S = optim.SGD(parameters(), lr=0.1)
WRONG_SCHEDULES = [
    (lambda: lr_scheduler.StepLR(5, 3), TypeError, "StepLR: optimizer is a int"),
    (lambda: lr_scheduler.StepLR(S, 0), ValueError, "StepLR: step_size is 0, wanted at least 1"),
    (lambda: lr_scheduler.StepLR(S, 1.5), TypeError, "StepLR: step_size is 1.5, wanted an integer"),
    (lambda: lr_scheduler.StepLR(S, 2, gamma="x"), TypeError, "StepLR: gamma is 'x', wanted a number"),
    (lambda: lr_scheduler.LinearLR(S, "x"), TypeError, "LinearLR: start_factor is 'x'"),
    (lambda: lr_scheduler.CosineAnnealingLR(S, 9, None), TypeError, "CosineAnnealingLR: eta_min is None"),
    (lambda: lr_scheduler.OneCycleLR(S, "x", 10), TypeError, "OneCycleLR: max_lr is 'x'"),
    (lambda: lr_scheduler.OneCycleLR(S, 0.1, 10, pct_start="x"), TypeError, "OneCycleLR: pct_start is 'x'"),
    (lambda: lr_scheduler.ReduceLROnPlateau(S, factor="x"), TypeError, "ReduceLROnPlateau: factor is 'x'"),
    (lambda: lr_scheduler.ReduceLROnPlateau(S, min_lr=["x"]), TypeError, "ReduceLROnPlateau: min_lr is 'x'"),
    (lambda: lr_scheduler.LinearLR(S, 0), ValueError, "LinearLR: start_factor is 0"),
    (lambda: lr_scheduler.LinearLR(S, end_factor=2), ValueError, "LinearLR: end_factor is 2"),
    (lambda: lr_scheduler.CosineAnnealingLR(S, 0), ValueError, "CosineAnnealingLR: T_max is 0"),
    (lambda: lr_scheduler.LambdaLR(S, [abs, abs]), ValueError, "LambdaLR: lr_lambda has 2 values"),
    (lambda: lr_scheduler.OneCycleLR(S, 0.1), ValueError, "OneCycleLR: total_steps is None"),
    (lambda: lr_scheduler.OneCycleLR(S, 0.1, 10, pct_start=2), ValueError, "OneCycleLR: pct_start is 2"),
    (lambda: lr_scheduler.OneCycleLR(S, 0.1, 10, anneal_strategy="x"), ValueError, "anneal_strategy is 'x'"),
    (lambda: lr_scheduler.OneCycleLR(S, [0.1, 0.2], 10), ValueError, "OneCycleLR: max_lr has 2 values"),
    (lambda: lr_scheduler.ReduceLROnPlateau(S, "up"), ValueError, "mode is 'up', wanted 'min' or 'max'"),
    (lambda: lr_scheduler.ReduceLROnPlateau(S, factor=1), ValueError, "factor is 1"),
    (lambda: lr_scheduler.ReduceLROnPlateau(S, min_lr=[1, 2]), ValueError, "min_lr has 2 values"),
    (lambda: lr_scheduler.ReduceLROnPlateau(S).step("x"), TypeError, "metrics is 'x'"),
    (lambda: lr_scheduler.SequentialLR(S, [], []), ValueError, "0 schedulers and milestones []"),
    (lambda: lr_scheduler.SequentialLR(S, [lr_scheduler.ReduceLROnPlateau(S)], []), TypeError, "without a metric"),
    (
        lambda: lr_scheduler.SequentialLR(S, [lr_scheduler.StepLR(optim.SGD(parameters()), 3)], []),
        ValueError,
        "belongs to another optimiser",
    ),
]


@pytest.mark.parametrize("make, error, text", WRONG_SCHEDULES, ids=[text for *_, text in WRONG_SCHEDULES])
def test_schedules_refuse(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value) and isinstance(caught.value, MinigradError)
    assert S.param_groups[0]["lr"] == 0.1


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
    for state in (5, {}, lr_scheduler.StepLR(optimizer, 3).state_dict(), {**before, "schedulers": [{}, {}]}):
        with pytest.raises(ValueError, match="load_state_dict"):
            schedule.load_state_dict(state)
    assert schedule.state_dict() == before
    step = lr_scheduler.StepLR(optimizer, 3)
    for name, value in (("gamma", None), ("last_epoch", 1.5)):
        with pytest.raises(TypeError, match=f"StepLR.load_state_dict: {name} is {value}, wanted a number"):
            step.load_state_dict({**step.state_dict(), name: value})


# ---- clipping --------------------------------------------------------------------------------------------------------


def test_gradients_within_the_norm_keep_their_bits():
    params = parameters()
    give_gradients(params, 0, FILTER)
    before = [np.array(p.grad) for p in params]
    norm = optim.clip_grad_norm_(iter(params), 1e3)
    exact = math.sqrt(math.fsum(float(x) ** 2 for array in before for x in array.ravel()))
    assert norm.item() == np.float32(exact) and same([np.array(p.grad) for p in params], before)
    optim.clip_grad_norm_(params, exact / 2)
    half = [np.float32(0.5) * array for array in before]
    for parameter, wanted in zip(params, half, strict=True):
        np.testing.assert_allclose(np.array(parameter.grad), wanted, rtol=1e-6)  # 1e-6 stands below the fraction too


def test_clipping_mixed_types_and_nothing():
    params = [*parameters("float64"), *parameters("float32")]
    assert optim.clip_grad_norm_(params, 1.0).item() == 0
    give_gradients(params, 0)
    before = math.sqrt(math.fsum(float((np.array(p.grad).astype(float) ** 2).sum()) for p in params))
    assert optim.clip_grad_norm_(params, 1.0).item() == pytest.approx(before, rel=1e-12)
    assert optim.clip_grad_norm_(params, 1.0).item() == pytest.approx(1.0, rel=1e-5)
    assert optim.clip_grad_norm_(params[0], 1e9, math.inf).item() == np.abs(np.array(params[0].grad)).max()


def test_clipping_refuses():
    params = parameters()
    give_gradients(params, 0)
    params[1].grad.data[0, 0] = math.inf
    before = [np.array(p.grad) for p in params]
    with pytest.raises(RuntimeError, match="the 2.0-norm of the gradients is inf"):
        optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    with pytest.raises(TypeError, match="parameters\\[0\\] is a int"):
        optim.clip_grad_norm_([5], 1.0)
    with pytest.raises(TypeError, match="max_norm is 'x'"):
        optim.clip_grad_norm_(params, "x")
    with pytest.raises(ValueError, match="norm_type is 0.0"):
        optim.clip_grad_norm_(params, 1.0, 0)
    with pytest.raises(ValueError, match="clip_value is -1.0"):
        optim.clip_grad_value_(params, -1)
    assert same([np.array(p.grad) for p in params], before)
