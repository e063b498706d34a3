"""minigrad info --check: whether a device trains as the CPU does, in under a minute."""

import time

import numpy as np

from .. import Tensor, device, manual_seed, nn, optim, parallel
from ..parallel.local import LocalTransport
from ..train import Trainer

HINT = "run `minigrad info` and `tests/gpu/run_all correctness sanitizer`, and report what they print"
NEAR = 1e-3  # of the largest number: sums are taken in another order, and steps magnify that


def _steps(there):
    """Loss of five steps of a network, its weights, its last gradients.

    On a GPU two steps are eager, one is recorded as a graph, and two are the graph.
    """
    manual_seed(0)
    first = nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    model = nn.Sequential(*first, nn.Linear(72, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 10)).to(there)
    trainer = Trainer(model, optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    images = np.random.default_rng(0).standard_normal((4, 1, 8, 8), np.float32)
    for _ in range(5):
        trainer.update((Tensor(images), Tensor(np.array([3, 0, 7, 7]))))
    found = [tensor for parameter in model.parameters() for tensor in (parameter.detach(), parameter.grad)]
    return [Tensor(trainer.history.running.loss), *found]


def _collective(there):
    """A sum over the ranks of a group: one, by NCCL on a GPU."""
    with parallel.Communicator(LocalTransport(), backend="nccl" if there.startswith("cuda") else None) as world:
        numbers = Tensor(np.arange(1.0, 100.0)).to(there)
        world.all_reduce(numbers.array)
        return [numbers]


# name: what it computes on a device, a list of Tensors
CHECKS = {"training steps, also from a graph": _steps, "collective of one rank": _collective}


def checked(there):
    """Run all checks on a device and print a line for each as it ends; whether nothing failed.

    Errors  RuntimeError where there is no such device
    """
    device.place(there)
    passed = 0
    for name, check in CHECKS.items():
        begun, said = time.perf_counter(), "as on the CPU"
        try:
            both = [[device.host(one.array) for one in check(place)] for place in ("cpu", there)]
            off = np.max([np.abs(got - wanted).max() / np.abs(wanted).max() for wanted, got in zip(*both, strict=True)])
            if not off < NEAR:  # NaN is not
                said = f"FAILED: off by {off:.2g} of the largest number; {HINT}"
        except Exception as error:  # whatever it is, the other checks go on
            said = f"FAILED: {type(error).__name__}: {error}"
        passed += said == "as on the CPU"
        print(f"{name:<35}{time.perf_counter() - begun:>6.1f} s  {said}", flush=True)
    print(f"{there}: {passed} of {len(CHECKS)} checks passed")
    return passed == len(CHECKS)
