"""Random subscripts and views beside PyTorch: the same elements and gradients, the same refused."""

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.tape import grad
from minigrad_kernels.layout import CHANNELS_LAST, FILTER, is_dense
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


def random_view(rng):
    """An array behind permutations, steps and broadcasts, in both libraries."""
    x = Tensor(rng.standard_normal([int(n) for n in rng.choice([1, 1, 2, 3, 4], rng.integers(1, 5))]))
    t = torch.from_numpy(x.array)
    for _ in range(rng.integers(0, 3)):
        dims = tuple(int(d) for d in rng.permutation(x.ndim))
        key = tuple(slice(None, None, int(rng.choice([1, 1, 2]))) for _ in dims)
        x, t = x.permute(dims)[key], t.permute(dims)[key]
    return (x.expand(2, *x.shape), t.expand(2, *t.shape)) if rng.random() < 0.3 else (x, t)


def test_view_is_refused_where_pytorch_refuses():
    rng, seen = np.random.default_rng(0), {True: 0, False: 0}
    for _ in range(300):
        x, t = random_view(rng)
        size, rest = [], x.numel()
        while rest > 1:
            size.append(int(rng.choice([n for n in range(1, rest + 1) if rest % n == 0])))
            rest //= size[-1]
        ours, theirs, whole = tried(x.view, size), tried(t.view, size), x.reshape(size)
        if theirs is None and x.ndim == 4 and any(is_dense(x.array, order) for order in (CHANNELS_LAST, FILTER)):
            theirs = t.reshape(size)  # as if it lay as it does in PyTorch
        assert (ours is None) == (theirs is None), (x.shape, x.array.strides, size)
        seen[ours is not None] += 1
        if ours is not None:
            close(ours, theirs, 0)
            assert np.shares_memory(ours.array, x.array) == np.shares_memory(whole.array, x.array)
        close(whole, t.reshape(size), 0)
    assert min(seen.values()) > 20
