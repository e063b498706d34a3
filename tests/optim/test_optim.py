"""Optimisers: groups, state, layouts, refusals, Muon.

Each rule at each of its options, and each schedule, beside PyTorch's: tests/oracles/test_optim_torch.py.
"""

import json

import numpy as np
import pytest

from minigrad import MinigradError, Tensor, nn, optim
from minigrad.graph import capture
from minigrad.optim import lr_scheduler
from minigrad.optim.rules import orthogonalized
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from tests.device.stand_in_gpus import gpus
from tests.optim.optim_parts import arrays, close, every_rule, give_gradients, parameters, same, same_states

# ---- steps -----------------------------------------------------------------------------------------------------------


def trained(make, order=FILTER, gradient_order=None, resumed=False):
    """Parameters and optimiser after six steps under a schedule; resumed: from a state in JSON, in between."""
    params = parameters(order=order)
    optimizer = make(params)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 8)
    for step in range(6):
        give_gradients(params, step, gradient_order)
        if step < 2:
            params[1].grad = None
        if step == 3 and resumed:
            state, plan = json.dumps(optimizer.state_dict(), default=np.ndarray.tolist), schedule.state_dict()
            optimizer = make(params)
            schedule = lr_scheduler.CosineAnnealingLR(optimizer, 8)
            optimizer.load_state_dict(json.loads(state)), schedule.load_state_dict(json.loads(json.dumps(plan)))
        optimizer.step(), schedule.step()
        if step == 1:  # without a gradient nothing happens
            assert same(arrays(params)[1:2], arrays(parameters())[1:2]) and params[1] not in optimizer.state
            assert [parameter.version[0] for parameter in params[:2]] == [2, 0]
    for name, array in optimizer.state.get(params[0], {}).items():
        assert name == "step" or array.strides == params[0].array.strides
    return params, optimizer


@every_rule
def test_layouts_and_states_of_a_rule(make):
    """The same bits however filter and gradient lie, and where a run is resumed; a state lies as its parameter."""
    params, optimizer = trained(make)
    for saved in optimizer.state_dict()["state"].values():
        assert all(name == "step" or array.flags.c_contiguous for name, array in saved.items())
    for how in ((None, None), (None, FILTER), (FILTER, FILTER), (FILTER, None, True)):
        others, other = trained(make, *how)
        assert same(arrays(params), arrays(others)), how
        same_states(optimizer, other)
        assert optimizer.state_dict()["param_groups"] == other.state_dict()["param_groups"]


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
    wrong = Tensor(np.ones(3, np.float32)), Tensor(np.ones(7)), np.ones(7, np.float32)
    for _ in range(2):  # at first, and where all fitted before
        before, versions, state = arrays(params), [p.version[0] for p in params], str(optimizer.state_dict())
        for gradient, words in zip(wrong, ("has shape", "has elements", "is a ndarray, wanted a Tensor"), strict=True):
            give_gradients(params, 3)
            params[2].grad = gradient
            with pytest.raises((ValueError, TypeError), match=f"^Adam: a gradient {words}"):
                optimizer.step()
        assert same(arrays(params), before) and [p.version[0] for p in params] == versions
        assert str(optimizer.state_dict()) == state
        give_gradients(params, 4)
        optimizer.step()


# ---- groups and options ----------------------------------------------------------------------------------------------


def test_groups():
    """With options of their own, which may come in Tensors and NumPy's scalars."""
    params = parameters()
    groups = [{"params": params[0], "lr": np.float32(0.5)}, {"params": iter(params[1:3]), "weight_decay": Tensor([2])}]
    optimizer = optim.AdamW(groups, lr=Tensor([[0.25]], requires_grad=True), betas=[Tensor(0.5), 0.75])
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2]
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(0.5, 1e-2), (0.25, 2)]
    assert repr(optimizer).startswith("AdamW({'lr': 0.5, 'betas': (0.5, 0.75), ")
    for group in ({"params": params[2:]}, {"params": params[3:], "lr": -1}, {"params": [params[3], params[3]]}):
        with pytest.raises(MinigradError):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 2  # what is refused changes nothing
    optimizer.add_param_group({"params": [params[3]], "betas": (0.5, 0.5), "initial_lr": 0.25})
    added = optimizer.param_groups[2]
    assert (added["betas"], added["eps"], added["initial_lr"]) == ((0.5, 0.5), 1e-8, 0.25)
    assert json.loads(json.dumps(optimizer.state_dict()["param_groups"]))[1]["weight_decay"] == 2


