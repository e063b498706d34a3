"""Small networks and training snippets as PyTorch's users write them, each one source for both libraries.

A source is a function of torch, nn and F: PyTorch and its two modules, or minigrad and its two. It returns a model and
step(model, *inputs), which returns the loss, then whatever else is to be compared. tests/oracles/test_networks_torch.py
runs each source with both. Where a source cannot be PyTorch's word for word, a comment in it says so.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["NETWORKS", "classes", "evenly", "network", "normal"]

rng = np.random.default_rng(0)
NETWORKS = {}


class Network(NamedTuple):
    """A source, the arrays that its step takes, the optimiser that trains it, and whether second order is compared."""

    build: Any
    inputs: tuple
    optimizer: str
    options: dict
    second: bool


def network(*inputs, optimizer="SGD", second=True, **options):
    """Register a source under its name."""

    def register(build):
        chosen = options or ({"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3} if optimizer == "SGD" else {})
        NETWORKS[build.__name__] = Network(build, inputs, optimizer, chosen, second)
        return build

    return register


def normal(*shape):
    """Normally distributed numbers; gradients flow to them."""
    return rng.standard_normal(shape)


def evenly(*shape):
    """Numbers evenly distributed between 0 and 1, as pixels are."""
    return rng.random(shape)


def classes(count, *shape):
    """Whole numbers below count."""
    return rng.integers(count, size=shape)
