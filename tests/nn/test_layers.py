"""Layers: what they refuse, how they start, what the summary says of them."""

import collections
import copy
import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.device import Generator, empty
from minigrad_kernels.layout import FILTER, is_dense
from tests.nn.test_nn import Block, Tied, image, network, same, values

# ---- layers ----------------------------------------------------------------------------------------------------------


def test_sequential():
    layers = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)]
    model = nn.Sequential(*layers)
    assert len(model) == 3 and list(model) == layers and model[-1] is layers[2]
    assert [name for name, _ in model[1:].named_children()] == ["1", "2"]
    model[1] = nn.Tanh()
    assert isinstance(model[1], nn.Tanh) and [name for name, _ in model.named_children()] == ["0", "1", "2"]
    del model[0]
    assert [name for name, _ in model.named_children()] == ["0", "1"]
    assert model.append(nn.ReLU()) is model and len(model) == 3
    named = nn.Sequential(collections.OrderedDict(conv=nn.Conv2d(1, 2, 3), act=nn.ReLU()))
    assert list(named.state_dict()) == ["conv.weight", "conv.bias"] and named.act is named[1]
    assert nn.Sequential()(5) == 5


def test_lists_of_layers():
    layers = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)]
    listed = nn.ModuleList(layers)
    assert len(listed) == 3 and list(listed) == layers and listed[-1] is layers[2] and listed[1:][0] is layers[1]
    assert [name for name, _ in listed.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    del listed[0], listed[:1]
    assert list(listed) == [layers[2]] and [name for name, _ in listed.named_children()] == ["0"]
    listed += [tanh := nn.Tanh()]
    listed[0] = layers[0]
    assert list(listed) == [layers[0], tanh]
    assert listed.extend(listed) is listed and len(listed) == 4
    with pytest.raises(NotImplementedError, match="ModuleList: forward is not defined"):
        listed(1)


def test_dictionaries_of_layers():
    relu, linear = nn.ReLU(), nn.Linear(2, 3)
    named = nn.ModuleDict({"a": relu, "b": linear})
    assert named["a"] is relu and list(named) == ["a", "b"] == list(named.keys()) and len(named) == 2
    assert list(named.values()) == [relu, linear] and dict(named.items()) == {"a": relu, "b": linear}
    assert "a" in named and "c" not in named and named.b is linear
    named.update([("c", nn.Tanh()), ["a", linear]])
    assert named in {named} and named != nn.ModuleDict(named) and named.get("x") is None
    named["d"] = relu
    named.update(nn.ModuleDict({"e": relu}))
    assert named["a"] is linear and list(named) == ["a", "b", "c", "d", "e"]
    assert named.pop("c")(Tensor([0.0])).item() == 0 and "c" not in named
    del named["d"]
    named.clear()
    assert not list(named) and not list(named.parameters())


def test_lists_of_parameters():
    first = nn.Parameter(np.ones((2, 3), np.float32))
    listed = nn.ParameterList([first, Tensor(np.zeros(2, np.float32))])
    assert listed[0] is first and isinstance(listed[1], nn.Parameter) and len(listed) == 2
    assert [name for name, _ in listed.named_parameters()] == ["0", "1"] and list(listed[:1]) == [first]
    assert listed.append(first) is listed and len(listed) == 3 and listed[-1] is first
    listed += [first]
    listed[1] = first
    assert list(listed) == [first] * 4 and len(list(listed.parameters())) == 1
    text = "ParameterList(\n  (0): Parameter of shape (2, 3), float32\n  (1): Parameter of shape (2, 3), float32\n)"
    assert repr(listed[:2]) == text


def test_parts_by_name():
    model = nn.Sequential(nn.ReLU(), Block(2))
    assert model.get_submodule("") is model and model.get_submodule("1.norm") is model[1].norm
    with pytest.raises(AttributeError, match="has no attribute 'pool'"):
        model.get_submodule("1.pool")
    model.add_module("last", nn.Tanh())
    assert model.last is model[2]
    with pytest.raises(TypeError, match="does not support item assignment"):  # it would be no attribute
        model._modules["last"] = nn.ReLU()


def test_dropout_only_in_training():
    layer, x = nn.Dropout(0.5), Tensor(np.ones(10_000, np.float32))
    out = np.array(layer(x))
    assert set(np.unique(out)) == {0.0, 2.0} and abs(out.mean() - 1) < 0.05  # five standard deviations
    assert layer.eval()(x) is x


@pytest.mark.parametrize("name, shape", [("Dropout1d", (50, 20, 3)), ("Dropout2d", (50, 20, 3, 2))])
def test_dropout_of_whole_channels(name, shape):
    layer, x = getattr(nn, name)(0.25), Tensor(np.ones(shape, np.float32))
    channels = np.array(layer(x)).reshape(1000, -1)
    assert np.all(channels == channels[:, :1])
    assert abs((channels[:, 0] == 0).mean() - 0.25) < 0.07  # five standard deviations
    assert layer.eval()(x) is x


def test_filters_lie_as_the_kernels_want_them():
    for layer in (nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3)):
        assert is_dense(layer.weight.array, FILTER)
    for layer in (nn.Conv1d(3, 4, 5), nn.ConvTranspose1d(3, 4, 5)):
        assert is_dense(minigrad.ops.unsqueeze(layer.weight, 2).array, FILTER)
    assert nn.LayerNorm((2, 3, 4, 5)).weight.array.flags.c_contiguous


