"""Clipping of gradients. Beside PyTorch: tests/oracles/test_optim_torch."""

import math

import numpy as np
import pytest

from minigrad import Tensor, device, nn, optim
from minigrad.optim.clip import clip_scale
from minigrad_kernels.layout import FILTER
from tests.kernels.kernel_runs import DEVICE
from tests.optim.optim_parts import give_gradients, parameters, same


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
    for norm_type in (1, 2, math.inf):
        assert optim.clip_grad_norm_([], 1.0, norm_type).item() == 0


def test_a_bound_of_0_leaves_nothing():
    params = parameters()
    give_gradients(params, 0)
    optim.clip_grad_norm_(params[:1], 0)
    optim.clip_grad_value_(params[1:2], 0)
    assert not np.array(params[0].grad).any() and not np.array(params[1].grad).any() and np.array(params[2].grad).any()


def test_a_norm_of_several_devices_has_the_type_of_the_gradients():
    params = parameters("float64")
    there = Tensor(device.move(np.ones(2), DEVICE), requires_grad=True)
    there.grad = Tensor(device.move(np.ones(2), DEVICE))
    give_gradients(params, 0)
    assert clip_scale([*params, there], 1.0)[0].dtype == np.float64


@pytest.mark.parametrize("norm_type", [1, 2, math.inf])
def test_clipping_one_parameter(norm_type):
    params = parameters()[:1]
    give_gradients(params, 0)
    before = np.array(params[0].grad)
    norm = optim.clip_grad_norm_(params, 0.25, norm_type).item()
    assert norm == pytest.approx(np.linalg.norm(before.ravel().astype(float), norm_type))
    np.testing.assert_allclose(np.array(params[0].grad), before * (0.25 / norm), rtol=1e-5)


@pytest.mark.parametrize("norm_type", [1, 2, math.inf])
def test_gradients_without_elements_on_a_device_have_the_norm_0(norm_type):
    parameter = nn.Parameter(device.move(np.zeros((0, 3), "f"), DEVICE))
    parameter.grad = Tensor(device.move(np.zeros((0, 3), "f"), DEVICE))
    norm = optim.clip_grad_norm_(parameter, 1.0, norm_type)
    assert norm.item() == 0 and norm.device == parameter.device


def test_clipping_refuses():
    params = parameters()
    give_gradients(params, 0)
    params[1].grad.array[0, 0] = math.inf
    before = [np.array(p.grad) for p in params]
    with pytest.raises(RuntimeError, match="^clip_grad_norm_: the 2.0-norm of the gradients is inf"):
        optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    with pytest.raises(TypeError, match="^clip_grad_norm_: max_norm is 'x'"):
        optim.clip_grad_norm_(params, "x")
    with pytest.raises(ValueError, match="^clip_grad_norm_: norm_type is -1, wanted at least 0"):
        optim.clip_grad_norm_(params, 1.0, -1)
    with pytest.raises(ValueError, match="^clip_grad_value_: clip_value is -1,"):
        optim.clip_grad_value_(params, -1)
    with pytest.raises(TypeError, match="^clip_scale: max_norm is 'x'"):
        clip_scale(params, "x")
    assert same([np.array(p.grad) for p in params], before)
