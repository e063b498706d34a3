"""Whole optimisers and clipping on a device, beside the CPU: every option, schedules, states that move, no copies."""

import gc
import math
import weakref
from itertools import product

import numpy as np
import pytest

from minigrad import Tensor, device, nn, optim
from minigrad.optim import clip, lr_scheduler
from minigrad_kernels import interpreter
from minigrad_kernels.layout import FILTER
from minigrad_kernels.optimizer import cuda
from tests.kernels.kernel_runs import DEVICE
from tests.optim.optim_parts import arrays, give_gradients, parameters, through_json

OPTIONS = {
    optim.SGD: dict(momentum=(0, 0.9), dampening=(0, 0.5), weight_decay=(0, 0.1), nesterov=(False, True)),
    optim.Adam: dict(amsgrad=(False, True), weight_decay=(0, 0.1), decoupled_weight_decay=(False, True)),
    optim.AdamW: dict(amsgrad=(False, True)),
    optim.RMSprop: dict(momentum=(0, 0.9), centered=(False, True), weight_decay=(0, 0.1)),
    optim.Adagrad: dict(lr_decay=(0, 0.1), weight_decay=(0, 0.1), initial_accumulator_value=(0, 0.5)),
}


def every_option():
    for kind, options in OPTIONS.items():
        for values in product(*options.values(), (False, True)):
            chosen = dict(zip([*options, "maximize"], values, strict=True))
            if not chosen.get("nesterov") or (chosen["momentum"] and not chosen["dampening"]):
                yield pytest.param(kind, chosen, id=f"{kind.__name__}-{'-'.join(map(str, values))}")


def moved(params):
    return [nn.Parameter(device.move(p.array, DEVICE)) for p in params]


def give(params, others, step, order=FILTER):
    """The same gradients to both."""
    give_gradients(others, step, order)
    for parameter, other in zip(params, others, strict=True):
        parameter.grad = Tensor(device.move(other.grad.array, DEVICE))


