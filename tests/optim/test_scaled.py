"""Steps whose gradients are multiplied as the rule reads them, and steps that a flag skips, on every device."""

import copy
import math

import numpy as np
import pytest

from minigrad import Tensor, device, nn, optim
from minigrad.optim.clip import clip_scale
from minigrad.optim.optimizer import Repeat
from minigrad_kernels import interpreter, optimizer
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import FILTER
from minigrad_kernels.optimizer import reference
from minigrad_kernels.toolchain.cuda.kernel import Kernel
from tests.kernels.kernel_runs import DEVICE, moved, on_host
from tests.kernels.test_optimizer import FULL, random
from tests.optim.optim_parts import RULES, arrays, give_gradients, parameters, same

each_place = pytest.mark.parametrize("place", ["cpu", DEVICE])
MORE = {**RULES, "SGD damped": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, dampening=0.5)}
every_rule = pytest.mark.parametrize("make", MORE.values(), ids=MORE)


def there(place, dtype="float32"):
    return [nn.Parameter(device.move(p.array, place)) for p in parameters(dtype)]


def give(params, step, factor=1.0, spoilt=None):
    """Gradients of a step, each times a number; `spoilt` enters one of them."""
    places = [device.device_of(p.array) for p in params]
    hosts = parameters(params[0].dtype)
    give_gradients(hosts, step, FILTER)
    for parameter, host, place in zip(params, hosts, places, strict=True):
        array = host.grad.array
        array *= array.dtype.type(factor)
        if spoilt is not None and array.ndim == 2:
            array[1, 1] = spoilt
        parameter.grad = Tensor(device.move(array, place))


def number(value, place):
    return device.move(np.full(1, value), place)


def host_arrays(params):
    return [device.host(parameter.array).copy() for parameter in params]


@each_place
@pytest.mark.parametrize("name", FULL)
def test_the_scale_multiplies_gradients(name, place):
    settings, _ = FULL[name]
    lists = random(name, [(3,), (70,)])
    inputs = [np.array(arrays[0]) for arrays in lists]
    inputs[1] = reference.scale(inputs[1], 0.3)
    wanted = getattr(reference, name)(*inputs, *[None] * (name == "adam" and len(inputs) < 5), settings)
    run = [[moved(a, place) for a in arrays] for arrays in lists]
    getattr(optimizer, name)(*run, settings, None, moved(np.array([0.3]), place))
    for got, want in zip((run[0], *run[2:]), wanted, strict=True):
        np.testing.assert_allclose(on_host(got[0]), want, rtol=1e-5, atol=1e-6)


@each_place
@pytest.mark.parametrize("name", FULL)
def test_a_flag_skips_everything(name, place):
    lists = [[moved(a, place) for a in arrays] for arrays in random(name, [(3,), (70,)])]
    before = [[on_host(a).copy() for a in arrays] for arrays in lists]
    getattr(optimizer, name)(*lists, FULL[name][0], None, None, moved(np.array([1.0]), place))
    for arrays_, was in zip(lists, before, strict=True):
        for one, two in zip(arrays_, was, strict=True):
            np.testing.assert_array_equal(on_host(one), two)


@every_rule
@each_place
def test_skipped_steps_are_not_counted(make, place):
    """Steps 0 and 3 are skipped: all goes on as if they had never been, also under a schedule and in a saved state."""
    params, others = there(place), there(place)
    pair = make(params), make(others)
    for step in range(6):
        flag = float(step in (0, 3))
        give(params, step, spoilt=math.nan if flag else None)
        for each in pair:
            each.param_groups[0]["lr"] = 0.05 / (step + 1)  # sent to a device that counts by itself
        pair[0].step(found_inf=number(flag, place))
        if not flag:
            give(others, step)
            pair[1].step()
        if step in (0, 2):
            assert_states(*pair)
    assert same(host_arrays(params), host_arrays(others))
    assert_states(*pair)