# ---- state -----------------------------------------------------------------------------------------------------------


def test_states_that_do_not_fit_change_nothing():
    params = parameters()
    optimizer = optim.Adam(params, amsgrad=True)
    give_gradients(params, 0)
    optimizer.step()
    good, before = optimizer.state_dict(), str(optimizer.state_dict())
    (group,), first = good["param_groups"], good["state"][1]
    mean = first.pop("exp_avg")
    state = lambda **changes: {**good, "state": {**good["state"], 1: {**first, "exp_avg": mean, **changes}}}
    options = lambda **changes: {**good, "param_groups": [{**group, **changes}]}
    wrong = [
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
    optimizer.load_state_dict({"state": {1: rest}, "param_groups": [{**group, "lr": 0}]})
    assert optimizer.param_groups[0]["lr"] == 0 and optimizer.state[params[1]].keys() == rest.keys()
    assert optimizer.param_groups[0].keys() == {"params", *optimizer.defaults}  # without what the schedule added


# ---- Muon, Adadelta --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (4, 7), (7, 4), (16, 2)])
def test_singular_values_come_near_one(shape):
    """By the iteration of PyTorch's: tests/oracles/test_optim_torch.py."""
    matrix = np.random.default_rng(0).standard_normal(shape)
    found = orthogonalized(Tensor(matrix)).numpy()
    u, _, v = np.linalg.svd(matrix, full_matrices=False)
    sizes = u.T @ found @ v.T  # the same vectors, other values
    np.testing.assert_allclose(sizes, np.diag(np.diag(sizes)), atol=1e-9)
    assert (0.6 < np.diag(sizes)).all() and (np.diag(sizes) < 1.25).all()
    assert not orthogonalized(Tensor(np.zeros(shape))).numpy().any()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_steps_in_16_bits_are_those_of_float32_rounded(half):
    """As in mixed precision: a scale is taken out first, and a step with what is not finite changes nothing."""
    params, others = parameters(half)[:2], parameters()[:2]
    first, second = optim.Muon(params, lr=0.1), optim.Muon(others, lr=0.1)
    give_gradients(params, 0)
    first.step(found_inf=np.ones(1, np.float32))
    assert same(arrays(params), arrays(parameters(half)[:2]))
    for step, scale in enumerate((8, 1)):  # o is the same for all multiples of the first gradient, not of two
        give_gradients(params, step), give_gradients(others, step)
        for parameter in params:
            parameter.grad = parameter.grad * scale
        first.step(scale=np.full(1, 1 / scale, np.float32)), second.step()
    close(params, others, 3e-2)


@pytest.mark.parametrize("kind, option, more", [(optim.Muon, "momentum", {"ns_steps": 1}), (optim.Adadelta, "rho", {})])
def test_a_graph_repeats_steps_that_are_composed(kind, option, more):
    """Rates are heard by each replay; where another option changes, the graph is made anew."""

    def trained(wrap):
        w = nn.Parameter(np.ones((2, 3), np.float32)).to("cuda").detach().requires_grad_()
        optimizer, found = kind([w], lr=0.5, **more), []

        @wrap
        def step(x):
            optimizer.zero_grad()
            ((w - x) ** 2).sum().backward()
            optimizer.step()
            return w.sum()

        for count in range(4):
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.param_groups[0][option] = 0.95 if count < 3 else 0.5
            found.append(step(Tensor(np.full((2, 3), float(count), np.float32)).to("cuda")).item())
        return found, w.tolist()

    with gpus(1):
        assert trained(capture) == trained(lambda function: function)
