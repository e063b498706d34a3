"""Training steps of whole networks on the device: the same bits twice, losses near those of the CPU."""

import numpy as np

import minigrad
from minigrad import Tensor, device, models, optim
from minigrad.nn import functional as F
from tests.benchmarks import tasks

BATCHES = {"keras-cnn": 64, "resnet": 16}
STEPS = 3
NEAR = 1e-3  # of a loss, after steps that magnify what is rounded in another order


def trained(name, size, place):
    """(losses, parameters) after some steps from the same start."""
    minigrad.manual_seed(0)
    network = models.build(name, tasks.SHAPES[name]).to(place)
    kind = tasks.OPTIMIZERS[name]
    optimizer = getattr(optim, kind)(network.parameters(), **tasks.OPTIONS[kind])
    losses = []
    for x, y in tasks.batches(name, size, STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(Tensor(x).to(place)), Tensor(y).to(place))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), [device.host(parameter.array) for parameter in network.parameters()]


def compared(name, size, place="cuda"):
    (losses, weights), (_, again), (wanted, _) = (trained(name, size, where) for where in (place, place, "cpu"))
    off = float(np.abs(losses / wanted - 1).max())
    same = all(one.tobytes() == other.tobytes() for one, other in zip(weights, again, strict=True))
    row = {"network": name, "batch": size, "same_bits_twice": same, "loss_off": off}
    return row | {"failed": not (same and off < NEAR)}


def run(found):
    found["networks"] = rows = []
    for name, size in BATCHES.items():
        rows.append(compared(name, size))
        print(f"  {rows[-1]}", flush=True)
    found["failed"] = any(row["failed"] for row in rows)
