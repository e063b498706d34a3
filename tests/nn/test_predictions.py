"""What a network says of images, and how its weights are distributed."""

import json
import math

import numpy as np
import pytest

from minigrad import Tensor, data, nn, optim, tensor
from minigrad.core.errors import ShapeError
from minigrad.train import Histograms, History, confusion_matrix, evaluate, fit, predict
from tests.train.small_training import images, network


def test_probabilities_are_those_of_the_network():
    model, dataset = network(dropout=0.5), images()
    model[2].train(False)
    probabilities, targets = predict(model, data.Loader(dataset, 16))
    assert model.training and not model[2].training, "flags are as before"
    np.testing.assert_array_equal(targets, dataset.labels)
    scores = model.eval()(Tensor(dataset.images.astype(np.float32) / 255)).detach().numpy().astype(np.float64)
    wanted = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities, wanted, rtol=1e-5)
    loss, accuracy = evaluate(model, data.Loader(dataset, 16))
    assert accuracy == np.mean(probabilities.argmax(1) == targets)
    np.testing.assert_allclose(loss, -np.log(wanted[np.arange(len(targets)), targets]).mean(), rtol=1e-5)


def test_confusion_matrix():
    targets, predicted = np.random.default_rng(0).integers(0, 7, (2, 500))
    wanted = np.histogram2d(targets, predicted, np.arange(8))[0]
    for kind in (np.array, tensor, list):
        np.testing.assert_array_equal(confusion_matrix(kind(targets), kind(predicted), 7), wanted)
    for arguments, kind in ((([0.5], [1], 2), IndexError), (([1], [-1], 2), ShapeError), (([1], [[1]], 2), ShapeError)):
        with pytest.raises(kind):
            confusion_matrix(*arguments)


# ---- histograms ------------------------------------------------------------------------------------------------------


def test_histograms_count_every_weight_and_gradient():
    model = network()
    histograms = Histograms(model)
    fit(model, data.Loader(images(), 11), optim.SGD(model.parameters(), 0.1), 3, callbacks=[histograms])
    assert histograms.records.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        rows = histograms.records[name]
        assert [row[0] for row in rows] == [1, 2, 3] and all(row[1] is rows[0][1] for row in rows)
        last = parameter.detach().numpy(), parameter.grad.numpy()
        for values, edges, counts in zip(last, map(np.asarray, rows[0][1]), rows[-1][2:], strict=True):
            assert edges.shape == (66,) and (np.diff(edges) > 0).all() and sum(counts) == parameter.numel()
            inside = (edges[:-1, None] <= values.ravel()) & (values.ravel() < edges[1:, None])
            np.testing.assert_array_equal(counts[1:-1], inside.sum(1)[1:-1])
    other = Histograms(model)
    other.load_state_dict(json.loads(json.dumps(histograms.state_dict())))
    assert other.state_dict() == histograms.state_dict()


def test_edges_of_histograms(monkeypatch):
    """Six decades of gradients on either side; weights to twice the largest, and what lies beyond is gathered."""
    model = nn.Sequential(nn.Linear(4, 1, bias=False))
    monkeypatch.setattr("minigrad.train.callbacks.BINS", 13)
    histograms, history = Histograms(model), History()
    for weights, gradients in (([-0.5, 0.0, 0.0, 0.0], [2.0, -0.5, 0.5e-3, 0.0]), ([7, -7, 0, 0], [math.nan, 1, 0, 0])):
        history.append({"epoch": len(history) + 1})
        model[0].weight.grad, model[0].weight.array[...] = Tensor(np.float32([gradients])), weights
        histograms.on_epoch(history)
    (_, (weights, edges), first, counts), (_, _, second, infinite) = histograms.records["0.weight"]
    np.testing.assert_allclose(edges[7:], 2.0 * np.logspace(-5, 1, 7))
    assert {edges[i] < value < edges[i + 1] for i, value in ((1, -0.5), (6, 0.0), (8, 0.5e-3))} == {True}
    assert [counts[i] for i in (1, 6, 8)] == [1, 1, 1] and sum(counts) == 4
    np.testing.assert_allclose(weights, np.linspace(-1, 1, 14))
    assert (first[6], second[0], second[6], second[-1], infinite) == (3, 1, 2, 1, None)
