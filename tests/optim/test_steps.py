"""Steps on the CPU and on a device: launches, copies, gradients that are scaled, steps that a flag skips, clipping."""

import copy
import gc
import math
import weakref

import numpy as np
import pytest

from minigrad import Tensor, device, optim
from minigrad.optim import clip, lr_scheduler
from minigrad.optim.clip import clip_scale
from minigrad_kernels import interpreter
from minigrad_kernels.layout import FILTER
from tests.kernels.kernel_runs import DEVICE
from tests.optim.optim_parts import EVERY, RULES, arrays, close, give_gradients, parameters, same, same_states

each_place = pytest.mark.parametrize("place", ["cpu", DEVICE])


def with_gradients(place="cpu", step=0, spoilt=None):
    """Parameters with the gradients of a step; `spoilt` enters one of them."""
    params = parameters(place=place)
    give_gradients(params, step, FILTER)
    if spoilt is not None:
        params[1].grad.array[1, 1] = spoilt
    return params


def number(value, place):
    return device.move(np.full(1, value), place)


def gradients(params):
    return [device.host(parameter.grad.array).copy() for parameter in params]


# ---- a device beside the CPU -----------------------------------------------------------------------------------------

MORE = {
    **EVERY,
    "Muon": lambda params: optim.Muon(params[:2], lr=0.05, ns_steps=1),
    "SGD damped": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, dampening=0.5, maximize=True),
    "Adam decayed": lambda params: optim.Adam(params, amsgrad=True, weight_decay=0.1),
    "RMSprop plain": lambda params: optim.RMSprop(params, weight_decay=0.1, maximize=True),
    "Adagrad decayed": lambda params: optim.Adagrad(params, weight_decay=0.1),
}


@pytest.mark.parametrize("make", MORE.values(), ids=MORE)
def test_steps_under_a_schedule(make):
    """Three steps; then the device's state goes on there, on the CPU, and in other memory of the device."""
    params, others = parameters(place=DEVICE), parameters()
    pair = make(params), make(others)
    for optimizer, of in zip(pair, (params, others), strict=True):
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(3):
            give_gradients(of, step, (FILTER, None)[step % 2])
            optimizer.step(), schedule.step()
    close(params, others)
    state, wanted = (optimizer.state_dict() for optimizer in pair)
    for index, values in wanted["state"].items():
        for name, value in values.items():
            np.testing.assert_allclose(state["state"][index][name], value, rtol=1e-5, atol=1e-6)
            assert name == "step" or pair[0].state[params[index]][name].strides == params[index].array.strides
    resumed = parameters(), parameters(place=DEVICE)
    for copies, place in zip(resumed, ("cpu", DEVICE), strict=True):
        for parameter, array in zip(copies, arrays(params), strict=True):
            parameter.data = device.move(array, place)
        optimizer = make(copies)
        optimizer.load_state_dict(state)
        give_gradients(copies, 3)
        optimizer.step()
    give_gradients(params, 3)
    pair[0].step()
    close(params, resumed[0])
    assert same(arrays(params), arrays(resumed[1]))


def test_launches_and_copies_of_steady_steps(monkeypatch, sent):
    """Two launches for each group; clipping reads the gradients twice and writes none; the host sends and waits for
    nothing once the tables are there, but for what has changed."""
    params = with_gradients(DEVICE)
    adam = optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.3}], lr=0.05)

    def launched():
        with interpreter.recording() as launches:
            adam.step(scale=clip_scale(params, 1.0)[1])
            optim.clip_grad_norm_(params, 1e3)
        return [name.removeprefix("optimizer_") for name, _ in launches]

    launched(), launched()
    sent.clear()
    names = ["squares_f32", "sums", "clip_f32", *["coefficients", "update_f32"] * 2]
    names += ["squares_f32", "sums", "clip_f32", "scale_f32"]
    with monkeypatch.context() as patched:
        patched.setattr(device, "host", lambda array: pytest.fail("the host reads"))
        found = launched()
    assert not sent and (DEVICE != "interpreter" or found == names)
    adam.param_groups[1]["lr"] = 0.1
    launched(), launched()
    assert len(sent) == 1


def test_an_optimiser_that_is_gone_keeps_nothing():
    params = with_gradients(DEVICE)
    optimizer = optim.Adam(params, lr=0.05)
    optimizer.step()
    (plan,) = optimizer._plans.values()
    clip.clip_grad_norm_(params, 1.0)
    gone = [weakref.ref(plan.settings), weakref.ref(plan.tables.addresses), weakref.ref(params[0].array)]
    known = id(params[0])
    assert known in clip._plans
    params[0].grad = None
    optimizer.step()
    assert len(optimizer._plans) == 1  # that of the last step
    del optimizer, plan, params
    gc.collect()
    assert not any(reference() is not None for reference in gone) and known not in clip._plans


