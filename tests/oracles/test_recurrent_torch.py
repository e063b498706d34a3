"""Recurrent layers and cells beside PyTorch's on the same weights: results, last states, gradients."""

import numpy as np
import pytest

import minigrad
from minigrad import nn

torch = pytest.importorskip("torch")

OPTIONS = [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}]
LAYERS = [
    (name, options, shape) for name in ("RNN", "LSTM", "GRU") for options in OPTIONS for shape in ((3, 4, 5), (3, 5))
]
LAYERS += [("RNN", {"nonlinearity": "relu"}, (3, 4, 5)), ("RNNCell", {"nonlinearity": "relu"}, (4, 5))]
LAYERS += [(name, {}, shape) for name in ("RNNCell", "LSTMCell", "GRUCell") for shape in ((4, 5), (5,))]


def flat(value):
    return [one for part in value for one in flat(part)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(("name", "options", "shape"), LAYERS)
def test_layer(name, options, shape):
    theirs = getattr(torch.nn, name)(5, 7, **options).double()
    ours = getattr(nn, name)(5, 7, **options).double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    array, found = np.random.default_rng(0).standard_normal(shape), []
    for library, layer in ((torch, theirs), (minigrad, ours)):
        x = library.tensor(array, requires_grad=True)
        states = [one.detach() * 0.5 for one in flat(layer(x))[-2 if "LSTM" in name else -1 :]]
        results = flat(layer(x, tuple(states) if "LSTM" in name else states[0]))
        sum((result * result).sum() for result in results).backward()
        found.append([*results, x.grad, *(weight.grad for weight in layer.parameters())])
    for own, wanted in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(own.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
