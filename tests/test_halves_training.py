"""A training step with autocast on a GPU, here the stand-in's: which kernels it starts, and what it computes."""

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad_kernels import interpreter

from .stand_in_gpus import gpus

SHORT = {"float16": "f16", "bfloat16": "bf16"}
OURS = ("bias_", "elementwise_", "norm_", "pool2d_")
SUMS = ("bias_add_f32", "norm_total_grads_f32")  # of parts, which are float32 whatever they are sums of


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
        return {half: step("cuda", half) for half in SHORT}


@pytest.mark.parametrize("half", SHORT)
def test_a_step_in_16_bits_is_kernels_of_16_bits(steps, half):
    """And its results are those of the CPU, which rounds at the same places, and near those of float32."""
    loss, gradients, buffers, launched = steps[half]
    ours = [name for name in launched if name.startswith(OURS) and name not in SUMS]
    assert ours and all(name.endswith(f"_{SHORT[half]}") for name in ours), ours
    for kernel in ("normalize_vector", "grads_vector", "max_forward_vector", "average_forward_vector", "sums_vector"):
        assert any(kernel in name for name in ours), kernel
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[half]
    for other in (step("cpu", half), step("cpu", half, enabled=False)):
        assert abs(loss - other[0]) < 4 * eps * other[0]
        for name, gradient in gradients.items():
            assert gradient.dtype == np.float32
            assert np.abs(gradient - other[1][name]).max() < 16 * eps * max(np.abs(other[1][name]).max(), 0.1), name
        for name, buffer in buffers.items():
            np.testing.assert_allclose(buffer, other[2][name], atol=8 * eps, rtol=8 * eps)
