"""Random subscripts beside PyTorch: the same elements and gradients, the same refused."""

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.tape import grad
from tests.oracles.beside_torch import close, torch
from tests.oracles.test_ops_torch import getitem


def tried(call, *arguments):
    """What a call returns, None where it is refused."""
    try:
        return call(*arguments)
    except (IndexError, RuntimeError):
        return None


def random_key(rng, shape):
    """A key that fits most of the time: integers, slices, None, Ellipsis, masks, and arrays that broadcast."""
    length, key = int(rng.integers(1, 4)), []
    for n in shape[: rng.integers(len(shape) + 1)]:
        kind = rng.integers(6)
        if kind == 0 and n:
            key.append(int(rng.integers(-n, n)))
        elif kind == 1:
            begin, end = (int(i) for i in rng.integers(-n - 1, n + 2, 2))
            key.append(slice(begin, end, int(rng.choice([1, 2]))))
        elif kind == 2:
            key += [None, slice(None)]
        elif kind == 3:
            key.append(np.arange(n) < length)
        else:
            sizes = [(length,), (1,), (2, length), (2, 1)][rng.integers(4)]
            key.append(rng.integers(-n, n, sizes) if n else np.zeros(0, np.int64))
    if rng.random() < 0.3:
        key.insert(int(rng.integers(len(key) + 1)), ...)
    return tuple(key)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 6))])
def test_random_subscripts_like_pytorch(seed):
    """The same elements and the same gradients; what one refuses, the other refuses."""
    rng, taken = np.random.default_rng(seed), 0
    for _ in range(40):
        shape = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 5, rng.integers(1, 5)))
        key, array = random_key(rng, shape), rng.standard_normal(shape)
        x, t = Tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
        held = tuple(Tensor(part) if isinstance(part, np.ndarray) and rng.random() < 0.5 else part for part in key)
        ours, theirs = tried(Tensor.__getitem__, x, held), tried(getitem, t, key)
        if ours is None:  # PyTorch lets an index out of range pass if nothing is picked anyway
            assert theirs is None or not theirs.numel(), (shape, key)
        else:
            taken += 1
            close(ours, theirs, 0, f"{shape}, {key}")
            g = rng.standard_normal(ours.shape)
            close(grad(ours, x, Tensor(g))[0], torch.autograd.grad(theirs, t, torch.tensor(g))[0], 1e-12)
    assert taken > 20
