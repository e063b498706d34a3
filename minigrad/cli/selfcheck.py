"""minigrad info --check: whether a device computes what the CPU does, in under a minute."""

import time

import numpy as np

from .. import Tensor, device, manual_seed, models, optim, parallel
from ..graph import capture
from ..nn import functional as F
from ..parallel.local import LocalTransport

__all__ = ["checked"]

NEAR, NEAR_STEPS = 1e-3, 1e-2  # of the largest number: sums are taken in another order, and steps magnify that
STEPS = 5  # two of them eager, the third captured, the others replayed
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


def _trained(there, wrap, world=None):
    """Losses of the first steps of a small network, and its weights."""
    manual_seed(0)
    model = models.build("digits-cnn", (1, 8, 8)).to(there)
    wrapped = model if world is None else parallel.DataParallel(model, world)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    @wrap
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapped(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x = np.random.default_rng(0).standard_normal((len(LABELS), 1, 8, 8), dtype=np.float32)
    x, y = Tensor(x).to(there), Tensor(LABELS).to(there)
    losses = [step(x, y).item() for _ in range(STEPS)]
    return [Tensor(losses), *(parameter.detach() for parameter in model.parameters())]


def _with_collectives(there):
    """The same steps, with gradients summed over the ranks of a group: one, by NCCL on a GPU."""
    backend = "nccl" if there.startswith("cuda") else None
    with parallel.Communicator(LocalTransport(), backend=backend) as world:
        return _trained(there, lambda step: step, world)


CHECKS = {  # name: what it computes on a device, as Tensors
    "copy to the device and back": lambda there: [Tensor(np.arange(1000.0)).to(there)],
    "elementwise ops": _op(lambda x, y: (x * y + y.exp()).tanh(), (64, 100), (100,)),
    "sums": _op(lambda x: x.mean((0, 2)), (8, 16, 50)),
    "matrix product": _op(lambda x, y: x @ y, (40, 72), (72, 24)),
    "convolution": _op(lambda x, w, b: F.conv2d(x, w, b, padding=1), (4, 8, 12, 12), (16, 8, 3, 3), (16,)),
    "pooling": _op(lambda x: F.max_pool2d(x, 2), (4, 8, 12, 12)),
    "batch norm": _op(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (4, 8, 12, 12), (8,), (8,)),
    "softmax": _op(lambda x: F.softmax(x, 1), (32, 100)),
    "cross entropy": _op(lambda x: F.cross_entropy(x, Tensor(LABELS).to(x.device)), (4, 10)),
}
STEPS_OF = {  # the same for whole steps
    "training steps": lambda there: _trained(there, lambda step: step),
    "captured training steps": lambda there: _trained(there, capture),
    "collectives of one rank": _with_collectives,
}
CHECKS |= STEPS_OF


def _fault(name, there):
    """What goes wrong with a check on a device, in words; None where nothing does."""
    check, near = CHECKS[name], NEAR_STEPS if name in STEPS_OF else NEAR
    try:
        pairs = zip(check("cpu"), check(there), strict=True)
        for wanted, got in ((device.host(a.array), device.host(b.array)) for a, b in pairs):
            off = float(np.abs(got - wanted).max() / np.abs(wanted).max())
            if not off < near:  # NaN is not
                return f"off by {off:.2g} of the largest number; {HINT}"
    except Exception as error:  # whatever it is, the other checks go on
        return f"{type(error).__name__}: {error}"
    return None


def checked(there):
    """Run all checks on a device and print a line for each as it ends; whether nothing failed.

    Errors  RuntimeError where there is no such device
    """
    device.place(there)
    faults = 0
    for name in CHECKS:
        begun = time.perf_counter()
        fault = _fault(name, there)
        faults += fault is not None
        seconds = f"{time.perf_counter() - begun:.1f} s"
        print(f"{name:<30}{seconds:>8}  {'as on the CPU' if fault is None else f'FAILED: {fault}'}", flush=True)
    print(f"{there}: {len(CHECKS) - faults} of {len(CHECKS)} checks passed")
    return not faults
