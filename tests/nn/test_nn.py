"""Modules: registration, names, state, modes."""

import collections
import copy

import numpy as np
import pytest

from minigrad import Tensor, nn
from minigrad.core.tape import write
from minigrad_kernels.layout import FILTER, is_dense


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return nn.functional.relu(self.norm(self.conv(x))) + x


class Tied(nn.Module):
    """A weight that stands in two places, and a buffer that is not saved."""

    def __init__(self):
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", Tensor(np.full(4, 2, np.float32)))
        self.register_buffer("scratch", Tensor(np.zeros(3, np.float32)), persistent=False)
        self.note = "not a part"

    def forward(self, x):
        return self.second(self.first(x)) * self.scale


def network():
    return nn.Sequential(nn.Conv2d(1, 4, 3), Block(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))


def image(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def values(module):
    return {name: np.array(tensor) for name, tensor in module.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_names():
    names = [name for name, _ in network().named_parameters()]
    inner = [f"1.{part}" for part in ("conv.weight", "conv.bias", "norm.weight", "norm.bias")]
    assert names == ["0.weight", "0.bias", *inner, "4.weight", "4.bias"]
    assert [name for name, _ in network().named_modules()] == ["", "0", "1", "1.conv", "1.norm", "2", "3", "4"]
    buffers = ["1.norm.running_mean", "1.norm.running_var", "1.norm.num_batches_tracked"]
    assert [name for name, _ in network().named_buffers()] == buffers
    assert list(network().state_dict()) == names[:6] + buffers + names[6:]
    assert [name for name, _ in network()[1].named_parameters("p", recurse=False)] == []
    assert [name for name, _ in network().named_children()] == ["0", "1", "2", "3", "4"]
    assert isinstance(network().state_dict(), collections.OrderedDict)


def test_shared_parameters_appear_once_but_are_saved_under_each_name():
    tied = Tied()
    assert [name for name, _ in tied.named_parameters()] == ["first.weight", "second.bias"]
    names = [name for name, _ in tied.named_parameters(remove_duplicate=False)]
    assert names == ["first.weight", "second.weight", "second.bias"]
    assert list(tied.state_dict()) == ["scale", "first.weight", "second.weight", "second.bias"]
    assert len(list(tied.buffers())) == 2
    tied(image(2, 4)).sum().backward()
    assert tied.first.weight.grad is tied.second.weight.grad
    twice = nn.Sequential(tied, tied)
    assert len(list(twice.parameters())) == 2
    assert len(list(twice.modules())) == 4 and len(list(twice.children())) == 1


def test_attributes():
    module = nn.Linear(2, 3)
    with pytest.raises(TypeError, match="Linear: weight is a Tensor, wanted a Parameter or None"):
        module.weight = image(3, 2)
    module.bias = None
    assert [name for name, _ in module.named_parameters()] == ["weight"]
    assert np.array_equal(module(image(5, 2)).detach(), (image(5, 2) @ module.weight.T).detach())
    module.weight = nn.Parameter(np.zeros((3, 2), np.float32))
    assert module(image(5, 2)).sum().item() == 0
    del module.weight
    with pytest.raises(AttributeError, match="has no attribute 'weight'"):
        module.weight  # noqa: B018
    module.part = nn.ReLU()
    module.part = nn.Parameter(np.ones(1, np.float32))  # takes the name over
    assert not list(module.children()) and "part" in dir(module)
    assert Tied().note == "not a part"


def test_parameters():
    source = image(2, 3)
    shared = nn.Parameter(source)
    assert shared.requires_grad and shared.array is source.array
    write(shared)[...] = 1
    assert source.version[0] == 1 and source.sum().item() == 6
    assert not nn.Parameter([1.0, 2.0], requires_grad=False).requires_grad
    with pytest.raises(TypeError, match="requires_grad wants floating"):
        nn.Parameter(np.arange(3))
    assert repr(nn.Parameter([1.0])).startswith("Parameter containing:\nTensor([1.]")
    assert type(shared * 2) is Tensor and type(shared.detach()) is Tensor


# ---- changes to all parts --------------------------------------------------------------------------------------------


def test_modes():
    model = network()
    assert all(module.training for module in model.modules())
    assert model.eval() is model and not any(module.training for module in model.modules())
    assert model.train() is model and model[1].norm.training
    with pytest.raises(TypeError, match="train: mode is 1"):
        model.train(1)


def test_gradients_of_all_parameters():
    model = network()
    model(image(2, 1, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    addresses = [p.grad.array.ctypes.data for p in model.parameters()]
    model.zero_grad(set_to_none=False)
    assert [p.grad.array.ctypes.data for p in model.parameters()] == addresses
    assert all(not np.array(p.grad).any() for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert model.requires_grad_(False) is model
    assert not model(image(2, 1, 8, 8)).requires_grad


def test_apply_visits_those_below_first():
    seen = []
    model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.Tanh())
    assert model.apply(lambda module: seen.append(type(module).__name__)) is model
    assert seen == ["ReLU", "Sequential", "Tanh", "Sequential"]


def test_types_and_devices():
    model = network()
    before, objects = values(model), list(model.parameters())
    model(image(2, 1, 8, 8)).sum().backward()
    out = model(image(2, 1, 8, 8)).sum()
    assert model.double() is model and model[0].weight.dtype == np.float64
    assert all(a is b for a, b in zip(objects, model.parameters(), strict=True))
    assert is_dense(model[0].weight.array, FILTER) and model[0].weight.grad.dtype == np.float64
    assert model[1].norm.num_batches_tracked.dtype == np.int64 and model[1].norm.running_var.dtype == np.float64
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        out.backward()
    assert model(image(2, 1, 8, 8).double()).dtype == np.float64
    changed = {name for name, value in values(model.float()).items() if not np.array_equal(value, before[name])}
    assert changed == {f"1.norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert model.to("cpu") is model
    for targets in (("cpu", "float64"), (np.float64,), (image(1).double(),)):
        assert model.float().to(*targets)[0].weight.dtype == np.float64
    version = list(model[0].weight.version)
    assert model.to(device="cpu", dtype="float64").to()[0].weight.version == version  # nothing changed


def test_copies_are_apart():
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    other = copy.deepcopy(model)
    assert same(values(model), values(other)) and repr(model) == repr(other)
    assert other[0].weight.array.strides == model[0].weight.array.strides
    nn.init.zeros_(other[2].weight)
    assert not same(values(model), values(other))


def test_forward_hooks():
    layer, seen = nn.ReLU(), []
    handle = layer.register_forward_hook(lambda module, args, out: seen.append((module, args[0].shape, out.shape)))
    double = layer.register_forward_hook(lambda module, args, out: out * 2)
    assert layer(Tensor([1.0, -1.0])).tolist() == [2, 0]
    handle.remove(), double.remove(), double.remove()
    assert layer(Tensor([1.0])).tolist() == [1] and seen == [(layer, (2,), (2,))]


# ---- state -----------------------------------------------------------------------------------------------------------


def test_state_goes_into_another_network_of_its_kind():
    model, other = network(), network()
    model(image(4, 1, 8, 8))
    assert not same(values(model), values(other))
    result = other.load_state_dict(model.state_dict())
    assert result.missing_keys == [] and result.unexpected_keys == []
    assert same(values(model), values(other))
    assert other[1].norm.num_batches_tracked.item() == 1
    assert is_dense(other[0].weight.array, FILTER)
    x = image(3, 1, 8, 8)
    assert np.array_equal(model.eval()(x).detach(), other.eval()(x).detach())
    other.double().load_state_dict(values(model))  # arrays, in the type of the network
    assert other[0].weight.dtype == np.float64
    assert np.array_equal(np.array(other[0].weight.detach()).astype(np.float32), values(model)["0.weight"])


def test_state_shares_memory_and_raises_versions():
    model = nn.Linear(2, 2)
    state = model.state_dict()
    assert state["weight"].array is model.weight.array and not state["weight"].requires_grad
    x = Tensor(np.ones((1, 2), np.float32), requires_grad=True)
    out = model(x).sum()
    model.load_state_dict(values(model))
    with pytest.raises(RuntimeError, match="weight was changed after it was used"):
        out.backward()


def test_all_faults_of_a_state_in_one_error():
    model = network()
    before = values(model)
    state = values(model)
    del state["0.bias"], state["1.norm.running_var"]
    state |= {"extra": np.ones(1), "5.weight": np.ones(1)}
    state["4.weight"], state["1.conv.bias"] = np.ones((3, 35)), np.ones((4, 1))
    state["0.weight"] = state["0.weight"] + 1  # fits, but must not be written
    with pytest.raises(ValueError) as caught:
        model.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("load_state_dict: Sequential does not fit: ")
    for part in (
        "missing 0.bias, 1.norm.running_var",
        "unexpected extra, 5.weight",
        "4.weight has shape (3, 35), wanted (3, 36)",
        "1.conv.bias has shape (4, 1), wanted (4,)",
    ):
        assert part in text
    assert same(values(model), before)
    with pytest.raises(ValueError, match="4.weight has shape") as caught:  # shapes must fit even so
        model.load_state_dict(state, strict=False)
    assert "missing" not in str(caught.value) and same(values(model), before)
    for name in ("4.weight", "1.conv.bias"):
        del state[name]
    result = model.load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias", "1.conv.bias", "1.norm.running_var", "4.weight"]
    assert result.unexpected_keys == ["extra", "5.weight"]
    assert np.array_equal(values(model)["0.weight"], before["0.weight"] + 1)
