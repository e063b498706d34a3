"""Training steps on the device: the same bits twice and as graphs, losses near the CPU's, and the time of both."""

import numpy as np

import minigrad
from minigrad import Tensor, device, models, optim, parallel
from minigrad.graph import capture
from minigrad.nn import functional as F
from minigrad.parallel.local import LocalTransport
from minigrad_kernels.toolchain.cuda.kernel import Kernel
from tests.benchmarks import tasks

from .networks import CONTENDERS, training_step
from .timing import in_turns

NETWORKS, BATCH = tuple(tasks.LAYERS), 64
STEPS, BESIDE_CPU = 8, 3
NEAR = 1e-3  # of a loss, after steps that magnify what is rounded in another order


def counted(call):
    """(what a call gives, how many kernels it started from Python)."""
    launches, real = [], Kernel.__call__
    Kernel.__call__ = lambda *given, **options: launches.append(given[0].name) or real(*given, **options)
    try:
        return call(), len(launches)
    finally:
        Kernel.__call__ = real


def trained(name, place, wrap=lambda step: step, world=None, steps=STEPS):
    """(losses, bits of the network, launches from Python in the last step)"""
    minigrad.manual_seed(0)
    model, kind = models.build(name, tasks.SHAPES[name]).to(place), tasks.OPTIMIZERS[name]
    model = model if world is None else parallel.DataParallel(model, world)
    optimizer = getattr(optim, kind)(model.parameters(), **tasks.OPTIONS[kind])
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    update = training_step(model, optimizer, F.cross_entropy)

    @wrap
    def step(x, y):
        loss = update(x, y)
        schedule.step()
        return loss

    losses, launches = [], 0
    for x, y in tasks.batches(name, BATCH, steps):
        x, y = Tensor(x).to(place), Tensor(y).to(place)
        loss, launches = counted(lambda x=x, y=y: step(x, y))
        losses.append(loss.item())
    tensors = *model.parameters(), *model.buffers()
    return losses, b"".join(device.host(tensor.array).tobytes() for tensor in tensors), launches


def compared(name, place="cuda:0", world=None):
    eager, again, replayed = (trained(name, place, *wrap, world=world) for wrap in ((), (), (capture,)))
    wanted, *_ = trained(name, "cpu", steps=BESIDE_CPU)
    off = float(np.abs(np.array(eager[0][:BESIDE_CPU]) / wanted - 1).max())
    row = {"network": name, "batch": BATCH, "loss_off": off, "same_bits_twice": eager[:2] == again[:2]}
    row |= {"same_bits": eager[:2] == replayed[:2], "launches_eager": eager[2], "launches_replayed": replayed[2]}
    right = row["same_bits_twice"] and row["same_bits"] and not replayed[2] and off < NEAR
    return row | {"failed": not right}


def times(name):
    """Milliseconds of a step, op by op and replayed, which take turns."""
    ways = {"eager": "minigrad", "replayed": "minigrad, graph"}
    found = in_turns({way: CONTENDERS[made](name, BATCH, "float32").step for way, made in ways.items()})
    return {f"{way}_milliseconds": round(1000 * seconds, 4) for way, seconds in found.items()}


def graphs(found):
    found["networks"] = rows = []
    for name in NETWORKS:
        rows.append(compared(name) | times(name))
        print(f"  {rows[-1]}", flush=True)
    with parallel.Communicator(LocalTransport(), backend="nccl") as world:
        found["one rank by NCCL"] = compared("lenet", world=world)
    print(f"  {found['one rank by NCCL']}", flush=True)
    found["failed"] = any(row["failed"] for row in (*rows, found["one rank by NCCL"]))
