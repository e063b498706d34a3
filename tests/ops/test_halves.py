"""Tensors, layers and optimisers in float16 and bfloat16; a step with autocast on a GPU, here the stand-in's."""

import copy

import ml_dtypes
import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, ops, optim
from minigrad_kernels import interpreter
from tests.device.stand_in_gpus import gpus

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
each_half = pytest.mark.parametrize("half", HALVES)


@each_half
def test_types(half):
    """Names and promotion; numbers are not rounded before the result is; what NumPy does otherwise."""
    kind, x = HALVES[half], minigrad.ones(2, dtype=half)
    assert x.dtype == getattr(minigrad, half) == kind and x.numpy().dtype == kind and f"dtype={half}" in repr(x)
    other = minigrad.ones(2, dtype=next(name for name in HALVES if name != half))
    promoted = {other: "float32", minigrad.ones(2): "float32", 0.1: half, minigrad.ones(2, dtype="int64"): half}
    for value, wanted in promoted.items():
        assert (x + value).dtype == (value * x).dtype == ops.where(x > 0, x, value).dtype == wanted
    x = minigrad.tensor([3.0, float("nan"), 1.0, -2.0], dtype=half)
    np.testing.assert_array_equal((x[2:] * 0.1).array, (x[2:].float() * 0.1).array.astype(kind))
    assert x.argmax().item() == 1 and bool(ops.isnan(x.max()))
    assert minigrad.ones(4096, dtype=half).cumsum(0)[-1].item() == 4096 == minigrad.ones(4096, dtype=half).sum().item()
    with pytest.raises(BufferError, match=r"dlpack: NumPy hands over no bfloat16; call .float\(\)"):
        np.from_dlpack(minigrad.ones(2, dtype="bfloat16"))


def network():
    """Layers with parameters, statistics, random numbers and ties."""
    minigrad.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.LeakyReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(8, 12), nn.ReLU(), nn.Dropout(0.25), nn.LayerNorm(12), nn.Linear(12, 10)),
    )


def batch(dtype="float32", place="cpu"):
    x = np.random.default_rng(1).standard_normal((8, 4, 8, 8)).astype(np.float32)
    return Tensor(x).to(dtype).to(place), Tensor(np.arange(8)).to(place)


@each_half
def test_training(half):
    """Parameters, gradients and states have the type."""
    model, (x, target) = network().to(half), batch(half)
    optimizer, losses = optim.SGD(model.parameters(), 0.05, momentum=0.9), []
    for _ in range(4):
        optimizer.zero_grad()
        losses.append(ops.cross_entropy(model(x), target))
        losses[-1].backward()
        assert {p.grad.dtype for p in model.parameters()} == {HALVES[half]} == {losses[-1].dtype}
        assert optim.clip_grad_norm_(model.parameters(), 5.0).dtype == HALVES[half]
        optimizer.step()
    assert losses[-1].item() < 0.95 * losses[0].item()


@each_half
def test_parameters_of_norms_may_stay_float32(half):
    """As under autocast: normalisation takes statistics and parameters of float32 beside an input of 16 bits."""
    for layer in (nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm((4, 5, 5))):
        x = Tensor(np.random.default_rng(0).standard_normal((3, 4, 5, 5)).astype(HALVES[half]), requires_grad=True)
        for training in (True, False):
            out, wanted = layer.train(training)(x), copy.deepcopy(layer)(x.float())
            np.testing.assert_allclose(out.float().tolist(), wanted.tolist(), rtol=2 * EPS[half], atol=0.05)
            out.sum().backward()
        others = [*(p.grad for p in layer.parameters()), *(buffer for buffer in layer.buffers() if buffer.ndim)]
        assert out.dtype == x.grad.dtype == x.dtype and all(one.dtype == np.float32 for one in others)
    with pytest.raises(TypeError, match="weight has type float32, wants float64"):
        ops.layer_norm(x.double(), (5,), minigrad.ones(5))


def step(place, half, enabled=True):
    """(loss, gradients and running statistics by name) of a step, and its launches."""
    model, (x, target) = network().to(place), batch(place=place)
    with interpreter.recording() as launches:
        with minigrad.autocast(half, enabled=enabled):
            loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
    found = {name: p.grad for name, p in model.named_parameters()} | dict(model.named_buffers()) | {"loss": loss}
    return {name: one.detach().to("cpu").numpy() for name, one in found.items()}, [name for name, _ in launches]


@pytest.mark.deep
@each_half
def test_a_step_in_16_bits_multiplies_on_tensor_cores(half):
    """All else is widened. Results are those of the CPU, which rounds at the same places, and near those of float32."""
    with gpus(1):
        found, launched = step("cuda", half)
    for kernel in ("conv2d_tensor", "conv2d_weight_tensor", "matmul_asynchronous"):
        assert any(name.startswith(f"{kernel}_{half}") for name in launched), kernel
    assert {name.partition("_")[0] for name in launched if half in name} == {"conv2d", "matmul"}
    for enabled in (True, False):
        for name, wanted in step("cpu", half, enabled)[0].items():
            assert found[name].dtype == wanted.dtype
            largest = max(np.abs(wanted).max(), 0.1)
            assert np.abs(found[name] - wanted).max() < 16 * EPS[half] * largest, name