def test_types_and_devices_of_new_layers():
    for make in (
        lambda **kw: nn.Linear(2, 3, **kw),
        lambda **kw: nn.Conv1d(2, 3, 1, **kw),
        lambda **kw: nn.ConvTranspose2d(2, 3, 1, **kw),
        lambda **kw: nn.BatchNorm1d(2, **kw),
        lambda **kw: nn.InstanceNorm2d(2, affine=True, **kw),
        lambda **kw: nn.LayerNorm(2, **kw),
        lambda **kw: nn.GroupNorm(1, 2, **kw),
        lambda **kw: nn.Embedding(2, 3, **kw),
    ):
        for dtype in ("float32", np.float64):
            layer = make(device="cpu", dtype=dtype)
            assert {x.dtype for x in (*layer.parameters(), *layer.buffers())} - {np.dtype("int64")} == {np.dtype(dtype)}


def test_layers_may_be_extended():
    class Scaled(nn.Linear):
        def __init__(self, size, scale):
            super().__init__(size, size, bias=False)
            self.scale = scale

        def forward(self, input):
            return super().forward(input) * self.scale

    class Leaky(nn.LeakyReLU):
        negative_slope: float = 0.5

    layer, x = Scaled(3, 2.0), image(2, 3)
    assert np.allclose(layer(x).detach(), 2 * (x @ layer.weight.T).detach())
    assert Leaky()(Tensor([-1.0])).item() == -0.5
    assert repr(Leaky(0.25, True)) == "Leaky(negative_slope=0.25, inplace=True)"
    loss = copy.deepcopy(nn.BCEWithLogitsLoss(pos_weight=Tensor([2.0])))
    assert [name for name, _ in loss.named_buffers()] == ["pos_weight"] and not list(loss.parameters())


# ---- first values ----------------------------------------------------------------------------------------------------


def test_default_bounds():
    for layer, fan_in in ((nn.Linear(50, 400), 50), (nn.Conv2d(8, 40, (3, 5), groups=2), 4 * 15)):
        for parameter in (layer.weight, layer.bias):
            array = np.array(parameter.detach())
            assert np.abs(array).max() <= np.float32(1 / math.sqrt(fan_in))
        weight = np.array(layer.weight.detach())
        assert weight.max() > 0.99 / math.sqrt(fan_in) and weight.min() < -0.99 / math.sqrt(fan_in)
        assert weight.std() == pytest.approx(1 / math.sqrt(3 * fan_in), rel=0.05)


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
def test_spread_of_initialisers(name):
    options, std = SPREADS[name]
    weight = nn.Parameter(empty((40, 30, 3, 2), "float32", FILTER))
    assert getattr(nn.init, name)(weight, generator=Generator(0), **options) is weight
    array = np.array(weight.detach())
    assert weight.version == [1] and is_dense(weight.array, FILTER)
    count = array.size
    assert abs(array.mean()) < 5 * std / math.sqrt(count)
    assert array.std() == pytest.approx(std, rel=5 / math.sqrt(count))
    if "uniform" in name:
        assert np.abs(array).max() <= np.float32(math.sqrt(3) * std)


@pytest.mark.parametrize("name", SPREADS)
def test_draws_depend_on_neither_layout_nor_type(name):
    arrays = []
    for dtype, order in (("float32", None), ("float32", FILTER), ("float64", FILTER)):
        weight = Tensor(empty((6, 5, 3, 2), dtype, order))
        arrays.append(np.array(getattr(nn.init, name)(weight, generator=Generator(3))))
    assert np.array_equal(arrays[0], arrays[1]) and np.array_equal(arrays[0], arrays[2].astype(np.float32))


def test_truncated_numbers_stay_inside():
    weight = nn.init.trunc_normal_(Tensor(empty((100, 80))), mean=1, std=2, a=-1, b=2, generator=Generator(0))
    assert -1 <= weight.array.min() < -0.99 and 1.99 < weight.array.max() <= 2
    low, high = -1.0, 0.5  # the range in standard deviations
    density = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    inside = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    assert weight.array.mean() == pytest.approx(1 + 2 * (density(low) - density(high)) / inside, abs=0.05)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (6, 2), (4, 2, 3), (1, 4), (0, 3), (3, 0)])
def test_orthogonal_rows_or_columns(shape):
    weight = nn.init.orthogonal_(Tensor(np.ones(shape)), gain=1.5)
    matrix = weight.array.reshape(shape[0], math.prod(shape[1:]))
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, 1.5**2 * np.eye(len(small)), atol=1e-12)


