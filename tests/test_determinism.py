"""Same seed, same bits: from run to run, and for any number of threads."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, models, nn, optim
from minigrad_kernels.toolchain import set_threads, threads


def trained(name, shape, count, optimizer):
    """The parameters after a few steps on fixed data."""
    minigrad.manual_seed(0)
    random = np.random.default_rng(0)
    model = models.build(name, shape)
    rule = getattr(optim, optimizer)(model.parameters(), lr=1e-2)
    before = threads()
    set_threads(count)
    try:
        for _ in range(3):
            x = Tensor(random.standard_normal((19, *shape)).astype(np.float32))
            y = Tensor(random.integers(0, 10, 19))
            rule.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            rule.step()
    finally:
        set_threads(before)
    return [parameter.data.copy() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "name, shape, optimizer",
    [
        ("keras-cnn", (1, 28, 28), "Adam"),
        ("lenet", (1, 28, 28), "SGD"),
        ("mnist-net", (1, 28, 28), "RMSprop"),
        ("mlp", (1, 28, 28), "AdamW"),
        ("resnet", (3, 8, 8), "SGD"),
    ],
)
def test_same_bits_for_any_number_of_threads(name, shape, optimizer):
    if threads() < 2:
        pytest.skip("this machine gives one thread")
    first = trained(name, shape, 1, optimizer)
    for count in (1, 2):
        for a, b in zip(first, trained(name, shape, count, optimizer), strict=True):
            assert a.tobytes() == b.tobytes()
