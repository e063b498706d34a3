"""Memory in profiles: by what it is for, over a step."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, models, nn, no_grad, optim
from minigrad.device import memory as pool
from minigrad.nn import functional as F
from minigrad.profile import Profile, measure_step
from minigrad.profile.memory import CATEGORIES
from tests.profile.profile_parts import batch

FLOAT = 4  # bytes


def used_bytes():
    return pool.memory_statistics()["used_bytes"]


def sizes(profile, category):
    return [sample[category] for _, sample in profile.memory]


@pytest.fixture(scope="module")
def step():
    """(model, profile) of a step with Adam."""
    minigrad.manual_seed(0)
    model = models.build("keras-cnn", (1, 28, 28))
    return model, measure_step(model, F.cross_entropy, batch(8), optim.Adam(model.parameters()))


def test_a_step_fills_and_empties_memory(step):
    """Sums of bytes by what they are for: activations rise forward and fall to nothing backward."""
    model, profile = step
    nbytes = sum(parameter.array.nbytes for parameter in model.parameters())
    assert all(tuple(sample) == CATEGORIES for _, sample in profile.memory)
    assert set(sizes(profile, "parameters")) == {nbytes} and set(sizes(profile, "optimiser")) == {2 * nbytes}
    assert sizes(profile, "gradients")[-1] == max(sizes(profile, "gradients")) == nbytes
    assert 0 in sizes(profile, "gradients")

    kept, seconds = sizes(profile, "activations"), [seconds for seconds, _ in profile.memory]
    top = kept.index(max(kept))
    assert kept[: top + 1] == sorted(kept[: top + 1]) and kept[top] > 0 == kept[-1] and seconds == sorted(seconds)
    first_gradient = next(begin for lane, _, begin, _ in profile.timeline() if lane == "backward")
    falling = [size for at, size in zip(seconds, kept, strict=True) if at > first_gradient]
    assert seconds[top] <= first_gradient and falling == sorted(falling, reverse=True)

    found, moment = profile.peak()
    assert (moment, found) == max(profile.memory, key=lambda sample: sum(sample[1].values()))


def test_operations_and_layers_say_what_they_made_the_tape_keep():
    model = nn.Sequential(nn.Linear(64, 128), nn.Sigmoid(), nn.Linear(128, 32), nn.Tanh())
    x = minigrad.randn(16, 64)
    with Profile(model) as profile:
        out = model(x).sum()
    found = {row.name: row for row in profile.rows("layer")}
    # Products keep what comes in, the others what goes out; that of the sigmoid is kept once.
    wanted = {"0": 64, "1": 128, "2": 0, "3": 32}
    assert {name: found[name].memory for name in wanted} == {name: 16 * width * FLOAT for name, width in wanted.items()}
    assert sizes(profile, "activations")[-1] == 16 * (64 + 128 + 32) * FLOAT
    assert found["0"].bytes == 16 * 128 * FLOAT
    del out


def test_graphs_that_are_dropped_retained_shared_or_not_made():
    model, (x, _) = nn.Sequential(nn.Linear(784, 100), nn.Tanh()), batch(8)
    with Profile(model) as profile:
        for _ in range(3):
            out = model(x.reshape(8, 784))
        del out
        Tensor([1.0]) + 1
    assert sizes(profile, "activations")[-1] == 0
    # The input is the same; an old result lives until its name is given to the new one.
    assert max(sizes(profile, "activations")) == 8 * (784 + 2 * 100) * FLOAT
    with Profile(model) as profile, no_grad():
        model(x.reshape(8, 784))
    assert set(sizes(profile, "activations")) == {0}

    leaf = Tensor(np.ones(100, np.float32), requires_grad=True)
    with Profile() as profile:
        y = leaf.exp().sum()
        y.backward(retain_graph=True)
        y.backward()
    assert sizes(profile, "activations")[-1] == 0 and sizes(profile, "activations").count(400) >= 2
    assert sizes(profile, "gradients")[-1] == sizes(profile, "parameters")[-1] == 400

    with Profile() as profile:  # views share memory
        y = leaf.exp()
        out = (y.reshape(10, 10) ** 2).sum() + (y.reshape(2, 50) ** 2).sum()
    assert sizes(profile, "activations")[-1] == 400
    del out


def test_the_rest_is_what_the_pool_holds_beyond_that():
    with Profile() as profile, no_grad():
        other = [device.empty((256, 256), np.float32, like=np.zeros(1)) for _ in range(2)]
        Tensor([1.0]) + 1
        before = used_bytes()
        del other
        Tensor([1.0]) + 1
    with_other, without = sizes(profile, "other")[-2:]
    assert with_other - without == before - used_bytes() >= 2 * 256 * 256 * FLOAT