def assert_states(one, two):
    one, two = one.state_dict()["state"], two.state_dict()["state"]
    assert {k: v for k, v in one.items() if v.keys() - {"step"} or v.get("step")}.keys() >= two.keys()
    for index, values in two.items():
        assert one[index].keys() == values.keys()
        for name, value in values.items():
            np.testing.assert_array_equal(one[index][name], value, name)


@every_rule
def test_parameters_that_change_plans_keep_their_counts(make):
    """One parameter has no gradient for a while; before, a step was skipped. Also after a copy and a restored state."""
    params, others = there(DEVICE), there(DEVICE)
    pair = [make(params), make(others)]
    for step in range(7):
        flag = float(step in (1, 2))
        give(params, step)
        give(others, step)
        if step in (3, 4):
            params[1].grad = others[1].grad = None
        if step == 5:
            state = pair[0].state_dict()
            pair[0] = make(params)
            pair[0].load_state_dict(state)
        pair[0].step(found_inf=number(flag, DEVICE))
        if not flag:
            pair[1].step()
    assert same(host_arrays(params), host_arrays(others))
    twin = copy.deepcopy(pair[0])
    assert_states(twin, pair[1])


@every_rule
def test_a_state_that_is_loaded_hears_of_no_step_that_was_in_doubt_before(make):
    params = there(DEVICE)
    optimizer = make(params)
    give(params, 0)
    optimizer.step()
    early = optimizer.state_dict()
    for step in (1, 2):
        give(params, step)
        optimizer.step(found_inf=number(0.0, DEVICE))
    optimizer.load_state_dict(early)
    for index, values in optimizer.state_dict()["state"].items():
        assert values.keys() == early["state"][index].keys() and values.get("step") == early["state"][index].get("step")


@every_rule
def test_repeated_launches_are_counted_by_the_device(make, monkeypatch):
    """As by a graph: a repeated step is the next one, and later steps and the saved state go on from it."""
    params, others = there(DEVICE), there(DEVICE)
    pair = make(params), make(others)
    give(params, 0)
    give(others, 0)
    for each in pair:
        each.step()
    launches, call = [], Kernel.__call__
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "__call__", lambda *given: launches.append(given) or call(*given))
        pair[0].step()
    (plan,), (group,) = pair[0]._plans.values(), pair[0].param_groups
    repeat = Repeat(pair[0], group, 1, params, plan)
    for _ in range(2):
        repeat.again()
        for given in launches:
            call(*given)
    for step in range(4):
        for each in pair if step == 3 else pair[1:]:
            each.param_groups[0]["lr"] = 0.01 if step == 3 else each.param_groups[0]["lr"]
            each.step()
    assert same(host_arrays(params), host_arrays(others))
    assert_states(*pair)


# ---- clipping folded into the step -----------------------------------------------------------------------------------


@each_place
@pytest.mark.parametrize("most", [0.5, 1e3])
def test_clip_scale_is_what_clipping_would_multiply_with(most, place):
    params, others = there(place), there(place)
    give(params, 0)
    give(others, 0)
    norm, scale = clip_scale(params, most)
    wanted = optim.clip_grad_norm_(others, most)
    assert norm.device == wanted.device and device.device_of(scale) == device.device_of(params[0].array)
    np.testing.assert_array_equal(device.host(norm.array), device.host(wanted.array))
    np.testing.assert_allclose(device.host(scale), [min(1, most / (norm.item() + 1e-6))], rtol=1e-7)
    pair = optim.SGD(params, lr=1, momentum=0.5), optim.SGD(others, lr=1, momentum=0.5)
    pair[0].step(scale=scale)
    pair[1].step()
    for one, two in zip(host_arrays(params), host_arrays(others), strict=True):
        if place == "cpu":
            np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)


@each_place
def test_the_scale_of_a_loss_is_taken_out_before_the_norm(place):
    params, others = there(place), there(place)
    give(params, 0, 1024.0)
    give(others, 0)
    found = number(0.0, place)
    norm, scale = clip_scale(params, 0.5, Tensor(device.move(np.full((), 1 / 1024, "f4"), place)), found)
    wanted, factor = clip_scale(others, 0.5)
    np.testing.assert_array_equal(device.host(norm.array), device.host(wanted.array))
    np.testing.assert_allclose(device.host(scale) * 1024, device.host(factor), rtol=1e-14)
    assert device.host(found)[0] == 0


