"""Layers: what they refuse, how they start, what the summary says of them."""

import collections
import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.device import Generator, empty
from minigrad_kernels.layout import FILTER, is_dense
from tests.test_nn import Block, Tied, image, network, same, values

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
    with pytest.raises(IndexError, match="Sequential: index is 3, but there are 3 layers"):
        model[3]
    with pytest.raises(TypeError, match="add_module: 0 is a function"):
        nn.Sequential(lambda x: x)
    named = nn.Sequential(collections.OrderedDict(conv=nn.Conv2d(1, 2, 3), act=nn.ReLU()))
    assert list(named.state_dict()) == ["conv.weight", "conv.bias"] and named.act is named[1]
    assert nn.Sequential()(5) == 5


REFUSED = [
    (lambda: nn.Linear(2.0, 3), TypeError, "Linear: in_features is 2.0, wanted an integer"),
    (lambda: nn.Linear(2, -1), ValueError, "Linear: out_features is -1, wanted at least 0"),
    (lambda: nn.Linear(2, 3, dtype="int64"), TypeError, "Linear: dtype is int64, wanted a floating one"),
    (lambda: nn.Conv2d(0, 1, 3), ValueError, "Conv2d: in_channels is 0"),
    (lambda: nn.Conv2d(1, 1, 0), ValueError, "Conv2d: kernel_size is 0"),
    (lambda: nn.Conv2d(1, 1, (3, 3, 3)), TypeError, "Conv2d: kernel_size is (3, 3, 3), wants an integer or a pair"),
    (lambda: nn.Conv2d(1, 1, 3, stride=0), ValueError, "Conv2d: stride is 0"),
    (lambda: nn.Conv2d(1, 1, 3, padding=-1), ValueError, "Conv2d: padding is -1"),
    (lambda: nn.Conv2d(1, 1, 3, padding="some"), ValueError, "Conv2d: padding is 'some', wanted 'valid' or 'same'"),
    (lambda: nn.Conv2d(1, 1, 3, 2, "same"), ValueError, "Conv2d: padding is 'same' and stride (2, 2), wanted stride 1"),
    (lambda: nn.Conv2d(4, 6, 3, groups=4), ValueError, "Conv2d: out_channels is 6, wanted a multiple of groups=4"),
    (lambda: nn.Conv2d(1, 1, 3, padding_mode="reflect"), ValueError, "Conv2d: padding_mode is 'reflect'"),
    (lambda: nn.MaxPool2d(2, padding=2), ValueError, "MaxPool2d: padding is 2, wanted at most half of kernel_size 2"),
    (lambda: nn.MaxPool2d(2, return_indices=True), ValueError, "MaxPool2d: return_indices is True"),
    (lambda: nn.MaxPool2d(2, dilation=0), ValueError, "MaxPool2d: dilation is 0"),
    (lambda: nn.AvgPool2d(2, divisor_override=0), ValueError, "AvgPool2d: divisor_override is 0"),
    (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), TypeError, "AdaptiveAvgPool2d: output_size is (1, 2, 3)"),
    (lambda: nn.AdaptiveAvgPool2d(0), ValueError, "AdaptiveAvgPool2d: output_size is (0, 0), wants at least 1"),
    (lambda: nn.BatchNorm2d(3, eps=-1), ValueError, "BatchNorm2d: eps is -1"),
    (lambda: nn.BatchNorm2d(3, momentum=2.0), ValueError, "BatchNorm2d: momentum is 2.0, wanted a number from 0 to 1"),
    (lambda: nn.Dropout(1.5), ValueError, "Dropout: p is 1.5"),
    (lambda: nn.Dropout("0.5"), TypeError, "Dropout: p is '0.5', wanted a number"),
    (lambda: nn.Softmax("1"), TypeError, "Softmax: dim is '1', wanted an integer"),
    (lambda: nn.CrossEntropyLoss(reduction="max"), ValueError, "CrossEntropyLoss: reduction is 'max'"),
    (lambda: nn.CrossEntropyLoss(label_smoothing=2), ValueError, "CrossEntropyLoss: label_smoothing is 2"),
    (lambda: nn.NLLLoss([1.0]), TypeError, "NLLLoss: weight is a list, wanted a Tensor or None"),
]


@pytest.mark.parametrize("make, error, text", REFUSED, ids=[text for *_, text in REFUSED])
def test_layers_refuse(make, error, text):
    state = minigrad.default_generator.get_state()
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value) and isinstance(caught.value, minigrad.MinigradError)
    assert minigrad.default_generator.get_state() == state


def test_dropout_only_in_training():
    layer, x = nn.Dropout(0.5), Tensor(np.ones(10_000, np.float32))
    out = np.array(layer(x))
    assert set(np.unique(out)) == {0.0, 2.0} and abs(out.mean() - 1) < 0.05  # five standard deviations
    assert layer.eval()(x) is x


def test_batch_norm_refuses_and_stays_as_it_was():
    layer = nn.BatchNorm2d(3)
    before = values(layer)
    for shape in ((4, 2, 5, 5), (4, 3), (1, 3, 1, 1)):
        with pytest.raises(ValueError):
            layer(image(*shape))
    assert same(values(layer), before)
    layer(image(4, 3, 5, 5))
    layer.reset_parameters()
    assert same(values(layer), before)


def test_functional_names_are_the_ops():
    assert nn.functional.conv2d is minigrad.ops.conv2d
    assert all(hasattr(nn.functional, name) for name in nn.functional.__all__)


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
}


@pytest.mark.parametrize("name", SPREADS)
def test_spread_of_initialisers(name):
    options, std = SPREADS[name]
    weight = nn.Parameter(empty((40, 30, 3, 2), "float32", FILTER))
    assert getattr(nn.init, name)(weight, generator=Generator(0), **options) is weight
    array = np.array(weight.detach())
    assert weight.version == [1] and is_dense(weight.data, FILTER)
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


def test_initialisers_refuse():
    vector, matrix = Tensor(np.zeros(3, np.float32)), Tensor(np.zeros((3, 3), np.float32))
    for name in ("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"):
        with pytest.raises(ValueError, match=f"{name}: tensor has shape \\(3,\\), wanted at least two"):
            getattr(nn.init, name)(vector)
    with pytest.raises(ValueError, match="mode is 'fan'"):
        nn.init.kaiming_normal_(matrix, mode="fan")
    with pytest.raises(ValueError, match="nonlinearity is 'cube'"):
        nn.init.kaiming_normal_(matrix, nonlinearity="cube")
    with pytest.raises(ValueError, match="uniform_: a is 1 and b 0"):
        nn.init.uniform_(matrix, 1, 0)
    with pytest.raises(ValueError, match="normal_: std is -1"):
        nn.init.normal_(matrix, std=-1)
    with pytest.raises(RuntimeError, match="normal_: the Tensor was made by mul"):
        nn.init.normal_(nn.Parameter(matrix) * 2)
    assert matrix.version == [0] and not matrix.data.any()


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
    assert made._repr_html_().count("<tr>") == 14 and "<td>61,706</td>" in made._repr_html_()


def test_summary_leaves_the_network_as_it_was():
    model = nn.Sequential(Block(2), nn.Dropout(0.5), Tied())
    model[0].eval()
    model.requires_grad_(False)
    before, modes = values(model), [module.training for module in model.modules()]
    with pytest.raises(ValueError, match="linear"):
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