def test_constants_and_the_default_generator():
    weight = Tensor(empty((2, 3), "float32"))
    assert nn.init.ones_(weight).tolist() == [[1] * 3] * 2
    assert nn.init.zeros_(weight).tolist() == [[0] * 3] * 2
    assert nn.init.constant_(weight, 2.5).tolist() == [[2.5] * 3] * 2
    minigrad.manual_seed(5)
    first = values(network())
    minigrad.manual_seed(5)
    assert same(values(network()), first)
    assert not same(values(network()), first)


@pytest.mark.parametrize("shape", [(300, 64, 3, 3), (3, 200_000), (200_001,), (0, 4), ()])
def test_numbers_are_those_of_one_draw_in_logical_order(shape):
    """Also where they are drawn in runs, and whatever the layout."""
    source, other = Generator(7), np.random.Generator(np.random.Philox(7))
    order = FILTER if len(shape) == 4 else None
    for name, (first, second), draw in (
        ("uniform_", (-0.3, 0.7), lambda: -0.3 + (0.7 - -0.3) * other.random(shape)),
        ("normal_", (0.25, 1.5), lambda: 0.25 + 1.5 * other.standard_normal(shape)),
    ):
        tensor = Tensor(empty(shape, np.float32, order))
        getattr(nn.init, name)(tensor, first, second, source)
        assert (tensor.array == np.asarray(draw()).astype(np.float32)).all()


# ---- the summary -----------------------------------------------------------------------------------------------------


def lenet():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def test_summary_of_lenet():
    made = nn.summary(lenet(), (2, 1, 32, 32))
    rows = {row.path: row for row in made.rows}
    assert [row.path for row in made.rows] == [str(i) for i in range(12)]
    assert [row.shape for row in made.rows][:4] == [(2, 6, 28, 28), (2, 6, 28, 28), (2, 6, 14, 14), (2, 16, 10, 10)]
    # By hand: filters * (taps + 1), rows * (columns + 1); outputs times the products that each sums.
    assert rows["0"].parameters == 6 * (25 + 1) and rows["3"].parameters == 16 * (150 + 1)
    assert rows["7"].parameters == 120 * 401 and rows["9"].parameters == 84 * 121 and rows["11"].parameters == 10 * 85
    assert rows["0"].macs == 2 * 6 * 28 * 28 * 25 and rows["3"].macs == 2 * 16 * 10 * 10 * 150
    assert rows["7"].macs == 2 * 48000 and rows["11"].macs == 2 * 840 and rows["1"].macs == 0
    assert rows["0"].nbytes == 2 * 6 * 28 * 28 * 4
    assert made.parameters == made.trainable == 61_706 and made.macs == 2 * 416_520
    text = str(made)
    assert "Sequential, input (2, 1, 32, 32), 61,706 of 61,706 parameters trainable" in text
    assert "3      Conv2d     (2, 16, 10, 10)       2,416        480,000" in text
    assert text.splitlines()[-1].split() == ["total", "61,706", "833,040", "120,016"]


def test_multiply_adds_of_transposes_and_sequences():
    made = nn.summary(nn.Sequential(nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 6, 5, 2, groups=2)), (3, 2, 9))
    assert [row.shape for row in made.rows] == [(3, 4, 7), (3, 6, 17)]
    assert [row.macs for row in made.rows] == [3 * 4 * 7 * 2 * 3, 3 * 4 * 7 * 3 * 5]


def test_summary_leaves_the_network_as_it_was():
    model = nn.Sequential(Block(2), nn.Dropout(0.5), Tied())
    model[0].eval()
    model.requires_grad_(False)
    before, modes = values(model), [module.training for module in model.modules()]
    with pytest.raises(ValueError, match=r"summary: input_shape \(1, 2, 4, 3\) does not fit; .*batch.*linear"):
        nn.summary(model, (1, 2, 4, 3))
    state = minigrad.default_generator.get_state()
    made = nn.summary(model, (1, 2, 4, 4))
    assert [row.path for row in made.rows] == ["0.conv", "0.norm", "1", "2.first", "2.second"]
    assert made.rows[-1].parameters == 4  # the weight counts where it was met first
    assert made.parameters == 2 * (18 + 1) + 4 + 20 and made.trainable == 0
    assert same(values(model), before) and [module.training for module in model.modules()] == modes
    assert not any(module._hooks for module in model.modules())
    assert minigrad.default_generator.get_state() == state


def test_summary_of_layers_called_twice_or_not_at_all():
    class Twice(nn.Module):
        def __init__(self):
            self.layer, self.idle = nn.Linear(3, 3), nn.Linear(3, 5)
            self.gain = nn.Parameter(np.ones(3))

        def forward(self, x):
            return self.layer(self.layer(x)) * self.gain

    made = nn.summary(Twice().double(), (1, 3))
    assert [(row.path, row.parameters, row.macs) for row in made.rows] == [
        ("layer", 12, 9),
        ("layer", 0, 9),
        ("Twice", 3, 0),
        ("idle", 20, 0),
    ]
    assert made.rows[-1].shape is None and made.rows[0].nbytes == 24 and made.parameters == 35
