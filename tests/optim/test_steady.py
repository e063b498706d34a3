"""Steps after the first: whatever changes between two of them is followed, as if nothing were known from before."""

import numpy as np
import pytest

from minigrad import Tensor, nn, optim
from minigrad.optim.lr_scheduler import ExponentialLR
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from tests.optim.optim_parts import arrays, every_rule, give_gradients, parameters, same


def relaid(optimizer):
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.data = np.array(parameter.array, order="C")
    optimizer.load_state_dict(optimizer.state_dict())  # which lays the state likewise


def copied(optimizer):
    for parameter in optimizer.param_groups[0]["params"][1:3]:
        parameter.data = parameter.array.copy(order="K")


def halved_states(optimizer):
    for state in optimizer.state.values():
        state.update({name: np.asarray(value / 2, value.dtype) for name, value in state.items() if name != "step"})


def loaded(optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def without_two(optimizer):
    for parameter in optimizer.param_groups[0]["params"][:2]:
        parameter.grad = None


def twice_as_fast(optimizer):
    optimizer.param_groups[0]["lr"] *= 2


def other_way(optimizer):
    optimizer.param_groups[0]["maximize"] = True


def in_turn(optimizer):
    optimizer.param_groups[0]["params"].reverse()


def with_axes_of_one(optimizer):
    """Strides that say nothing may be anything."""
    for parameter in optimizer.param_groups[0]["params"]:
        if parameter.ndim == 1:
            array = parameter.grad.array
            parameter.data = parameter.array.reshape(1, -1)
            parameter.grad = Tensor(np.lib.stride_tricks.as_strided(array, (1, array.size), (4096, array.itemsize)))
            for name, value in optimizer.state.get(parameter, {}).items():
                if name != "step":
                    optimizer.state[parameter][name] = value.reshape(1, -1)


CHANGES = [
    None, None, copied, None, twice_as_fast, relaid, None, halved_states, None, without_two, None, None, loaded,
    in_turn, None, other_way, with_axes_of_one, copied, None,
]  # fmt: skip


@every_rule
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_changes_between_steps_is_followed(make, dtype):
    params, others = parameters(dtype), parameters(dtype)
    steady, forgetful = make(params), make(others)
    for step, change in enumerate(CHANGES):
        for optimizer, of in ((steady, params), (forgetful, others)):
            give_gradients(of, step, order=(FILTER, None, CHANNELS_LAST)[step // 4 % 3])
            for parameter in of:
                parameter.grad.data = parameter.grad.array.reshape(parameter.shape)
            if change is not None:
                change(optimizer)
        versions = [parameter.version[0] for parameter in params]
        steady.step()
        forgetful._plans.clear()
        forgetful.step()
        assert same(arrays(params), arrays(others)), step
        moved = [parameter.grad is not None for parameter in params]
        assert [p.version[0] - v for p, v in zip(params, versions, strict=True)] == moved
    for parameter, other in zip(params, others, strict=True):
        one, two = steady.state.get(parameter, {}), forgetful.state.get(other, {})
        assert one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_gradients_that_stop_fitting_are_refused_in_a_steady_state():
    params = parameters()
    optimizer = optim.Adam([{"params": params[:2]}, {"params": params[2:]}], lr=0.1)
    for step in range(3):
        give_gradients(params, step)
        optimizer.step()
    before, state = arrays(params), optimizer.state_dict()
    versions = [parameter.version[0] for parameter in params]
    for wrong, error in ((np.ones(3, "f"), ValueError), (np.ones(7), TypeError)):
        give_gradients(params, 3)
        params[2].grad = Tensor(wrong)
        with pytest.raises(error, match="Adam: a gradient has"):
            optimizer.step()
    give_gradients(params, 3)
    params[2].data = np.ones(3, "f")  # what the gradient fitted before
    before[2], versions[2] = params[2].array.copy(), versions[2] + 1
    with pytest.raises(ValueError, match=r"Adam: a gradient has shape \(7,\), wanted its parameter's \(3,\)"):
        optimizer.step()
    assert same(arrays(params), before) and [parameter.version[0] for parameter in params] == versions
    for index, values in optimizer.state_dict()["state"].items():
        assert all(np.array_equal(values[name], state["state"][index][name]) for name in values)


def test_a_schedule_is_heard_at_every_step():
    parameter = nn.Parameter(np.zeros(1))
    optimizer = optim.SGD([parameter], lr=1.0)
    schedule = ExponentialLR(optimizer, 0.5)
    for wanted in (-1.0, -1.5, -1.75):
        parameter.grad = Tensor(np.ones(1))
        optimizer.step()
        schedule.step()
        assert parameter.item() == wanted


def test_a_tensor_that_is_no_leaf_is_refused():
    params = parameters()[1:2]
    optimizer = optim.SGD(params, lr=1.0)
    optimizer.param_groups[0]["params"][0] = result = params[0] * 1.0
    result.grad = Tensor(np.ones(result.shape, "f"))
    with pytest.raises(RuntimeError, match="write: the Tensor was made by mul; only leaves can be written"):
        optimizer.step()
