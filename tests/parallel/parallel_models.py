"""Models for the tests of several ranks."""

import numpy as np

import minigrad
from minigrad import Tensor, nn
from minigrad.parallel import DataParallel

__all__ = ["Wide", "X", "branches", "grads", "in_pairs", "plain", "rows"]

X = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)


def plain():
    minigrad.manual_seed(5)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


class Wide(nn.Linear):
    """In another type than the layers before, which are float32."""

    def forward(self, input):
        return super().forward(input.to("float64"))


class Branches(nn.Module):
    """The sum of branches, run in the order that the caller chooses; those left out are not used."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(5, 2) for _ in range(4)])

    def forward(self, x, order):
        return sum(self.branches[i](x) for i in order).sum()


def branches(world, **options):
    minigrad.manual_seed(0)
    return DataParallel(Branches(), world, bucket_bytes=1, **options)


def rows(world):
    return Tensor(X[2 * world.rank :][:2])


def grads(model):
    return [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]


def in_pairs(parts):
    """The sum of the first 2^k terms, and that of the rest, added: what `pairwise` promises, said in another way."""
    if len(parts) == 1:
        return parts[0]
    middle = 1 << ((len(parts) - 1).bit_length() - 1)
    return in_pairs(parts[:middle]) + in_pairs(parts[middle:])
