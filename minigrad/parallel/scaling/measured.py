"""Networks of minigrad.models for the model: their parameters, the cost of their layers, what their tape keeps.

The tape itself says how much waits for backward: after a forward pass each of its nodes holds the arrays that its
gradient rules will ask for. Passes with two batch sizes give what one image adds; what does not grow, such as the
weights, is counted elsewhere.
"""

import time

import numpy as np

from minigrad_kernels.errors import ShapeError

from ... import models, nn, ops, optim
from ...tensor import Tensor
from .network import Network, backward_costs, backward_share, shares

__all__ = ["OWN", "kept_bytes", "own", "step_seconds"]

CLASSES = 10
# name: (shape of an image, batch, milliseconds of a step on one GPU)
OWN = {
    "keras-cnn": ((1, 28, 28), 64, 1.0),
    "lenet": ((1, 28, 28), 64, 1.0),
    "mnist-net": ((1, 28, 28), 64, 1.0),
    "resnet": ((3, 32, 32), 128, 20.0),
}
SMALL, LARGE = 2, 6  # batches; batch norm wants more than one image
STEPS = 3


def own(name):
    """A Network of minigrad.models by its name, made and run once on the CPU."""
    shape, batch, milliseconds = OWN[name]
    return network_of(models.build(name, shape, CLASSES), shape, name, batch, milliseconds / 1000, "assumed")


def network_of(model, shape, name, batch, seconds, origin):
    """The Network of a model that maps images of shape (C, H, W) to scores.

    Errors  ValueError for a model without parameters
    """
    rows = nn.summary(model, (1, *shape)).rows
    macs = [row.macs for row in rows]
    done = {}
    for row, share in zip(rows, shares(backward_costs(macs)), strict=True):
        done.setdefault(row.path, share)  # the first call of a layer is the last of which backward hears
    named = [(path.rpartition(".")[0] or type(model).__name__, value) for path, value in model.named_parameters()]
    arriving = [(value.numel(), done.get(path, 1.0)) for path, value in reversed(named)]
    if not arriving:
        raise ShapeError(f"network: {name} has no parameters, so there is nothing to exchange")
    sizes, ready = zip(*arriving, strict=True)
    less, more = (kept_bytes(model, *_batch(shape, count)) for count in (SMALL, LARGE))
    moving = 2 * max(row.nbytes for row in rows)
    return Network(
        name, sizes, ready, backward_share(macs), (more - less) / (LARGE - SMALL), moving, batch, seconds, origin
    )


def _batch(shape, count):
    random = np.random.default_rng(0)
    images = Tensor(random.standard_normal((count, *shape), dtype=np.float32))
    return images, Tensor(random.integers(0, CLASSES, count))


def kept_bytes(model, images, labels):
    """Bytes of the arrays that the tape of a training step holds between forward and backward, each memory once.

    Parameters and images count where a rule will ask for them. The running statistics are as before afterwards.
    """
    state = {name: value.copy() for name, value in _buffers(model)}
    loss = ops.cross_entropy(model(images), labels)
    for name, value in _buffers(model):
        value[...] = state[name]
    found = {}
    for node in _nodes(loss):
        for array in _arrays(node.kept.values()):
            memory = _memory(array)
            found[id(memory)] = max(found.get(id(memory), 0), array.nbytes)
    return sum(found.values())


def _buffers(model):
    return [(name, value.data) for name, value in model.named_buffers() if value is not None]


def _nodes(tensor):
    """All nodes of the tape below a Tensor."""
    nodes, stack = set(), [tensor.node]
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes.add(node)
            stack += [target[0] for *_, target in node.edges if not isinstance(target, Tensor)]
    return nodes


def _arrays(values):
    for value in values:
        if isinstance(value, tuple):
            yield from _arrays(value)
        elif isinstance(value, Tensor):
            yield value.data
        elif isinstance(value, np.ndarray):
            yield value


def _memory(array):
    """The object whose memory an array looks at."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def step_seconds(name, batch):
    """Seconds of a training step (forward, backward, Adam) of a network of minigrad.models on this CPU, the median."""
    shape = OWN[name][0]
    model = models.build(name, shape, CLASSES)
    optimizer = optim.Adam(model.parameters())
    images, labels = _batch(shape, batch)
    times = []
    for _ in range(STEPS + 1):  # the first compiles
        begun = time.perf_counter()
        optimizer.zero_grad()
        ops.cross_entropy(model(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begun)
    return sorted(times[1:])[STEPS // 2]
