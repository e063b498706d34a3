"""Modules: registration, names, state, modes; containers, first values, the summary."""

import collections
import copy
import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.core.tape import write
from minigrad.device import Generator, empty
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


def names(pairs):
    return [name for name, _ in pairs]


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_names():
    """Shared parameters appear once, but are saved under each of their names."""
    inner = [f"1.{part}" for part in ("conv.weight", "conv.bias", "norm.weight", "norm.bias")]
    parameters = ["0.weight", "0.bias", *inner, "4.weight", "4.bias"]
    buffers = ["1.norm.running_mean", "1.norm.running_var", "1.norm.num_batches_tracked"]
    model = network()
    assert names(model.named_parameters()) == parameters and names(model.named_buffers()) == buffers
    assert names(model.named_modules()) == ["", "0", "1", "1.conv", "1.norm", "2", "3", "4"]
    assert list(model.state_dict()) == parameters[:6] + buffers + parameters[6:]
    assert isinstance(model.state_dict(), collections.OrderedDict)
    assert model.get_submodule("") is model and model.get_submodule("1.norm") is model[1].norm
    with pytest.raises(AttributeError, match="has no attribute 'pool'"):
        model.get_submodule("1.pool")
    tied = Tied()
    assert names(tied.named_parameters()) == ["first.weight", "second.bias"]
    assert names(tied.named_parameters(remove_duplicate=False)) == ["first.weight", "second.weight", "second.bias"]
    assert list(tied.state_dict()) == ["scale", "first.weight", "second.weight", "second.bias"]
    twice = nn.Sequential(tied, tied)
    assert (len(list(twice.parameters())), len(list(twice.modules())), len(list(twice.children()))) == (2, 4, 1)


def test_attributes_and_parameters():
    module, source = nn.Linear(2, 3), image(2, 3)
    with pytest.raises(TypeError, match="Linear: weight is a Tensor, wanted a Parameter or None"):
        module.weight = image(3, 2)
    module.bias = None
    assert names(module.named_parameters()) == ["weight"]
    assert np.array_equal(module(image(5, 2)).detach(), (image(5, 2) @ module.weight.T).detach())
    del module.weight
    with pytest.raises(AttributeError, match="has no attribute 'weight'"):
        module.weight  # noqa: B018
    module.part = nn.ReLU()
    module.part = nn.Parameter(np.ones(1, np.float32))  # takes the name over
    assert not list(module.children()) and "part" in dir(module)
    shared = nn.Parameter(source)
    write(shared)[...] = 1
    assert shared.requires_grad and source.version[0] == 1 and source.sum().item() == 6
    assert type(shared * 2) is Tensor and type(shared.detach()) is Tensor


LAYERS, TANH = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)], nn.Tanh()
CHANGES = [  # to containers and to lists
    lambda listed: listed.__setitem__(1, TANH),
    lambda listed: listed.append(LAYERS[1]),
    lambda listed: listed.__delitem__(0),
    lambda listed: listed.extend(listed),
    lambda listed: listed.__iadd__([LAYERS[0]]),
    lambda listed: listed.__delitem__(slice(1, 3)),
]


@pytest.mark.parametrize(
    "make", [lambda layers: nn.Sequential(*layers), nn.ModuleList], ids=["Sequential", "ModuleList"]
)
def test_containers_act_as_lists(make):
    """And name their parts by numbers without a gap."""
    listed, plain = make(LAYERS), [*LAYERS]
    for change in CHANGES:
        change(listed), change(plain)
        assert list(listed) == plain and len(listed) == len(plain)
        assert [*listed._modules] == [str(index) for index in range(len(plain))]
        assert listed[-1] is plain[-1] and list(listed[1:]) == plain[1:] and type(listed[1:]) is type(listed)
    assert listed.append(TANH) is listed