@each_place
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_norm_that_is_not_finite_is_reported_and_treated_as_clipping_does(value, place):
    params, others = there(place), there(place)
    give(params, 0, spoilt=value)
    give(others, 0, spoilt=value)
    found = number(0.0, place)
    _, scale = clip_scale(params, 1.0, None, found)
    assert device.host(found)[0] == 1
    optim.clip_grad_norm_(others, 1.0)
    optim.SGD(params, lr=1).step(scale=scale)
    optim.SGD(others, lr=1).step()
    for one, two in zip(host_arrays(params), host_arrays(others), strict=True):
        np.testing.assert_array_equal(one, two)
    clip_scale(there_with_gradients(place), 1.0, None, found)
    assert device.host(found)[0] == 1  # a later norm does not take it back


def there_with_gradients(place):
    params = there(place)
    give(params, 0)
    return params


def test_gradients_on_two_devices_and_none():
    params = [*there_with_gradients("cpu")[:2], *there_with_gradients(DEVICE)[2:]]
    found = number(0.0, "cpu")
    norm, scale = clip_scale(params, 0.5, number(0.5, "cpu"), found)
    wanted, factor = clip_scale(there_with_gradients("cpu"), 0.5, number(0.5, "cpu"))
    np.testing.assert_allclose(norm.array, wanted.array, rtol=1e-6)
    np.testing.assert_allclose(scale, factor, rtol=1e-6)
    before = host_arrays(params)
    optim.SGD(params, lr=1).step(scale=scale, found_inf=number(1.0, DEVICE))
    assert same(before, host_arrays(params))
    optim.SGD(params, lr=1).step(scale=scale, found_inf=found)
    assert not any(np.array_equal(*pair) for pair in zip(before, host_arrays(params), strict=True))
    norm, scale = clip_scale(there("cpu"), 1.0)
    assert norm.item() == 0 and scale[0] == 1


def test_refuses_what_is_no_number_in_an_array():
    params = there_with_gradients("cpu")
    before = arrays(params)
    with pytest.raises(ValueError):
        optim.SGD(params, lr=1).step(scale=np.ones(2))
    with pytest.raises(ShapeError, match=r"sgd: found_inf has shape \(2,\)"):
        optimizer.sgd([np.ones(3)], [np.ones(3)], None, np.ones(7), None, None, np.ones(2))
    assert same(before, arrays(params))


@pytest.mark.skipif(DEVICE != "interpreter", reason="reads what the interpreter counts")
def test_clipping_in_a_step_reads_the_gradients_twice_and_writes_none(monkeypatch):
    params = there_with_gradients(DEVICE)
    adam = optim.Adam(params, lr=0.05)
    adam.step(scale=clip_scale(params, 1.0)[1])
    monkeypatch.setattr(device, "host", lambda array: pytest.fail("the host reads"))
    with interpreter.recording() as launches:
        adam.step(scale=clip_scale(params, 1.0)[1])
    names = ["squares_f32", "sums", "clip_f32", "coefficients", "update_f32"]
    assert [name.removeprefix("optimizer_") for name, _ in launches] == names


def test_a_device_is_asked_for_its_count_only_where_the_work_changes(monkeypatch):
    params = parameters()
    optimizer, asked = optim.Adam(params), []
    settle = optimizer.settle
    monkeypatch.setattr(optimizer, "settle", lambda: (asked.append(1), settle()))
    for step in range(3):
        give_gradients(params, step)
        optimizer.step(found_inf=number(0.0, "cpu"))
    assert not asked
    params[0].grad = None
    optimizer.step(found_inf=number(0.0, "cpu"))
    assert len(asked) == 1
    settle()
    give_gradients(params, 3)
    optimizer.step()
    assert len(asked) == 1  # nothing is in doubt any more
