"""Ranks as threads for the tests, with a limit after which a hang ends the process; small models."""

import faulthandler
import sys

import numpy as np

import minigrad
from minigrad import Tensor, nn
from minigrad.parallel import DataParallel, run_local
from minigrad_kernels.toolchain import set_threads, threads

__all__ = ["Wide", "X", "bits", "branches", "grads", "in_pairs", "on_ranks", "outcomes", "plain", "rows"]

LIMIT = 120.0  # seconds for a whole run
TIMEOUT = 20.0  # seconds for a collective


def on_ranks(function, size, *arguments, timeout=TIMEOUT):
    """What function(world, *arguments) returns on each rank; its kernels run in one thread, as ranks are threads."""
    before = threads()
    set_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=sys.__stderr__)
    try:
        return run_local(function, size, *arguments, timeout=timeout)
    finally:
        faulthandler.cancel_dump_traceback_later()
        set_threads(before)


def outcomes(function, size, *arguments, timeout=TIMEOUT):
    """What it returns, or the exception that it raises, on each rank, where an exception does not end the world."""

    def caught(world):
        try:
            return function(world, *arguments)
        except Exception as error:
            return error

    return on_ranks(caught, size, timeout=timeout)


def bits(model, optimizer=None):
    """All parameters and buffers of a model, and the state of its optimiser, as bytes by name."""
    found = {name: np.ascontiguousarray(tensor.numpy()).tobytes() for name, tensor in model.state_dict().items()}
    for index, entries in ({} if optimizer is None else optimizer.state_dict()["state"]).items():
        found |= {f"{index} {name}": np.asarray(value).tobytes() for name, value in entries.items()}
    return found


# ---- models ---------------------------------------------------------------------------------------------------------

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