def test_parts_of_containers():
    named = nn.Sequential(collections.OrderedDict(conv=nn.Conv2d(1, 2, 3), act=nn.ReLU()))
    named.add_module("last", nn.Tanh())
    assert list(named.state_dict()) == ["conv.weight", "conv.bias"] and named.act is named[1] and named.last is named[2]
    with pytest.raises(NotImplementedError, match="ModuleList: forward is not defined"):
        nn.ModuleList(named)(1)
    vectors = nn.ParameterList([nn.Parameter(np.ones((2, 3), np.float32)), image(2)])
    vectors += [vectors[0]]
    assert names(vectors.named_parameters()) == ["0", "1"] and isinstance(vectors[1], nn.Parameter)
    assert len(vectors) == 3 and type(vectors[:1]) is nn.ParameterList and vectors[:1][0] is vectors[2]
    table = nn.ModuleDict({"a": TANH, "b": TANH})
    table.update([("c", nn.ReLU()), ["b", LAYERS[0]]])
    assert dict(table.items()) == {"a": TANH, "b": LAYERS[0], "c": table["c"]} and table.get("x") is None
    assert table.pop("c")(Tensor([0.0])).item() == 0 and "c" not in table and list(table) == ["a", "b"]
    table.clear()
    assert not list(table) and not list(table.parameters())


# ---- changes to all parts --------------------------------------------------------------------------------------------