# ---- steps that a flag skips -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
@each_place
def test_skipped_steps_are_not_counted(make, place):
    """All goes on as if they had never been, also under a schedule, in a saved state, and where a parameter has no
    gradient for a while."""
    params, others = parameters(place=place), parameters(place=place)
    pair = [make(params), make(others)]
    for step in range(7):
        skipped = step in (0, 3)
        for optimizer, of in zip(pair, (params, others), strict=True):
            give_gradients(of, step)
            optimizer.param_groups[0]["lr"] = 0.05 / (step + 1)  # sent to a device that counts by itself
            if step in (4, 5):
                of[1].grad = None
        if skipped:
            params[2].grad.array[1] = math.nan
        pair[0].step(found_inf=number(float(skipped), place))
        if not skipped:
            pair[1].step()
        if step == 2:
            same_states(*pair)
        if step == 5:
            state, pair[0] = pair[0].state_dict(), make(params)
            pair[0].load_state_dict(state)
            pair[0].step(found_inf=number(1.0, place))  # in doubt until the state comes
            pair[0].load_state_dict(state)
    assert same(arrays(params), arrays(others))
    same_states(copy.deepcopy(pair[0]), pair[1])


# ---- clipping, alone and folded into the step ------------------------------------------------------------------------


def long_vector(params):
    return np.concatenate([array.ravel() for array in gradients(params)]).astype(float)


@each_place
def test_clipping_by_a_norm(place):
    """And by a value; within the bound gradients keep their bits. Of several types and places at once."""
    params = with_gradients(place)
    before, size = gradients(params), np.linalg.norm(long_vector(params))
    norm = optim.clip_grad_norm_(iter(params), 1e3)
    assert norm.shape == () and norm.device == params[0].device and norm.item() == pytest.approx(size, rel=1e-6)
    assert same(gradients(params), before)
    optim.clip_grad_value_(params, 0.25)
    assert same(gradients(params), [np.clip(array, -0.25, 0.25) for array in before])
    for bound in (size / 2, 0.0):
        give_gradients(params, 0)
        optim.clip_grad_norm_(params, bound)
        for found, was in zip(gradients(params), before, strict=True):
            np.testing.assert_allclose(found, was * (bound / size), rtol=1e-5, atol=1e-7)
    give_gradients(params := [*params, *parameters("float64", place="cpu")], 0)
    size = np.linalg.norm(long_vector(params))
    assert optim.clip_grad_norm_(params, 1.0).item() == pytest.approx(size, rel=1e-6)
    assert optim.clip_grad_norm_([], 1.0).item() == 0


@each_place
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_norm_that_is_not_finite(value, place):
    """It is refused, or reported; a later norm does not take that back."""
    params, found = with_gradients(place, 0, value), number(0.0, place)
    with pytest.raises(RuntimeError, match=r"^clip_grad_norm_: the norm of the gradients is (inf|nan)"):
        optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    norm, _ = clip_scale(params, 1.0, None, found)
    assert norm.item() == pytest.approx(value, nan_ok=True)
    clip_scale(with_gradients(place), 1.0, None, found)
    assert device.host(found)[0] == 1


@each_place
@pytest.mark.parametrize("most", [0.5, 1e3])
def test_clip_scale_is_what_clipping_would_multiply_with(most, place):
    """The scale of a loss is taken out before the norm."""
    params, others = with_gradients(place), with_gradients(place)
    for parameter in params:
        parameter.grad = parameter.grad * 1024
    found = number(0.0, place)
    norm, scale = clip_scale(params, most, Tensor(number(1 / 1024, place)), found)
    wanted = optim.clip_grad_norm_(others, most)
    assert norm.item() == wanted.item() and norm.device == wanted.device and device.host(found)[0] == 0
    np.testing.assert_allclose(device.host(scale) * 1024, [min(1, most / (norm.item() + 1e-6))], rtol=1e-7)
    optim.SGD(params, lr=1, momentum=0.5).step(scale=scale)
    optim.SGD(others, lr=1, momentum=0.5).step()
    close(params, others)


def test_gradients_on_two_devices():
    """One norm of all, which the host reads; a flag of either place skips the step."""
    params = [*with_gradients("cpu")[:2], *with_gradients(DEVICE)[2:]]
    norm, scale = clip_scale(params, 0.5, number(0.5, "cpu"))
    assert norm.item() == pytest.approx(np.linalg.norm(long_vector(params)) / 2, rel=1e-6)
    before = arrays(params)
    optim.SGD(params, lr=1).step(scale=scale, found_inf=number(1.0, DEVICE))
    assert same(before, arrays(params))
    optim.SGD(params, lr=1).step(scale=scale, found_inf=number(0.0, "cpu"))
    assert not any(np.array_equal(*pair) for pair in zip(before, arrays(params), strict=True))
