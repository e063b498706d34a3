"""minigrad info --check: whether a device computes what the CPU does, in under a minute."""

import time

import numpy as np

from .. import Tensor, device, manual_seed, nn, optim, parallel
from ..nn import functional as F
from ..parallel.local import LocalTransport
from ..train import Trainer

HINT = "run `minigrad info` and `tests/gpu/run_all correctness sanitizer`, and report what they print"
NEAR, NEAR_STEPS = 1e-3, 1e-2  # of the largest number: sums are taken in another order, and steps magnify that
CHECKS = {  # name: (an op of some arguments, their shapes)
    "elementwise ops": (lambda x, y: (x * y + y.exp()).tanh(), (64, 100), (100,)),
    "sums": (lambda x: x.mean((0, 2)), (8, 16, 50)),
    "matrix product": (lambda x, y: x @ y, (40, 72), (72, 24)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, 1, 1), (4, 8, 12, 12), (16, 8, 3, 3), (16,)),
    "pooling": (lambda x: F.max_pool2d(x, 2), (4, 8, 12, 12)),
    "batch norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (4, 8, 12, 12), (8,), (8,)),
    "softmax": (lambda x: F.softmax(x, 1), (32, 100)),
}


def _op(there, function, *shapes):
    """The result of an op, and its gradients."""
    rng = np.random.default_rng(0)
    drawn = lambda shape: Tensor(rng.standard_normal(shape, np.float32)).to(there)
    inputs = [drawn(shape).requires_grad_() for shape in shapes]
    out = function(*inputs)
    out.backward(drawn(out.shape))
    return [out.detach(), *(x.grad for x in inputs)]


def _steps(there):
    """Loss of the first steps of a small network, and its weights: on a GPU two eager, one recorded, two replayed."""
    manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)).to(there)
    trainer = Trainer(model, optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    images = np.random.default_rng(0).standard_normal((4, 1, 8, 8), np.float32)
    for _ in range(5):
        trainer.update((Tensor(images), Tensor(np.array([3, 0, 7, 7]))))
    return [Tensor(trainer.history.running.loss), *(parameter.detach() for parameter in model.parameters())]


def _collective(there):
    """A sum over the ranks of a group: one, by NCCL on a GPU."""
    with parallel.Communicator(LocalTransport(), backend="nccl" if there.startswith("cuda") else None) as world:
        numbers = Tensor(np.arange(1.0, 100.0)).to(there)
        world.all_reduce(numbers.array)
        return [numbers]


OTHERS = {"training steps, also from a graph": _steps, "collective of one rank": _collective}


def checked(there):
    """Run all checks on a device and print a line for each as it ends; whether nothing failed.

    Errors  RuntimeError where there is no such device
    """
    device.place(there)
    passed = 0
    for name, check in (CHECKS | OTHERS).items():
        begun, said = time.perf_counter(), "as on the CPU"
        try:
            both = [_op(place, *check) if name in CHECKS else check(place) for place in ("cpu", there)]
            pairs = [[device.host(one.array) for one in pair] for pair in zip(*both, strict=True)]
            off = np.max([np.abs(got - wanted).max() / np.abs(wanted).max() for wanted, got in pairs])
            if not off < (NEAR_STEPS if check is _steps else NEAR):  # NaN is not
                said = f"FAILED: off by {off:.2g} of the largest number; {HINT}"
        except Exception as error:  # whatever it is, the other checks go on
            said = f"FAILED: {type(error).__name__}: {error}"
        passed += said == "as on the CPU"
        print(f"{name:<35}{time.perf_counter() - begun:>6.1f} s  {said}", flush=True)
    print(f"{there}: {passed} of {len(CHECKS | OTHERS)} checks passed")
    return passed == len(CHECKS | OTHERS)
