"""Whole networks beside PyTorch on the same GPU, op by op and as graphs: speed and memory.

A contender is made by a function of (network, batch size, precision) and says how one step is taken; all train the
same layers on the same batches, which lie on the device.
"""

import contextlib
import gc
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from cupy.cuda import runtime

import minigrad
from minigrad import Tensor, device, graph, models, no_grad, optim
from minigrad.nn import functional as F
from tests.benchmarks import tasks

from .timing import in_turns

DEVICE = "cuda"
NETWORKS, SIZES, PRECISIONS = tuple(tasks.LAYERS), (64, 512), ("float32", "tf32", "bfloat16")
INFERENCE = (1, 512)  # batch sizes
ROUNDS, SECONDS = 5, 0.05  # for each contender
DATA = 8  # batches to take in turn
WARM = 3  # steps on a stream of their own before PyTorch captures


class Contender(NamedTuple):
    network: Any
    step: Callable  # (number): one step of training on a batch
    infer: Callable  # (number): the network on a batch


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


def as_it_is(call):
    return call


def _contender(network, step, data, nothing_recorded, autocast, captured):
    """step and infer(x) on batches in turn, each by way of `captured`."""

    def infer(x):
        with nothing_recorded(), autocast():
            return network(x)

    step, infer = captured(step), captured(infer)
    return Contender(network, lambda i: step(*data[i % DATA]), lambda i: infer(data[i % DATA][0]))


def _ours(name, size, precision, captured=as_it_is):
    network, kind = models.build(name, tasks.SHAPES[name]).to(DEVICE), tasks.OPTIMIZERS[name]
    optimizer = getattr(optim, kind)(network.parameters(), **tasks.OPTIONS[kind])
    data = [(Tensor(x).to(DEVICE), Tensor(y).to(DEVICE)) for x, y in tasks.batches(name, size, DATA)]
    autocast = lambda: minigrad.autocast("bfloat16") if precision == "bfloat16" else contextlib.nullcontext()
    step = training_step(network, optimizer, F.cross_entropy, autocast)
    tf32 = lambda call: captured(minigrad.tf32(precision == "tf32")(call))  # in backward, too
    return _contender(network, step, data, no_grad, autocast, tf32)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


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


def _theirs(name, size, precision, layout, captured=as_it_is):
    import torch

    memory_format = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}[layout]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    network = tasks.built(torch.nn, tasks.LAYERS[name]).to(DEVICE, memory_format=memory_format)
    kind, eager = tasks.OPTIMIZERS[name], captured is as_it_is
    more = {} if eager else {"fused": True, **({"capturable": True} if kind == "Adam" else {})}
    optimizer = getattr(torch.optim, kind)(network.parameters(), **tasks.OPTIONS[kind], **more)
    laid_out = lambda x: torch.from_numpy(x).to(DEVICE, memory_format=memory_format)
    data = [(laid_out(x), torch.from_numpy(y).to(DEVICE)) for x, y in tasks.batches(name, size, DATA)]
    autocast = partial(torch.autocast, DEVICE, torch.bfloat16, precision == "bfloat16", cache_enabled=eager)
    step = training_step(network, optimizer, torch.nn.functional.cross_entropy, autocast)
    return _contender(network, step, data, torch.no_grad, autocast, captured)


LAYOUTS, WAYS = ("NCHW", "NHWC"), {"torch": as_it_is, "torch graph": captured_by_torch}
CONTENDERS = {"minigrad": _ours, "minigrad, graph": partial(_ours, captured=graph.capture)}
for (way, captured), layout in product(WAYS.items(), LAYOUTS):  # the faster layout counts
    CONTENDERS[f"{way} {layout}"] = partial(_theirs, layout=layout, captured=captured)

# ---- the comparison --------------------------------------------------------------------------------------------------


def _free():
    """Bytes of the GPU's memory that are free once nothing that is not needed is held."""
    gc.collect()
    device.empty_cache()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
    return runtime.memGetInfo()[0]


def compared(makers, name, task, size, precision):
    """The row of contenders {name: make} that take turns: medians over rounds; absent: those that failed, and why."""
    calls, taken, absent = {}, {}, {}
    for contender, make in makers.items():
        free = _free()
        try:
            made = make(name, size, precision)
            made.network.train(task == "train")
            call = made.step if task == "train" else made.infer
            in_turns({contender: call}, 1, 0)  # kernels are compiled and loaded
        except Exception as error:  # of a peer, or of memory; what there is, is compared
            absent[contender] = f"{type(error).__name__}: {error}"[:200]
        else:
            calls[contender], taken[contender] = call, free - runtime.memGetInfo()[0]
    rates = {contender: round(size / s, 1) for contender, s in in_turns(calls, ROUNDS, SECONDS).items()}
    row = {"network": name, "task": task, "batch": size, "precision": precision}
    row |= {"images_per_second": rates, "bytes": taken, "ratios": ratios(rates)}
    return row | ({"absent": absent} if absent else {})


def ratios(rates):
    """How many times as fast minigrad is as PyTorch's faster layout, run in the same way and in another."""
    found = {}
    for ours, theirs in (("", ""), (", graph", ""), (", graph", " graph")):
        best = max(rates.get(f"torch{theirs} {layout}", 0) for layout in LAYOUTS)
        if f"minigrad{ours}" in rates and best:
            found[f"minigrad{ours} / torch{theirs}"] = round(rates[f"minigrad{ours}"] / best, 3)
    return found


def networks(found):
    """Training, those cases that the goals name first, and inference."""
    training = [(name, "train", size, kind) for size, name, kind in product(SIZES, NETWORKS, PRECISIONS)]
    found["rows"] = rows = []
    for case in (*training, *product(NETWORKS, ["infer"], INFERENCE, ["float32"])):
        rows.append(compared(CONTENDERS, *case))
        print(f"  {rows[-1]}", flush=True)
    found["failed"] = any(name.startswith("minigrad") for row in rows for name in row.get("absent", ()))
