"""The page of differences from PyTorch: what its first table says of minigrad, where no other test shows it."""

import functools
import re

import ml_dtypes
import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, ops, optim, parallel


def refuses(error, words, *calls):
    """Each call is refused in these words."""
    for call in calls:
        with pytest.raises(error, match=re.escape(words)):
            call()


def test_results_are_values():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = old = x * 2
    y += 1
    assert old.tolist() == [2, 4] and y.tolist() == [3, 5]
    refuses(RuntimeError, "input was made by add", lambda: y.add_(1), lambda: y.__setitem__(0, 1))
    refuses(TypeError, "out", lambda: ops.add(x, x, out=x))


def test_arrays_and_types():
    array = np.ones(2)
    assert Tensor(array).array is array and Tensor([1.5]).dtype == np.float32
    assert minigrad.ones(2).device == "cpu" and minigrad.ones(2, device="interpreter").device == "interpreter"
    assert minigrad.ones(2, dtype="bfloat16").dtype == minigrad.bfloat16 == ml_dtypes.bfloat16


def test_updates_of_data_are_noticed():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y, z = (x * x).sum(), (x * x).sum()
    x.data += 1
    refuses(RuntimeError, "was changed after it was used", y.backward)
    x.data = np.zeros(2, np.float32)
    refuses(RuntimeError, "was changed after it was used", z.backward)


def test_steps_of_16_bits_are_not_rounded():
    """The weight decay is too small to be seen in the gradient, 1 + 2^-9, but not in what is left of the parameter."""
    p = nn.Parameter(np.ones(1, minigrad.bfloat16))
    p.grad = minigrad.ones(1, dtype="bfloat16")
    optim.SGD([p], lr=1.0, weight_decay=2**-9).step()
    assert p.detach().float().tolist() == [-(2**-9)]
    refuses(BufferError, "call .float()", lambda: np.from_dlpack(minigrad.ones(1, dtype="bfloat16")))


def test_images_and_filters_lie_channels_last():
    layer = nn.Conv2d(3, 4, 3)
    out = layer(minigrad.ones(2, 3, 8, 8)).detach()
    assert out.shape == (2, 4, 6, 6) and out.array.strides[1] == out.dtype.itemsize
    assert layer.weight.shape == (4, 3, 3, 3) and layer.weight.array.strides[0] == 4
    assert np.array_equal(out.view(2, -1).array, out.array.reshape(2, -1))


def test_errors_are_pythons():
    for error in (ValueError, TypeError, IndexError, RuntimeError, KeyError):
        assert any(issubclass(one, error) for one in minigrad.MinigradError.__subclasses__())


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_indices_have_any_integer_type(dtype):
    x, one = Tensor([[1.0, 2.0]]), minigrad.ones(1, dtype=dtype)
    assert ops.nll_loss(x, one).item() == -2 and ops.gather(x, 1, one[None]).tolist() == [[2]]
    assert ops.embedding(one, x.T).tolist() == [[2]] and ops.one_hot(one).tolist() == [[0, 1]]


def test_arguments():
    x, target = minigrad.ones(2, 3), Tensor(np.array([0, 1]))
    assert ops.maximum(Tensor([-1.0, 1.0]), 0).tolist() == [0, 1] and ops.exp(0.0).item() == 1
    assert Tensor([1.0, 2.0, 3.0])[::-1].tolist() == [3, 2, 1]
    assert ops.reshape(x, -1).shape == (6,) and minigrad.full(2, 1.0).shape == (2,) and ops.tile(x, 2).shape == (2, 6)
    refuses(TypeError, "positional", lambda: ops.cross_entropy(x, target, None, None, -100), lambda: nn.MSELoss("sum"))
    refuses(TypeError, "dim", lambda: ops.softmax(x), lambda: ops.log_softmax(x), nn.Softmax, nn.LogSoftmax)
    negative = Tensor([-1.0])
    assert nn.ReLU(inplace=True)(negative).item() == 0 and negative.item() == -1
    refuses(TypeError, "norm: p is 'nuc'", lambda: ops.norm(x, "nuc"))
    for mode in ("area", "bicubic", "trilinear", "nearest-exact"):
        refuses(ValueError, "interpolate: mode", lambda mode=mode: nn.Upsample(2, mode=mode)(minigrad.ones(1, 1, 4, 4)))


def test_arguments_that_are_not_built_are_absent():
    index, x = Tensor(np.array([[0]])), minigrad.ones(1, 1, 2, 2)
    for call, option in (
        (lambda **given: ops.embedding(index, x[0, 0], **given), "max_norm"),
        (lambda **given: nn.Embedding(2, 3, **given), "sparse"),
        (lambda **given: ops.interpolate(x, size=2, **given), "antialias"),
        (lambda **given: ops.max_pool2d(x, 2, **given), "return_indices"),
        (lambda **given: ops.add(x, x, **given), "alpha"),
        (lambda **given: ops.mse_loss(x, x, **given), "size_average"),
    ):
        refuses(TypeError, option, functools.partial(call, **{option: 1.0}))


def test_optimisers_and_schedules():
    params = [minigrad.ones(2, requires_grad=True)]
    assert optim.SGD(params, lr=0.1, foreach=True, fused=True).defaults.keys() == optim.SGD(params).defaults.keys()
    for option in ("capturable", "differentiable"):
        refuses(TypeError, option, lambda option=option: optim.SGD(params, lr=0.1, **{option: True}))
    optimizer = optim.SGD(params, lr=Tensor(np.array(0.1)), momentum=0.9)
    assert type(optimizer.param_groups[0]["lr"]) is float
    assert optim.Muon([minigrad.ones(2, 1, 3, 3)])
    refuses(TypeError, "cycle", lambda: optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 4, cycle_momentum=True))
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)
    schedule.step()
    assert optimizer.param_groups[0]["momentum"] == 0.9
    assert schedule.state_dict().keys() == {"schedule", "last_epoch", "base_lrs", "own_lrs"}
    refuses(TypeError, "last_epoch", lambda: optim.lr_scheduler.ExponentialLR(optimizer, 0.5, last_epoch=2))


def test_training_on_many_has_other_names():
    def run(world):
        model = parallel.DataParallel(nn.ModuleDict({"used": nn.Linear(2, 3), "unused": nn.Linear(2, 3)}), world)
        assert list(model.state_dict()) == ["used.weight", "used.bias", "unused.weight", "unused.bias"]
        (model.module["used"](Tensor([[1.0, 2.0]])).sum() * (world.rank + 1)).backward()
        assert model.module["used"].bias.grad.tolist() == [1.5] * 3
        assert model.module["unused"].bias.grad.tolist() == [0.0] * 3

    parallel.run_local(run, 2)
