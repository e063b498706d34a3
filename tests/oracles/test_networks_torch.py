"""Whole networks, written as PyTorch's users write them, run from one source with PyTorch and with minigrad.

Same parameters and inputs in float64; compared are the loss and all results, the gradients of every parameter and
input, a product of the loss's Hessian with a vector, and parameters and buffers after two steps of an optimiser.
"""

import importlib

import numpy as np
import pytest

import minigrad
from minigrad import nn, optim
from tests.oracles.beside_torch import close, numbers, torch
from tests.oracles.networks import NETWORKS

for kind in "attention blocks generative images learning metrics sequences".split():
    importlib.import_module(f"tests.oracles.networks.{kind}")  # each fills NETWORKS


def given(library, array):
    """An input of a step; gradients flow to floating ones."""
    return library.tensor(array, requires_grad=array.dtype == np.float64)


def times_hessian(library, grad, loss, leaves):
    """The Hessian of the loss by leaves, times one vector."""
    slopes = grad(loss, leaves, create_graph=True, allow_unused=True)
    rng = np.random.default_rng(1)
    vectors = [library.tensor(rng.standard_normal(leaf.shape)) for leaf in leaves]
    pairs = [(g, v) for g, v in zip(slopes, vectors, strict=True) if g is not None and g.requires_grad]
    return grad(sum((g * v).sum() for g, v in pairs), leaves, allow_unused=True) if pairs else [None] * len(leaves)


def run(library, optimizers, grad, model, network, step):
    """{what: numbers} of a network in use: its first step, the curvature there, and the steps of its optimiser."""
    inputs = [given(library, array) for array in network.inputs]
    parameters, found = dict(model.named_parameters()), {}
    optimizer = parameters and getattr(optimizers, network.optimizer)(model.parameters(), **network.options)
    named = parameters | {f"input {i}": x for i, x in enumerate(inputs)}
    leaves = {name: x for name, x in named.items() if x.requires_grad}
    for count in range(2 if parameters else 1):
        results = step(model, *inputs)
        found |= {f"step {count}, result {i}": result for i, result in enumerate(results)}
        if not results[0].requires_grad:
            break
        if network.second and not count:
            products = times_hessian(library, grad, step(model, *inputs)[0], list(leaves.values()))
            found |= {f"Hessian, {name}": h for name, h in zip(leaves, products, strict=True)}
        model.zero_grad()
        results[0].backward()
        found |= {f"step {count}, gradient of {name}": leaf.grad for name, leaf in leaves.items()}
        found = {what: None if value is None else numbers(value).copy() for what, value in found.items()}
        if parameters:
            optimizer.step()
    return found | dict(model.state_dict())


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    network = NETWORKS[name]
    theirs, their_step = network.build(torch, torch.nn, torch.nn.functional)
    ours, our_step = network.build(minigrad, nn, nn.functional)
    ours.double(), theirs.double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    wanted = run(torch, torch.optim, torch.autograd.grad, theirs, network, their_step)
    found = run(minigrad, optim, minigrad.grad, ours, network, our_step)
    assert list(found) == list(wanted)
    for what, array in wanted.items():
        if array is None or found[what] is None:  # a gradient that is nothing may stand as zeros
            array = found[what] if array is None else array
            assert array is None or not array.any(), what
        else:
            close(found[what], array, 1e-7, what)