def test_modes_gradients_and_visits():
    model, seen = network(), []
    assert model.eval() is model and not any(module.training for module in model.modules())
    assert model.train() is model and model[1].norm.training
    with pytest.raises(TypeError, match="train: mode is 1"):
        model.train(1)
    model(image(2, 1, 8, 8)).sum().backward(create_graph=True)
    held = [p.grad.array for p in model.parameters()]
    model.zero_grad(set_to_none=False)
    assert all(p.grad.array is array and not array.any() for p, array in zip(model.parameters(), held, strict=True))
    assert not any(p.grad.requires_grad for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert not model.requires_grad_(False)(image(2, 1, 8, 8)).requires_grad
    model.apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Conv2d", "Conv2d", "BatchNorm2d", "Block", "MaxPool2d", "Flatten", "Linear", "Sequential"]


def test_types_and_devices():
    """Parameters stay the same objects in the same layout; what was computed by their old numbers is refused."""
    model = network()
    before, objects, weight = values(model), list(model.parameters()), model[0].weight
    assert model.state_dict()["0.weight"].array is weight.array
    model(image(2, 1, 8, 8)).sum().backward()
    out = model(image(2, 1, 8, 8)).sum()
    assert model.double() is model and weight.dtype == weight.grad.dtype == model[1].norm.running_var.dtype == float
    assert all(a is b for a, b in zip(objects, model.parameters(), strict=True)) and is_dense(weight.array, FILTER)
    assert model[1].norm.num_batches_tracked.dtype == np.int64
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        out.backward()
    changed = {name for name, value in values(model.float()).items() if not np.array_equal(value, before[name])}
    assert changed == {f"1.norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    for targets in (("cpu", "float64"), (np.float64,), (image(1).double(),)):
        assert model.float().to(*targets)[0].weight.dtype == np.float64
    version = list(weight.version)
    assert model.to(device="cpu", dtype="float64").to()[0].weight.version == version  # nothing changed
    for make in (nn.Linear, nn.ConvTranspose2d, nn.Embedding, nn.GroupNorm):
        layer = make(2, 4, *(1,) * (make is nn.ConvTranspose2d), device="cpu", dtype="float64")
        assert layer.weight.dtype == np.float64


def test_forward_hooks():
    layer, seen = nn.ReLU(), []
    handle = layer.register_forward_hook(lambda module, args, out: seen.append((module, args[0].shape, out.shape)))
    double = layer.register_forward_hook(lambda module, args, out: out * 2)
    assert layer(Tensor([1.0, -1.0])).tolist() == [2, 0]
    handle.remove(), double.remove(), double.remove()
    assert layer(Tensor([1.0])).tolist() == [1] and seen == [(layer, (2,), (2,))]


@pytest.mark.parametrize("name, shape", [("Dropout", ()), ("Dropout1d", (20, 3)), ("Dropout2d", (20, 2, 2))])
def test_dropout_of_elements_or_whole_channels_in_training(name, shape):
    layer, x = getattr(nn, name)(0.25), Tensor(np.ones((1000, *shape), np.float32))
    channels = np.array(layer(x)).reshape(1000 * (shape or (1,))[0], -1)
    assert np.all(channels == channels[:, :1])
    assert abs((channels[:, 0] == 0).mean() - 0.25) < 0.07  # five standard deviations of a thousand
    assert layer.eval()(x) is x


# ---- state -----------------------------------------------------------------------------------------------------------


def test_state_goes_into_another_network_of_its_kind():
    model, other, x = network(), network(), image(3, 1, 8, 8)
    alike = copy.deepcopy(model)
    assert same(values(model), values(alike)) and repr(model) == repr(alike)
    nn.init.zeros_(alike[0].weight)
    assert not same(values(model), values(alike)) and is_dense(alike[0].weight.array, FILTER)
    model(image(4, 1, 8, 8))
    assert other.load_state_dict(model.state_dict()) == ([], []) and same(values(model), values(other))
    assert other[1].norm.num_batches_tracked.item() == 1 and is_dense(other[0].weight.array, FILTER)
    assert np.array_equal(model.eval()(x).detach(), other.eval()(x).detach())
    other.double().load_state_dict(values(model))  # arrays, in the type of the network
    assert other[0].weight.dtype == np.float64 and same(values(other.float()), values(model))
    for layer in (nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3)):  # as kernels want them
        assert is_dense(layer.weight.array, FILTER)


def test_all_faults_of_a_state_in_one_error():
    model = network()
    before, state = values(model), values(model)
    del state["0.bias"], state["1.norm.running_var"]
    wrong = {"4.weight": np.ones((3, 35)), "1.conv.bias": np.ones((4, 1))}
    state |= {"extra": np.ones(1), "0.weight": state["0.weight"] + 1}  # this fits, but must not be written
    faults = "4.weight has shape (3, 35), wanted (3, 36)", "1.conv.bias has shape (4, 1), wanted (4,)"
    for strict, parts in ((True, ("missing 0.bias, 1.norm.running_var", "unexpected extra")), (False, ())):
        with pytest.raises(ValueError) as caught:  # shapes must fit even so
            model.load_state_dict(state | wrong, strict=strict)
        assert str(caught.value).startswith("load_state_dict: Sequential does not fit: ")
        assert all(part in str(caught.value) for part in (*faults, *parts)) and same(values(model), before)
    result = model.load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias", "1.norm.running_var"] and result.unexpected_keys == ["extra"]
    assert np.array_equal(values(model)["0.weight"], before["0.weight"] + 1)


# ---- first values ----------------------------------------------------------------------------------------------------


SPREADS = {  # standard deviation for shape (40, 30, 3, 2): fan_in 180, fan_out 240
    "kaiming_uniform_": (dict(nonlinearity="relu"), math.sqrt(2 / 180)),
    "kaiming_normal_": (dict(mode="fan_out", a=0.2), math.sqrt(2 / (1 + 0.04) / 240)),
    "xavier_uniform_": (dict(gain=2.0), 2 * math.sqrt(2 / 420)),
    "xavier_normal_": ({}, math.sqrt(2 / 420)),
    "uniform_": (dict(a=-3, b=3), math.sqrt(3)),
    "normal_": (dict(std=0.2), 0.2),
    "trunc_normal_": (dict(std=0.02), 0.02),
    "orthogonal_": (dict(gain=2), 2 / math.sqrt(180)),
}


@pytest.mark.parametrize("name", SPREADS)
def test_initialisers(name):
    """Mean and spread; the same numbers in every layout and type; the default generator hears manual_seed."""
    options, std = SPREADS[name]
    draw, found = getattr(nn.init, name), []
    for dtype, order in (("float32", FILTER), ("float32", None), ("float64", FILTER)):
        weight = nn.Parameter(empty((40, 30, 3, 2), dtype, order))
        assert draw(weight, generator=Generator(0), **options) is weight and weight.version == [1]
        found.append(np.array(weight.detach()).astype(np.float32))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    root = math.sqrt(found[0].size)
    assert abs(found[0].mean()) < 5 * std / root and found[0].std() == pytest.approx(std, rel=5 / root)
    if "uniform" in name:
        assert np.abs(found[0]).max() <= np.float32(math.sqrt(3) * std)
    twice = []
    for seed in (5, 5, 6):
        minigrad.manual_seed(seed)
        twice.append(np.array(draw(weight, **options).detach()))
    assert np.array_equal(twice[0], twice[1]) and not np.array_equal(twice[0], twice[2])


def test_values_of_initialisers():
    weight = nn.init.trunc_normal_(Tensor(empty((100, 80))), mean=1, std=2, a=-1, b=2, generator=Generator(0))
    assert -1 <= weight.array.min() < -0.99 and 1.99 < weight.array.max() <= 2
    assert set(nn.init.uniform_(Tensor(empty((80,))), -3, -1).array.astype(int)) == {-2, -1}
    for shape in ((3, 3), (2, 5), (4, 2, 3), (0, 3)):
        matrix = nn.init.orthogonal_(Tensor(np.ones(shape)), gain=1.5).array.reshape(shape[0], math.prod(shape[1:]))
        small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
        np.testing.assert_allclose(small, 1.5**2 * np.eye(len(small)), atol=1e-12)
    other, large = np.random.Generator(np.random.Philox(7)), Tensor(empty((300, 64, 3, 3), "float32", FILTER))
    nn.init.normal_(large, 0.25, 1.5, Generator(7))  # drawn in runs, in logical order
    assert (large.array == (0.25 + 1.5 * other.standard_normal(large.shape)).astype(np.float32)).all()
    assert nn.init.ones_(large).array.all() and nn.init.constant_(large, 2.5).array.min() == 2.5


def test_layers_start_anew():
    model = network()
    nn.init.zeros_(model[0].weight), nn.init.zeros_(model[1].norm.weight), model(image(2, 1, 8, 8))
    for layer in model.modules():
        getattr(layer, "reset_parameters", int)()
    assert model[0].weight.array.all() and same(values(model[1].norm), values(network()[1].norm))


# ---- the summary -----------------------------------------------------------------------------------------------------


def test_summary_of_lenet():
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    made = nn.summary(model, (2, 1, 32, 32))
    assert [row.shape for row in made.rows][:4] == [(2, 6, 28, 28), (2, 6, 28, 28), (2, 6, 14, 14), (2, 16, 10, 10)]
    # By hand: filters * (taps + 1), rows * (columns + 1); outputs times the products that each sums.
    counts = {row.path: (row.parameters, row.macs) for row in made.rows if row.parameters}
    assert counts["0"] == (6 * (25 + 1), 2 * 6 * 28 * 28 * 25) and counts["11"] == (10 * 85, 2 * 840)
    assert made.parameters == made.trainable == 61_706 and made.rows[0].nbytes == 2 * 6 * 28 * 28 * 4
    text = str(made)
    assert "Sequential, input (2, 1, 32, 32), 61,706 of 61,706 parameters trainable" in text
    assert "3      Conv2d     (2, 16, 10, 10)       2,416        480,000" in text
    assert text.splitlines()[-1].split() == ["total", "61,706", "833,040", "120,016"]
    made = nn.summary(nn.Sequential(nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 6, 5, 2, groups=2)), (3, 2, 9))
    assert [row.macs for row in made.rows] == [3 * 4 * 7 * 2 * 3, 3 * 4 * 7 * 3 * 5]


def test_summary_leaves_the_network_as_it_was():
    model = nn.Sequential(Block(2), nn.Dropout(0.5), Tied())
    model[0].eval(), model.requires_grad_(False)
    facts = lambda: ([module.training for module in model.modules()], minigrad.default_generator.get_state())
    before, known = values(model), facts()
    with pytest.raises(ValueError, match="linear"):
        nn.summary(model, (1, 2, 4, 3))
    made = nn.summary(model, (1, 2, 4, 4))
    assert [row.path for row in made.rows] == ["0.conv", "0.norm", "1", "2.first", "2.second"]
    assert made.rows[-1].parameters == 4  # the weight counts where it was met first
    assert made.parameters == 2 * (18 + 1) + 4 + 20 and made.trainable == 0
    assert same(values(model), before) and facts() == known
    assert not any(module._hooks for module in model.modules())
