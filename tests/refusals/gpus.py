"""What is refused where there are GPUs, two of the stand-in: mixed devices, labels found later, memory, streams."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, cuda, device, graph, nn
from minigrad.nn import functional as F
from tests.stand_in_gpus import gpus

SETTING = partial(gpus, 2, capacity=1 << 22)


def x(place, *shape):
    return minigrad.ones(*shape, device=place)


def whole(place, *values):
    return Tensor(np.array(values)).to(place)


def conv(place):
    return nn.Conv2d(3, 4, 3).to(place)


MIXED = {
    "add": lambda one, other: x(one, 2) + x(other, 2),
    "matmul": lambda one, other: x(one, 2, 2) @ x(other, 2, 2),
    "linear": lambda one, other: F.linear(x(one, 2, 3), x(other, 4, 3)),
    "conv2d": lambda one, other: conv(other)(x(one, 1, 3, 5, 5)),
    "batch_norm": lambda one, other: nn.BatchNorm1d(3).to(other)(x(one, 2, 3)),
    "layer_norm": lambda one, other: nn.LayerNorm(3).to(other)(x(one, 2, 3)),
    "where": lambda one, other: F.where(x(one, 2) > 0, x(one, 2), x(other, 2)),
    "cat": lambda one, other: F.cat([x(one, 2), x(other, 2)]),
    "cross_entropy": lambda one, other: F.cross_entropy(x(one, 2, 3), whole(other, 0, 1)),
    "mse_loss": lambda one, other: F.mse_loss(x(one, 2), x(other, 2)),
    "embedding": lambda one, other: F.embedding(whole(one, 0, 1), x(other, 3, 2)),
    "index_select": lambda one, other: F.index_select(x(one, 3), 0, whole(other, 0, 1)),
    "gather": lambda one, other: F.gather(x(one, 3), 0, whole(other, 0, 1)),
}
PLACES = ("cuda:0", "cpu"), ("cpu", "cuda:0"), ("cuda:0", "cuda:1")


def mixed():
    for name, call in MIXED.items():
        for one, other in PLACES:
            words = rf"(?=.*{one})(?=.*{other}).*(wanted one device|move)"
            yield f"{name}: on {one} and {other}", partial(call, one, other), RuntimeError, words
    gradient = lambda: x("cuda:0", 2).requires_grad_().sum().backward(x("cpu"))
    yield "Tensor.backward: gradient on cpu", gradient, RuntimeError, "cuda:0"


def labels(loss, look):
    scores = minigrad.zeros(3, 3, device="cuda")
    found = loss(scores, whole("cuda", 0, 7, 1))
    return look(found)


def captured():
    step = graph.capture(lambda scores, target: F.cross_entropy(scores, target))
    good, scores = whole("cuda", 0, 1, 2), x("cuda", 3, 3)
    for _ in range(4):
        step(scores, good)
    assert step.graphs == 1
    return step(scores, whole("cuda", 0, 1, 9)).item()


LOOKS = {
    "item": lambda loss: loss.item(),
    "tolist": lambda loss: loss.tolist(),
    "numpy": lambda loss: loss.numpy(),
    "synchronize": lambda loss: device.synchronize("cuda"),
    "the CPU": lambda loss: loss.cpu(),
    "text": repr,
}


def later():
    words = r"cross_entropy: target\[1\] = 7 is not the number of a class; its loss and gradient are NaN \(found when"
    for how, look in LOOKS.items():
        yield f"cross_entropy: a label, seen by {how}", partial(labels, F.cross_entropy, look), ValueError, words
    yield "cross_entropy: a label in a graph", captured, ValueError, r"target\[2\] = 9 is not the number of a class"
    off = lambda: F.embedding(whole("cuda", 5), x("cuda", 3, 2)).tolist()
    yield "embedding: an index on a GPU", off, IndexError, "embedding: the indices run from 5 to 5, wanted 0 to 2"
    off = lambda: F.one_hot(whole("cuda", 5), 3).tolist()
    yield "one_hot: a class on a GPU", off, IndexError, "one_hot: "
    off = lambda: x("cuda", 3)[whole("cuda", -4)].tolist()
    yield "Tensor[]: an index on a GPU", off, IndexError, "getitem: "


def places():
    full = "cuda:0 is out of memory: wanted .* bytes, but .* are free.*use a smaller batch"
    yield "zeros: too large for a GPU", lambda: x("cuda", 10**7), MemoryError, full
    yield "add: too large for a GPU", lambda: x("cuda", 4000, 1) + x("cuda", 1, 4000), MemoryError, f"add: {full}"
    beyond = lambda: x("cuda:2", 2)
    yield (
        "zeros: a GPU that is not here",
        beyond,
        RuntimeError,
        "device is 'cuda:2', but the GPUs .*: 'cuda:0', 'cuda:1'",
    )
    yield "Module.to: no such GPU", lambda: conv("cuda:9"), RuntimeError, "device is 'cuda:9'"
    yield "cuda.stream: no stream", lambda: cuda.stream(3).__enter__(), TypeError, "stream"
    yield "np.asarray: of a GPU", lambda: Tensor(np.ones(2)).cuda().requires_grad_().numpy(), RuntimeError, "numpy: "
    other = lambda: graph.capture(lambda a: a + a, device="cuda:0")(x("cuda:1", 2))
    yield "Captured: on another GPU", other, RuntimeError, "Tensor 0 of the arguments is on cuda:1, the graph on cuda:0"


REFUSALS = [*mixed(), *later(), *places()]
