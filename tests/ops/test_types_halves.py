"""Tensors, layers and optimisers in float16 and bfloat16 on the CPU."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, device, nn, ops, optim
from tests.optim.optim_parts import RULES
from tests.parallel.parallel_runs import on_ranks

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
each_half = pytest.mark.parametrize("half", HALVES)


def network():
    """Layers with parameters, statistics, random numbers and ties."""
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.GroupNorm(2, 4), nn.Dropout(0.3), nn.Conv2d(4, 4, 3, bias=False), nn.GELU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 3)),
    )


def batch(half):
    rng = np.random.default_rng(0)
    return Tensor(rng.standard_normal((8, 2, 12, 12)).astype(HALVES[half])), Tensor(rng.integers(0, 3, 8))


@each_half
def test_names_and_promotion(half):
    kind, x = HALVES[half], minigrad.ones(2, dtype=half)
    assert x.dtype == getattr(minigrad, half) == kind and x.numpy().dtype == kind
    assert x.float().dtype == np.float32 and getattr(x.float(), {"float16": "half"}.get(half, half))().dtype == kind
    other = minigrad.ones(2, dtype=next(name for name in HALVES if name != half))
    for value, wanted in {
        other: "float32", minigrad.ones(2): "float32", minigrad.ones(2, dtype="float64"): "float64", 1: half, 0.1: half,
        minigrad.ones(2, dtype="int64"): half, minigrad.tensor(2.0): half, minigrad.tensor(True): half,
    }.items():  # fmt: skip
        assert (x + value).dtype == (value * x).dtype == ops.where(x > 0, x, value).dtype == wanted
    assert (x > 0.1).dtype == bool and (1 / x).dtype == kind and (x @ x).dtype == kind


@each_half
def test_numbers_are_not_rounded_before_the_result_is(half):
    x = minigrad.tensor([1.0, 3.0], dtype=half)
    np.testing.assert_array_equal((x * 0.1).array, (x.float() * 0.1).array.astype(HALVES[half]))
    assert (x == minigrad.tensor(0.1, dtype=half)).numpy().tolist() == (x == 0.1).numpy().tolist() == [False, False]
    assert (minigrad.tensor([0.1], dtype=half) == 0.1).item()  # as PyTorch, which rounds it to compare


@each_half
def test_what_numpy_does_otherwise(half):
    x = minigrad.tensor([3.0, float("nan"), 1.0, -2.0], dtype=half)
    assert x.sort().indices.tolist() == [3, 2, 0, 1] and x.topk(2).indices.tolist() == [1, 0]
    assert x.argmax().item() == 1 and bool(ops.isnan(x.max()))
    assert minigrad.rand(100_000, dtype=half).max().item() < 1
    assert minigrad.ones(4096, dtype=half).cumsum(0)[-1].item() == 4096 == minigrad.ones(4096, dtype=half).sum().item()
    assert f"dtype={half}" in repr(x) and pickle.loads(pickle.dumps(x.numpy())).dtype == x.dtype


def test_exchange_has_no_bfloat16():
    with pytest.raises(BufferError, match=r"dlpack: NumPy hands over no bfloat16; call .float\(\)"):
        np.from_dlpack(minigrad.ones(2, dtype="bfloat16"))
    assert minigrad.from_dlpack(minigrad.ones(2, dtype="float16")).dtype == np.float16


@each_half
def test_dropout_drops_the_same(half):
    masks = []
    for kind in (half, "float32"):
        minigrad.manual_seed(3)
        masks.append(ops.dropout(minigrad.ones(1000, dtype=kind), 0.4).numpy() > 0)
    np.testing.assert_array_equal(*masks)


@each_half
@pytest.mark.parametrize("name", RULES)
def test_training(name, half):
    """Parameters, gradients and states have the type. In float16 Adam's squares are lost, as in PyTorch."""
    minigrad.manual_seed(0)
    (model, (x, target)), losses = (network().to(half), batch(half)), []
    optimizer = RULES[name](model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        loss = ops.cross_entropy(model(x), target)
        loss.backward()
        assert loss.dtype == HALVES[half] and {p.grad.dtype for p in model.parameters()} == {HALVES[half]}
        assert optim.clip_grad_norm_(model.parameters(), 5.0).dtype == HALVES[half]
        optimizer.step()
        losses.append(loss.item())
    if name.startswith(("SGD", "Adam")) and (half, name[:4]) != ("float16", "Adam"):
        assert losses[-1] < 0.9 * losses[0]
    states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    assert {value.dtype for value in states if isinstance(value, np.ndarray)} <= {HALVES[half]}
    other = RULES[name](copy.deepcopy(model).parameters())
    other.load_state_dict(optimizer.state_dict())


@each_half
def test_parameters_may_stay_float32(half):
    """As under autocast: normalisation takes statistics and parameters of float32 beside an input of 16 bits."""
    for layer in (nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm((4, 5, 5))):
        x = Tensor(np.random.default_rng(0).standard_normal((3, 4, 5, 5)).astype(HALVES[half]), requires_grad=True)
        for training in (True, False):
            out = layer.train(training)(x)
            wanted = copy.deepcopy(layer)(x.float())
            assert out.dtype == x.dtype
            eps = float(ml_dtypes.finfo(HALVES[half]).eps)
            np.testing.assert_allclose(out.float().tolist(), wanted.tolist(), rtol=eps, atol=0.05)
            out.sum().backward()
        assert x.grad.dtype == x.dtype and {p.grad.dtype for p in layer.parameters()} == {np.dtype(np.float32)}
        assert {buffer.dtype for buffer in layer.buffers() if buffer.ndim} <= {np.dtype(np.float32)}
    with pytest.raises(TypeError, match="weight has type float32, wants float64"):
        ops.layer_norm(x.double(), (5,), minigrad.ones(5))


@each_half
def test_fused_layers_give_the_same_bits(half):
    model, (x, _) = network().to(half).eval(), batch(half)
    with minigrad.no_grad():
        together = model(x)
        for layer in model:
            x = layer(x)
    eps = float(ml_dtypes.finfo(HALVES[half]).eps)
    np.testing.assert_allclose(together.float().tolist(), x.float().tolist(), rtol=8 * eps, atol=8 * eps)


@each_half
def test_checkpoints_keep_the_type(half, tmp_path):
    model = network().to(half)
    optimizer = optim.Adam(model.parameters())
    x, target = batch(half)
    ops.cross_entropy(model(x), target).backward()
    optimizer.step()
    checkpoint.save(tmp_path / "c", model=model, optimizer=optimizer)
    twin = network().to(half)
    later = optim.Adam(twin.parameters())
    checkpoint.load(tmp_path / "c", model=twin, optimizer=later)
    assert checkpoint.weights_hash(twin) == checkpoint.weights_hash(model)
    first, second = (one.state_dict()["state"][0]["exp_avg"] for one in (optimizer, later))
    np.testing.assert_array_equal(first, second)


def exchanged(world, half):
    mean = minigrad.full((5,), world.rank + 1.0, dtype=half)
    world.all_reduce(mean, "mean")
    first = minigrad.full((3,), 0.1 * world.rank, dtype=half)
    world.broadcast(first, root=1)
    return mean.tolist(), first.tolist()


@each_half
def test_ranks_exchange_it(half):
    tenth = float(np.array(0.1).astype(HALVES[half]))
    assert on_ranks(exchanged, 2, half) == [([1.5] * 5, [tenth] * 3)] * 2


@pytest.mark.parametrize("half", ["bfloat16"])  # interpreting is slow; kernels are tested in both
def test_on_the_interpreter(half):
    """The engine's path for GPUs, with kernels of 16 bits and without."""
    minigrad.manual_seed(1)
    model, (x, target) = nn.Linear(4, 3).to(half), batch(half)
    x, found = x[:, 0, 0, :4], []
    for place in ("cpu", "interpreter"):
        there = copy.deepcopy(model).to(place)
        loss = ops.cross_entropy(there(x.to(place)), target.to(place))
        loss.backward()
        gradients = [p.grad for p in there.parameters()]
        optim.clip_grad_norm_(there.parameters(), 0.5)
        optim.SGD(there.parameters(), lr=0.1).step()
        found.append([value.detach().to("cpu").float().numpy() for value in (loss, *gradients, *there.parameters())])
        assert {device.is_half(value.dtype) for value in gradients} == {True}
    eps = float(ml_dtypes.finfo(HALVES[half]).eps)
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(here, there, rtol=2 * eps, atol=eps)