def close(params, others, rtol=1e-5):
    for one, two in zip(params, others, strict=True):
        assert one.device == device.place(DEVICE).name and type(two.array) is np.ndarray
        np.testing.assert_allclose(device.host(one.array), two.array, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind, options", list(every_option()))
def test_three_steps_under_a_schedule(kind, options):
    others = parameters()
    params = moved(others)
    pair = kind(params, lr=0.05, **options), kind(others, lr=0.05, **options)
    schedules = [lr_scheduler.ExponentialLR(optimizer, 0.5) for optimizer in pair]
    for step in range(3):
        give(params, others, step, (FILTER, None)[step % 2])
        for optimizer, schedule in zip(pair, schedules, strict=True):
            optimizer.step()
            schedule.step()
    close(params, others)
    for one, two in zip(params, others, strict=True):
        for name, value in pair[1].state[two].items():
            there = pair[0].state[one][name]
            if name == "step":
                assert there == value == 3
            else:
                assert there.strides == one.array.strides
                np.testing.assert_allclose(device.host(there), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_state_goes_to_the_host_and_to_another_device(kind):
    """Saved on the device, loaded on the CPU and on the device: all go on alike."""
    others = parameters()
    params = moved(others)
    optimizer = kind(params, lr=0.05)
    for step in range(2):
        give(params, others, step)
        optimizer.step()
    state = optimizer.state_dict()
    for values in state["state"].values():
        assert all(name == "step" or type(array) is np.ndarray for name, array in values.items())
    for other, parameter in zip(others, params, strict=True):
        other.array[...] = device.host(parameter.array)
    copies = moved(others)
    resumed, there = kind(others, lr=0.1), kind(copies, lr=0.1)
    resumed.load_state_dict(through_json(state))
    there.load_state_dict(state)
    give(params, others, 2)
    give(copies, others, 2)
    for each in (optimizer, resumed, there):
        each.step()
    close(params, others)
    np.testing.assert_array_equal(*(np.concatenate([a.ravel() for a in arrays(side)]) for side in (params, copies)))


# ---- launches and copies ---------------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch):
    """The arrays that kernels of optimisers sent to the device."""
    found, real = [], cuda.upload
    monkeypatch.setattr(cuda, "upload", lambda array, like: found.append(array) or real(array, like))
    write = cuda.write
    monkeypatch.setattr(cuda, "write", lambda target, array: found.append(array) or write(target, array))
    return found


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_steady_step_is_two_launches_for_each_group_and_sends_nothing(kind, sent):
    others = parameters()
    params = moved(others)
    optimizer = kind([{"params": params[:2]}, {"params": params[2:], "lr": 0.3}], lr=0.05)
    give(params, others, 0)
    for _ in range(2):
        optimizer.step()
    sent.clear()
    with interpreter.recording() as launches:
        optimizer.step()
    assert not sent
    if DEVICE == "interpreter":
        assert len(launches) == 4
    optimizer.param_groups[1]["lr"] = 0.1
    optimizer.step()
    assert len(sent) == 1
    optimizer.step()
    assert len(sent) == 1


def test_parameters_of_different_ages_and_two_optimisers():
    """One parameter has no gradient at first; another optimiser works on others in between."""
    others, more = parameters(), parameters()
    params, most = moved(others), moved(more)
    on_device = optim.Adam(params, lr=0.05), optim.Adam(most, lr=0.02)
    on_host = optim.Adam(others, lr=0.05), optim.Adam(more, lr=0.02)
    for step in range(5):
        give(params, others, step)
        give(most, more, step + 10)
        if step in (0, 3):
            params[1].grad = others[1].grad = None
        for optimizer in (*on_device, *on_host):
            optimizer.step()
    close(params, others)
    close(most, more)
    ages = [on_device[0].state[parameter]["step"] for parameter in params]
    assert ages == [on_host[0].state[parameter]["step"] for parameter in others] == [5, 3, 5, 5]


def test_data_that_is_replaced_is_followed():
    others = parameters()
    params = moved(others)
    pair = optim.Adam(params, lr=0.05), optim.Adam(others, lr=0.05)
    for step in range(4):
        give(params, others, step)
        if step == 2:
            for parameter in (*params, *others):
                parameter.data = device.copy(parameter.array, device.order_of(parameter.array))
        for optimizer in pair:
            optimizer.step()
    close(params, others)


def test_an_optimiser_that_is_gone_keeps_nothing():
    params = moved(parameters())
    optimizer = optim.Adam(params, lr=0.05)
    give(params, parameters(), 0)
    optimizer.step()
    (plan,) = optimizer._plans.values()
    clip.clip_grad_norm_(params, 1.0)
    gone = [weakref.ref(plan.settings), weakref.ref(plan.tables.addresses), weakref.ref(params[0].array)]
    assert id(params[0]) in clip._plans
    known = id(params[0])
    del optimizer, plan, params
    gc.collect()
    assert not any(reference() is not None for reference in gone) and known not in clip._plans


def test_few_plans_are_kept():
    params = parameters()
    optimizer = optim.SGD(params, lr=0.01)
    for step in range(16):
        give_gradients(params, step)
        for k, parameter in enumerate(params):
            if step >> k & 1:
                parameter.grad = None
        optimizer.step()
        assert len(optimizer._plans) == (step < 15)  # that of the last step


# ---- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [2, 1, 3, math.inf])
@pytest.mark.parametrize("most", [0.5, 1e3])
@pytest.mark.parametrize("kinds", [("float32",), ("float64",), ("float64", "float32")], ids=str)
def test_clipping_as_the_cpu_does(norm_type, most, kinds):
    others = [parameter for kind in kinds for parameter in parameters(kind)]
    params = moved(others)
    give(params, others, 0)
    before = [device.host(p.grad.array).copy() for p in params]
    norm, wanted = optim.clip_grad_norm_(params, most, norm_type), optim.clip_grad_norm_(others, most, norm_type)
    assert norm.device == device.place(DEVICE).name and norm.shape == () and norm.dtype == wanted.dtype
    np.testing.assert_allclose(device.host(norm.array), wanted.array, rtol=1e-6)
    for parameter, other, was in zip(params, others, before, strict=True):
        there = device.host(parameter.grad.array)
        np.testing.assert_allclose(there, other.grad.array, rtol=1e-6)
        assert most < 1e3 or np.array_equal(there, was)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("norm_type", [2, math.inf])
def test_a_norm_that_is_not_finite(value, norm_type):
    others = parameters()
    others[1].array[0, 0] = value  # as a gradient below
    params = moved(others)
    for parameter in (*params, *others):
        parameter.grad = Tensor(device.copy(parameter.array))
    kept = [device.host(p.grad.array).copy() for p in params]
    with pytest.raises(RuntimeError, match="-norm of the gradients is (inf|nan)"):
        optim.clip_grad_norm_(params, 1.0, norm_type, error_if_nonfinite=True)
    for parameter, was in zip(params, kept, strict=True):
        np.testing.assert_array_equal(device.host(parameter.grad.array), was)
    norm = optim.clip_grad_norm_(params, 1.0, norm_type)
    optim.clip_grad_norm_(others, 1.0, norm_type)
    np.testing.assert_array_equal(device.host(norm.array), np.float32(value))
    for parameter, other in zip(params, others, strict=True):
        np.testing.assert_array_equal(device.host(parameter.grad.array), other.grad.array)


def test_the_host_reads_no_norm(monkeypatch, sent):
    """Clipping in every step sends and fetches nothing once its tables are there."""
    others = parameters()
    params = moved(others)
    give(params, others, 0)
    optim.clip_grad_norm_(params, 1.0)
    sent.clear()
    monkeypatch.setattr(device, "host", lambda array: pytest.fail("the host reads"))
    with interpreter.recording() as launches:
        optim.clip_grad_norm_(params, 1.0)
    assert not sent
    if DEVICE == "interpreter":
        assert [name.partition("_")[2] for name, _ in launches] == [
            "squares_f32",
            "sums",
            "clip_f32",
            "scale_f32",
        ]


def test_gradients_on_two_devices():
    """One norm of all, which the host reads."""
    others = parameters()
    params = moved(others)
    give(params, others, 0)
    mixed = [*params[:2], *others[2:]]
    wanted = math.sqrt(math.fsum(float(x) ** 2 for p in others for x in p.grad.array.ravel()))
    assert optim.clip_grad_norm_(mixed, 1.0).item() == pytest.approx(wanted, rel=1e-6)
    assert optim.clip_grad_norm_(mixed, 1.0).item() == pytest.approx(1, rel=1e-5)


def test_clipping_values():
    others = parameters()
    params = moved(others)
    give(params, others, 0)
    for side in (params, others):
        optim.clip_grad_value_(side, 0.25)
    for parameter, other in zip(params, others, strict=True):
        np.testing.assert_array_equal(device.host(parameter.grad.array), other.grad.array)
        assert np.abs(other.grad.array).max() <= 0.25
