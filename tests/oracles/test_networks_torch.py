"""Whole networks, written as PyTorch's users write them, run from one source with PyTorch and with minigrad.

Same parameters and inputs in float64; compared are the loss and all results, the gradients of every parameter and
input, a product of the loss's Hessian with a vector, and parameters and buffers after two steps of an optimiser.
"""

import numpy as np
import pytest

import minigrad
import minigrad.autograd
from tests.oracles.beside_torch import close, numbers, torch
from tests.oracles.networks import NETWORKS


def times_hessian(library, loss, leaves):
    """The Hessian of the loss by leaves, times one vector."""
    grad, rng = library.autograd.grad, np.random.default_rng(1)
    slopes = grad(loss, leaves, create_graph=True, allow_unused=True)
    vectors = [library.tensor(rng.standard_normal(leaf.shape)) for leaf in leaves]
    pairs = [(g, v) for g, v in zip(slopes, vectors, strict=True) if g is not None and g.requires_grad]
    return grad(sum((g * v).sum() for g, v in pairs), leaves, allow_unused=True) if pairs else [None] * len(leaves)


def run(library, model, step, arrays, kind, options):
    """{what: numbers} of a network in use: its first step, the curvature there, and the steps of its optimiser."""
    inputs = [library.tensor(array, requires_grad=array.dtype == np.float64) for array in arrays]
    parameters, found = dict(model.named_parameters()), {}
    optimizer = parameters and getattr(library.optim, kind)(model.parameters(), **options)
    named = parameters | {f"input {i}": x for i, x in enumerate(inputs)}
    leaves = {name: x for name, x in named.items() if x.requires_grad}
    for count in range(2 if parameters else 1):
        results = step(model, *inputs)
        found |= {f"step {count}, result {i}": result for i, result in enumerate(results)}
        if not count:
            products = times_hessian(library, step(model, *inputs)[0], list(leaves.values()))
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
    build, *given = NETWORKS[name]
    theirs, their_step = build(torch, torch.nn, torch.nn.functional)
    ours, our_step = build(minigrad, minigrad.nn, minigrad.nn.functional)
    ours.double(), theirs.double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    wanted, found = run(torch, theirs, their_step, *given), run(minigrad, ours, our_step, *given)
    assert list(found) == list(wanted)
    for what, array in wanted.items():
        if array is None or found[what] is None:  # a gradient that is nothing may stand as zeros
            array = found[what] if array is None else array
            assert array is None or not array.any(), what
        else:
            close(found[what], array, 1e-7, what)
