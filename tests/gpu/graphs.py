"""Training steps by graphs on the device: the bits of eager ones, no launch from Python, and the time of both."""

import minigrad
from minigrad import Tensor, device, models, optim, parallel
from minigrad.graph import CaptureError, capture
from minigrad.nn import functional as F
from minigrad.parallel.local import LocalTransport
from minigrad_kernels.toolchain.cuda.kernel import Kernel
from tests.benchmarks import tasks

from .timing import in_turns

BATCHES = {"keras-cnn": 64, "lenet": 64, "mnist-net": 64, "resnet": 64}
STEPS, ROUNDS, BURST = 8, 11, 20


class Training:
    """A network and its step. launches: kernels that Python has started since the beginning."""

    def __init__(self, name, place, wrap, world=None):
        minigrad.manual_seed(0)
        network = models.build(name, tasks.SHAPES[name]).to(place)
        self.model = network if world is None else parallel.DataParallel(network, world)
        kind = tasks.OPTIMIZERS[name]
        self.optimizer = getattr(optim, kind)(self.model.parameters(), **tasks.OPTIONS[kind])
        self.schedule = optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        self.step = wrap(self._step)

    def _step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def bits(self):
        tensors = *self.model.parameters(), *self.model.buffers()
        return b"".join(device.host(tensor.array).tobytes() for tensor in tensors)


def counted(call):
    """(what a call gives, how many kernels it started from Python)."""
    launches, real = [], Kernel.__call__
    Kernel.__call__ = lambda *given, **options: launches.append(given[0].name) or real(*given, **options)
    try:
        return call(), len(launches)
    finally:
        Kernel.__call__ = real


def trained(name, size, place, wrap, world=None, steps=STEPS):
    """(losses, bits of the network, launches from Python in the last step)"""
    training, losses, launches = Training(name, place, wrap, world), [], 0
    for x, y in tasks.batches(name, size, steps):
        x, y = Tensor(x).to(place), Tensor(y).to(place)
        loss, launches = counted(lambda x=x, y=y: training.step(x, y))
        losses.append(loss.item())
    return losses, training.bits(), launches


def compared(name, size, place="cuda:0", world=None, steps=STEPS):
    eager = trained(name, size, place, lambda step: step, world, steps)
    replayed = trained(name, size, place, capture, world, steps)
    row = {"network": name, "batch": size, "same_bits": eager[:2] == replayed[:2]}
    row |= {"launches_eager": eager[2], "launches_replayed": replayed[2]}
    return row | {"failed": not row["same_bits"] or bool(replayed[2])}


def times(name, size, place="cuda:0"):
    """Milliseconds of a step, eager and replayed, which take turns."""
    (x, y), *_ = tasks.batches(name, size, 1)
    x, y = Tensor(x).to(place), Tensor(y).to(place)
    trainings = {"eager": Training(name, place, lambda step: step), "replayed": Training(name, place, capture)}
    steps = {kind: lambda _, training=training: training.step(x, y) for kind, training in trainings.items()}
    found = in_turns(steps, ROUNDS, BURST)
    return {f"{kind}_milliseconds": round(1000 * seconds, 4) for kind, seconds in found.items()}


def refused(place="cuda:0"):
    """Whether reading a value is refused with its line, and the next call goes on."""
    reads, x = [True], minigrad.ones(4, device=place)

    @capture
    def step(x):
        return x.sum().item() if reads[0] else x + 1

    step(x), step(x)
    try:
        step(x)
    except CaptureError as error:
        reads[0] = False
        return "item reads" in str(error) and [step(x).tolist() for _ in range(4)] == [[2.0] * 4] * 4
    return False


def run(found):
    found["networks"] = rows = []
    for name, size in BATCHES.items():
        rows.append(compared(name, size) | times(name, size))
        print(f"  {rows[-1]}", flush=True)
    with parallel.Communicator(LocalTransport(), backend="nccl") as world:
        found["one rank by NCCL"] = compared("lenet", 64, world=world)
    found["host reads are refused"] = refused()
    print(f"  {found['one rank by NCCL']}, host reads are refused: {found['host reads are refused']}", flush=True)
    found["failed"] = any(row["failed"] for row in (*rows, found["one rank by NCCL"]))
    found["failed"] |= not found["host reads are refused"]
