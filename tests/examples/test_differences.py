"""The page of differences from PyTorch: what its first table says of minigrad, where no other test shows it."""

import re
import subprocess
import sys

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, gradcheck, gradgradcheck, nn, ops, optim, primitive


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
    array = np.ones(2)
    assert Tensor(array).array is array and Tensor([1.5]).dtype == np.float32


def test_steps_of_16_bits_are_not_rounded():
    """The weight decay is too small to be seen in the gradient, 1 + 2^-9, but not in what is left of the parameter."""
    p = nn.Parameter(np.ones(1, minigrad.bfloat16))
    p.grad = minigrad.ones(1, dtype="bfloat16")
    optim.SGD([p], lr=1.0, weight_decay=2**-9).step()
    assert p.detach().float().tolist() == [-(2**-9)]


def test_images_and_filters_lie_channels_last():
    layer = nn.Conv2d(3, 4, 3)
    out = layer(minigrad.ones(2, 3, 8, 8)).detach()
    assert out.shape == (2, 4, 6, 6) and out.array.strides[1] == out.dtype.itemsize
    assert layer.weight.shape == (4, 3, 3, 3) and layer.weight.array.strides[0] == 4
    assert np.array_equal(out.view(2, -1).array, out.array.reshape(2, -1))


def test_indices_have_any_integer_type():
    for dtype in ("int8", "int16", "int32", "int64", "uint8"):
        x, one = Tensor([[1.0, 2.0]]), minigrad.ones(1, dtype=dtype)
        assert ops.nll_loss(x, one).item() == -2 and ops.gather(x, 1, one[None]).tolist() == [[2]]
        assert ops.embedding(one, x.T).tolist() == [[2]] and ops.one_hot(one).tolist() == [[0, 1]]


def test_arguments():
    x, target, params = minigrad.ones(2, 3), Tensor(np.array([0, 1])), [minigrad.ones(2, requires_grad=True)]
    assert ops.reshape(x, -1).shape == (6,) and minigrad.full(2, 1.0).shape == (2,) and ops.tile(x, 2).shape == (2, 6)
    refuses(TypeError, "positional", lambda: ops.cross_entropy(x, target, None, None, -100), lambda: nn.MSELoss("sum"))
    refuses(TypeError, "dim", lambda: ops.softmax(x), lambda: ops.log_softmax(x), nn.Softmax, nn.LogSoftmax)
    refuses(TypeError, "sparse", lambda: nn.Embedding(2, 3, sparse=True))
    refuses(TypeError, "capturable", lambda: optim.SGD(params, capturable=True))
    negative = Tensor([-1.0])
    assert nn.ReLU(inplace=True)(negative).item() == 0 and negative.item() == -1
    assert optim.SGD(params, lr=0.1, foreach=True, fused=True).defaults.keys() == optim.SGD(params).defaults.keys()
    assert type(optim.SGD(params, lr=Tensor(np.array(0.1))).param_groups[0]["lr"]) is float


def test_a_primitive_may_return_a_scalar_of_numpy():
    total = primitive(lambda input: input.sum())
    total.grads(input=lambda g, input_shape: g.expand(input_shape))
    x = minigrad.randn(3, dtype="float64", requires_grad=True)
    assert type(total(x).array) is np.ndarray
    assert gradcheck(total, x) and gradgradcheck(total, x)


def test_parts_are_there_without_an_import_of_their_own():
    program = (
        "import minigrad; minigrad.draw.graph; minigrad.data.digits; minigrad.train.fit; minigrad.checkpoint.save; "
        "minigrad.gradcheck; minigrad.models.lenet; minigrad.parallel.run_local; minigrad.report.Report; "
        "minigrad.sofmax"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "module 'minigrad' has no attribute 'sofmax'. Did you mean: 'softmax'?" in done.stderr
