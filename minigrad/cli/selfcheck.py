"""minigrad info --check: whether a device computes what the CPU does, in under a minute."""

import time

import numpy as np

from .. import Tensor, device, manual_seed, models, optim, parallel
from ..nn import functional as F
from ..parallel.local import LocalTransport
from ..train import Trainer

__all__ = ["checked"]

LABELS = np.array([3, 0, 7, 7])
HINT = "run `minigrad info` and `tests/gpu/run_all correctness sanitizer`, and report what they print"


def _op(function, *shapes):
    """A check of one op: its result, and its gradients for inputs of these shapes."""

    def on(there):
        rng = np.random.default_rng(0)
        inputs = [Tensor(rng.standard_normal(shape, dtype=np.float32)).to(there) for shape in shapes]
        inputs = [x.detach().requires_grad_() for x in inputs]
        out = function(*inputs)
        (out * Tensor(rng.standard_normal(out.shape, dtype=np.float32)).to(there)).sum().backward()
        return [out.detach(), *(x.grad for x in inputs)]

    return on


def _steps(there):
    """Loss of the first steps of a small network, and its weights: on a GPU two eager, one recorded, two replayed."""
    manual_seed(0)
    model = models.build("digits-cnn", (1, 8, 8)).to(there)
    trainer = Trainer(model, optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    x = np.random.default_rng(0).standard_normal((len(LABELS), 1, 8, 8), dtype=np.float32)
    for _ in range(5):
        trainer.update((Tensor(x), Tensor(LABELS)))
    return [Tensor(trainer.history.running.loss), *(parameter.detach() for parameter in model.parameters())]


def _collective(there):
    """A sum over the ranks of a group: one, by NCCL on a GPU."""
    backend = "nccl" if there.startswith("cuda") else None
    with parallel.Communicator(LocalTransport(), backend=backend) as world:
        numbers = Tensor(np.arange(1.0, 100.0)).to(there)
        world.all_reduce(numbers.array)
        return [numbers]


NEAR, NEAR_STEPS = 1e-3, 1e-2  # of the largest number: sums are taken in another order, and steps magnify that
CHECKS = {  # name: (what it computes on a device, as Tensors; how near that must be)
    "elementwise ops": (_op(lambda x, y: (x * y + y.exp()).tanh(), (64, 100), (100,)), NEAR),
    "sums": (_op(lambda x: x.mean((0, 2)), (8, 16, 50)), NEAR),
    "matrix product": (_op(lambda x, y: x @ y, (40, 72), (72, 24)), NEAR),
    "convolution": (_op(lambda x, w, b: F.conv2d(x, w, b, 1, 1), (4, 8, 12, 12), (16, 8, 3, 3), (16,)), NEAR),
    "pooling": (_op(lambda x: F.max_pool2d(x, 2), (4, 8, 12, 12)), NEAR),
    "batch norm": (_op(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (4, 8, 12, 12), (8,), (8,)), NEAR),
    "softmax": (_op(lambda x: F.softmax(x, 1), (32, 100)), NEAR),
    "cross entropy": (_op(lambda x: F.cross_entropy(x, Tensor(LABELS).to(x.device)), (4, 10)), NEAR),
    "training steps, also from a graph": (_steps, NEAR_STEPS),
    "collective of one rank": (_collective, NEAR),
}


def checked(there):
    """Run all checks on a device and print a line for each as it ends; whether nothing failed.

    Errors  RuntimeError where there is no such device
    """
    device.place(there)
    passed = 0
    for name, (check, near) in CHECKS.items():
        begun, said = time.perf_counter(), "as on the CPU"
        try:
            pairs = [
                (device.host(a.array), device.host(b.array)) for a, b in zip(check("cpu"), check(there), strict=True)
            ]
            off = np.max([np.abs(got - wanted).max() / np.abs(wanted).max() for wanted, got in pairs])
            if not off < near:  # NaN is not
                said = f"FAILED: off by {off:.2g} of the largest number; {HINT}"
        except Exception as error:  # whatever it is, the other checks go on
            said = f"FAILED: {type(error).__name__}: {error}"
        passed += said == "as on the CPU"
        print(f"{name:<35}{time.perf_counter() - begun:>6.1f} s  {said}", flush=True)
    print(f"{there}: {passed} of {len(CHECKS)} checks passed")
    return passed == len(CHECKS)
