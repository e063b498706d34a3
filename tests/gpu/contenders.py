"""Whole networks on one GPU, by minigrad and by PyTorch: a training step and inference, run eagerly or replayed.

A contender is made by a function of (network, batch size, precision) and says how one step is taken; all train the
same layers on the same batches, which lie on the device.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import minigrad
from minigrad import Tensor, device, graph, models, no_grad, optim
from minigrad.nn import functional as F
from tests.benchmarks import tasks

__all__ = ["CONTENDERS", "PRECISIONS", "captured_by_torch", "torch_compiled", "torch_waits", "training_step"]

PRECISIONS = "float32", "tf32", "bfloat16"
DEVICE = "cuda"
DATA = 8  # batches to take in turn
WARM = 3  # steps on a stream of their own before PyTorch captures


class Contender(NamedTuple):
    network: Any
    step: Callable  # (number): one step of training on a batch
    infer: Callable  # (number): the network on a batch
    wait: Callable  # until the device has done all


def training_step(network, optimizer, cross_entropy, autocast=contextlib.nullcontext):
    """A training step, written alike for both."""

    def step(x, y):
        optimizer.zero_grad()
        with autocast():
            loss = cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _contender(network, step, data, nothing_recorded, autocast, wait, captured=lambda call: call):
    """step and infer(x) on batches in turn, each by way of `captured`."""

    def infer(x):
        with nothing_recorded(), autocast():
            return network(x)

    step, infer = captured(step), captured(infer)
    return Contender(network, lambda i: step(*data[i % DATA]), lambda i: infer(data[i % DATA][0]), wait)


# ---- minigrad --------------------------------------------------------------------------------------------------------


def _ours(name, size, precision, captured):
    network, kind = models.build(name, tasks.SHAPES[name]).to(DEVICE), tasks.OPTIMIZERS[name]
    optimizer = getattr(optim, kind)(network.parameters(), **tasks.OPTIONS[kind])
    data = [(Tensor(x).to(DEVICE), Tensor(y).to(DEVICE)) for x, y in tasks.batches(name, size, DATA)]
    modes = {"tf32": minigrad.tf32, "bfloat16": lambda: minigrad.autocast("bfloat16")}
    mode = modes.get(precision, contextlib.nullcontext)
    step = training_step(network, optimizer, F.cross_entropy, mode)

    def whole(*batch):  # backward computes in TF32, too
        with minigrad.tf32(precision == "tf32"):
            return step(*batch)

    return _contender(network, whole, data, no_grad, mode, lambda: device.synchronize(DEVICE), captured)


def eager(name, size, precision):
    return _ours(name, size, precision, lambda call: call)


def replayed(name, size, precision):
    return _ours(name, size, precision, graph.capture)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def torch_waits():
    """Wait until the device has done what PyTorch told it."""
    import torch

    if DEVICE != "cpu":
        torch.cuda.synchronize()


def captured_by_torch(call):
    """The call as a CUDA graph, captured at its first use: a whole step, optimiser included."""
    import torch

    state: dict[str, Any] = {}

    def replay(*batch):
        if not state:
            state["inputs"] = [x.clone() for x in batch]
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM):
                    call(*state["inputs"])
            torch.cuda.current_stream().wait_stream(stream)
            state["graph"] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(state["graph"]):
                state["out"] = call(*state["inputs"])
        for inside, x in zip(state["inputs"], batch, strict=True):
            inside.copy_(x)
        state["graph"].replay()
        return state["out"]

    return replay


def _compiled(call):
    import torch

    return torch.compile(call, mode="reduce-overhead")


def _theirs(name, size, precision, layout, captured=None):
    import torch

    memory_format = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}[layout]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    network = tasks.built(torch.nn, tasks.LAYERS[name]).to(DEVICE, memory_format=memory_format)
    kind = tasks.OPTIMIZERS[name]
    more = {"fused": True, **({"capturable": True} if kind == "Adam" else {})} if captured else {}
    optimizer = getattr(torch.optim, kind)(network.parameters(), **tasks.OPTIONS[kind], **more)
    laid_out = lambda x: torch.from_numpy(x).to(DEVICE, memory_format=memory_format)
    data = [(laid_out(x), torch.from_numpy(y).to(DEVICE)) for x, y in tasks.batches(name, size, DATA)]
    options = {
        "device_type": DEVICE,
        "dtype": torch.bfloat16,
        "enabled": precision == "bfloat16",
        "cache_enabled": captured is None,
    }
    autocast = lambda: torch.autocast(**options)
    step = training_step(network, optimizer, torch.nn.functional.cross_entropy, autocast)
    return _contender(network, step, data, torch.no_grad, autocast, torch_waits, captured or (lambda call: call))


def torch_eager(layout):
    return lambda name, size, precision: _theirs(name, size, precision, layout)


def torch_graph(layout):
    return lambda name, size, precision: _theirs(name, size, precision, layout, captured_by_torch)


def torch_compiled(layout):
    return lambda name, size, precision: _theirs(name, size, precision, layout, _compiled)


CONTENDERS = {  # the fastest of PyTorch's own layouts counts, in each of its three ways
    "minigrad": eager,
    "minigrad, graph": replayed,
    **{f"torch {layout}": torch_eager(layout) for layout in ("NCHW", "NHWC")},
    **{f"torch graph {layout}": torch_graph(layout) for layout in ("NCHW", "NHWC")},
}
