"""A training step with autocast on a GPU, here the stand-in's: which kernels it starts, and what it computes."""

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad_kernels import interpreter
from tests.device.stand_in_gpus import gpus

HALVES = "float16", "bfloat16"


def network():
    minigrad.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.LeakyReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(8, 12), nn.ReLU(), nn.Dropout(0.25), nn.Linear(12, 10),
    )  # fmt: skip


def step(device, half, enabled=True):
    """(loss, gradients by name, running statistics) of a step, and its launches."""
    model = network().to(device)
    x = minigrad.Tensor(np.random.default_rng(1).standard_normal((8, 4, 8, 8)).astype(np.float32)).to(device)
    target = minigrad.Tensor(np.arange(8)).to(device)
    with interpreter.recording() as launches:
        with minigrad.autocast(half, enabled=enabled):
            loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
    gradients = {name: p.grad.to("cpu").numpy() for name, p in model.named_parameters()}
    buffers = {name: b.to("cpu").numpy() for name, b in model.named_buffers()}
    return loss.item(), gradients, buffers, [name for name, _ in launches]


@pytest.fixture(scope="module")
def steps():
    """A step on the GPU in each type."""
    with gpus(1):
        return {half: step("cuda", half) for half in HALVES}


@pytest.mark.parametrize("half", HALVES)
def test_a_step_in_16_bits_multiplies_on_tensor_cores(steps, half):
    """All else is widened. Results are those of the CPU, which rounds at the same places, and near those of float32."""
    loss, gradients, buffers, launched = steps[half]
    for kernel in ("conv2d_tensor", "conv2d_weight_tensor", "matmul_asynchronous"):
        assert any(name.startswith(f"{kernel}_{half}") for name in launched), kernel
    for kernel in ("norm_sums_vector", "norm_finish_vector", "pool2d_max_forward_vector", "bias_sums_vector"):
        assert any(name.startswith(kernel) for name in launched), kernel
    products = [name for name in launched if half in name]
    assert {name.partition("_")[0] for name in products} == {"conv2d", "matmul"}, products
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[half]
    for other in (step("cpu", half), step("cpu", half, enabled=False)):
        assert abs(loss - other[0]) < 4 * eps * other[0]
        for name, gradient in gradients.items():
            assert gradient.dtype == np.float32
            assert np.abs(gradient - other[1][name]).max() < 16 * eps * max(np.abs(other[1][name]).max(), 0.1), name
        for name, buffer in buffers.items():
            np.testing.assert_allclose(buffer, other[2][name], atol=8 * eps, rtol=8 * eps)
