"""Models for the tests of several ranks, and a transport between threads that is as slow as MPI may be."""

import threading
import time

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.parallel import DataParallel, DeadlineError
from minigrad.parallel.local import LocalTransport
from tests.parallel_runs import outcomes

__all__ = ["Branches", "Rendezvous", "X", "branches", "grads", "in_pairs", "plain", "refused", "rows"]

X = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)


def plain():
    minigrad.manual_seed(5)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


class Branches(nn.Module):
    """The sum of branches, run in the order that the caller chooses; those left out are not used."""

    def __init__(self, count=4):
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(5, 2) for _ in range(count)])

    def forward(self, x, order):
        outs = [self.branches[i](x) for i in order]
        return sum(outs[1:], outs[0]).sum()


def branches(world, **options):
    minigrad.manual_seed(0)
    return DataParallel(Branches(), world, bucket_bytes=1, **options)


def rows(world, each=2):
    return Tensor(X[world.rank * each : (world.rank + 1) * each])


def grads(model):
    return [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]


def in_pairs(terms):
    """The sum of lists of gradients, one a shard: neighbours are added until one list is left."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [[sum(parts[1:], parts[0]) for parts in zip(*pair, strict=True)] for pair in pairs]
    return terms[0]


def refused(error, message, call, size=2):
    """call(world) is refused on every rank."""
    for found in outcomes(call, size):
        with pytest.raises(error, match=message):
            raise found


class Rendezvous(LocalTransport):
    """A transport that copies nothing and whose messages have left only when they were taken, as large ones of MPI."""

    def post(self, to, channel, header, payload):
        with self.mail.changed:
            if self.mail.reason:
                return super().post(to, channel, header, payload)
            taken = threading.Event()
            self.mail.waiting[self.rank, to, channel].append((header, payload, taken))
            self.mail.changed.notify_all()
        return _Lent(taken)

    def take(self, source, channel, deadline):
        header, payload, taken = super().take(source, channel, deadline)
        payload = payload.copy()
        taken.set()
        return header, payload


class _Lent:
    def __init__(self, taken):
        self.taken = taken

    def wait(self, deadline):
        if not self.taken.wait(max(0, deadline - time.monotonic())):
            raise DeadlineError("not taken")
