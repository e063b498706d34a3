"""The page of differences from PyTorch: every row of its table is shown here by a test of the same words."""

import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, ops, optim

PAGE = Path(__file__).resolve().parents[1] / "examples" / "docs" / "differences.md"
SHOWN = {}


def shows(row):
    """The decorated function asserts the row of the page that begins with these words."""

    def note(function):
        SHOWN[row] = function
        return function

    return note


@shows("Tensors")
def values_are_not_changed():
    x = Tensor([1.0, 2.0])
    with pytest.raises(TypeError):
        x[0] = 3.0
    old = x
    x += 1
    assert old.tolist() == [1, 2] and x.tolist() == [2, 3]
    assert not any(hasattr(x, name) for name in ("add_", "relu_", "zero_"))


@shows("`Tensor(array)`")
def arrays_are_taken_as_they_are():
    array = np.ones(2)
    assert Tensor(array).data is array and Tensor(array).dtype == np.float64
    assert Tensor([1.5]).dtype == np.float32


@shows("element types")
def element_types_are_those_of_numpy():
    x = minigrad.ones(2, dtype="float64")
    assert x.dtype == np.float64 and isinstance(x.dtype, np.dtype)
    with pytest.raises(TypeError, match="complex64"):
        x.to("complex64")


@shows("devices")
def there_is_the_cpu():
    with pytest.raises(RuntimeError, match="devices of this machine are: 'cpu'"):
        minigrad.ones(2, device="cuda")


@shows("memory")
def images_and_filters_lie_channels_last():
    layer = nn.Conv2d(3, 4, 3)
    out = layer(minigrad.ones(2, 3, 8, 8))
    assert out.shape == (2, 4, 6, 6) and out.data.strides[1] == out.dtype.itemsize
    assert layer.weight.shape == (4, 3, 3, 3) and layer.weight.data.strides[0] == 4


@shows("subscripts")
def steps_may_be_negative():
    assert Tensor([1.0, 2.0, 3.0])[::-1].tolist() == [3, 2, 1]


@shows("a size")
def one_size_may_stand_alone():
    x = minigrad.ones(2, 3)
    assert ops.reshape(x, -1).shape == (6,) and minigrad.full(2, 1.0).shape == (2,)


@shows("classes out of range")
def classes_out_of_range_are_named():
    with pytest.raises(ValueError, match=r"target\[1\] = 3, but there are 3 classes"):
        ops.cross_entropy(minigrad.ones(2, 3), Tensor(np.array([0, 3])))


@shows("losses")
def options_of_losses_go_by_name():
    x, target = minigrad.ones(2, 3), Tensor(np.array([0, 1]))
    with pytest.raises(TypeError):
        ops.cross_entropy(x, target, None, None, -100)
    with pytest.raises(TypeError):
        ops.mse_loss(x, x, size_average=True)


@shows("`softmax`")
def softmax_wants_a_dimension():
    with pytest.raises(TypeError, match="dim"):
        ops.softmax(minigrad.ones(2, 3))
    with pytest.raises(TypeError, match="dim"):
        nn.Softmax()


@shows("`inplace=`")
def inplace_changes_nothing():
    x = Tensor([-1.0])
    assert nn.ReLU(inplace=True)(x).item() == 0 and x.item() == -1


@shows("`norm`")
def norms_are_of_vectors():
    with pytest.raises(ValueError, match="norm: p is 'nuc'"):
        ops.norm(minigrad.ones(2, 2), "nuc")


@shows("`embedding`")
def embeddings_are_dense_and_keep_their_weights():
    index, weight = Tensor(np.array([0])), minigrad.ones(2, 3)
    for option in ({"max_norm": 1.0}, {"sparse": True}):
        with pytest.raises(minigrad.MinigradError, match=f"embedding: {next(iter(option))}"):
            ops.embedding(index, weight, **option)


@shows("optimisers")
def optimisers_have_one_way_to_run():
    for option in ("foreach", "fused", "capturable", "differentiable"):
        with pytest.raises(TypeError, match=option):
            optim.SGD([minigrad.ones(2, requires_grad=True)], lr=0.1, **{option: True})


@shows("`OneCycleLR`")
def one_cycle_leaves_momentum_alone():
    optimizer = optim.SGD([minigrad.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)
    for _ in range(3):
        schedule.step()
        assert optimizer.param_groups[0]["momentum"] == 0.9


def rows():
    """The first cells of the table."""
    return re.findall(r"^\| (?!where)(.+?) \|.+\|.+\|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("row", rows())
def test_difference(row):
    (shown,) = (function for words, function in SHOWN.items() if row.startswith(words))
    shown()


def test_every_difference_is_on_the_page():
    missing = [words for words in SHOWN if not any(row.startswith(words) for row in rows())]
    assert not missing, missing
    assert len(rows()) >= len(SHOWN)
