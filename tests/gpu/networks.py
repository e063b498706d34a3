"""Training and inference of whole networks beside PyTorch eager on the same GPU, in images a second."""

import statistics
import time
from functools import partial

from minigrad import Tensor, device, models, no_grad, optim
from minigrad.nn import functional as F

from ..benchmarks import tasks

BATCHES = {"keras-cnn": (64, 512), "lenet": (64, 512), "mnist-net": (64, 512), "resnet": (128,)}
INFERENCE = (1, 512)
ROUNDS, SECONDS = 7, 0.3  # for each contender
DATA, BURST = 8, 5  # batches to take in turn; calls between two looks at the clock


def _data(name, size):
    return list(tasks.batches(name, size, DATA))


def _ours(name, size):
    network = models.build(name, tasks.SHAPES[name]).to("cuda")
    optimizer = getattr(optim, tasks.OPTIMIZERS[name])(network.parameters(), **tasks.OPTIONS[tasks.OPTIMIZERS[name]])
    data = [(Tensor(x).cuda(), Tensor(y).cuda()) for x, y in _data(name, size)]

    def infer(i):
        with no_grad():
            network(data[i % DATA][0])

    return network, tasks.step_of(network, optimizer, F.cross_entropy, data), infer, lambda: device.synchronize("cuda")


def _theirs(name, size, channels_last):
    import torch

    layout = torch.channels_last if channels_last else torch.contiguous_format
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # both compute in float32
    torch.backends.cudnn.benchmark = True
    network = tasks.built(torch.nn, tasks.LAYERS[name]).cuda().to(memory_format=layout)
    options = tasks.OPTIONS[tasks.OPTIMIZERS[name]]
    optimizer = getattr(torch.optim, tasks.OPTIMIZERS[name])(network.parameters(), **options)
    laid_out = lambda x: torch.from_numpy(x).cuda().to(memory_format=layout)
    data = [(laid_out(x), torch.from_numpy(y).cuda()) for x, y in _data(name, size)]

    def infer(i):
        with torch.no_grad():
            network(data[i % DATA][0])

    step = tasks.step_of(network, optimizer, torch.nn.functional.cross_entropy, data)
    return network, step, infer, torch.cuda.synchronize


CONTENDERS = {
    "minigrad": _ours,
    "NCHW": partial(_theirs, channels_last=False),
    "NHWC": partial(_theirs, channels_last=True),
}


def _timed(call, wait, seconds):
    """Seconds of one call, from as many as take so long."""
    wait()
    begun, count = time.perf_counter(), 0
    while not count or time.perf_counter() - begun < seconds:
        for _ in range(BURST):
            call(count)
            count += 1
        if count % (10 * BURST) == 0:  # the device lags behind, but not by much
            wait()
    wait()
    return (time.perf_counter() - begun) / count


def _compared(calls, size):
    """Images a second of each contender, {name: (call, wait)}, that take turns; medians over rounds."""
    times = {name: [] for name in calls}
    for call, wait in calls.values():
        _timed(call, wait, SECONDS)  # compiles, loads and chooses
    for _ in range(ROUNDS):
        for name, (call, wait) in calls.items():
            times[name].append(_timed(call, wait, SECONDS))
    seconds = {name: statistics.median(values) for name, values in times.items()}
    ours, layout = seconds.pop("minigrad"), min(seconds, key=seconds.get)  # PyTorch's faster one
    theirs = seconds[layout]
    rates = {"minigrad": round(size / ours, 1), "torch": round(size / theirs, 1)}
    return rates | {"torch_layout": layout, "ratio": round(theirs / ours, 3)}


def run(found):
    found["images_per_second"] = rows = []
    for name, sizes in BATCHES.items():
        for task, size in [*(("train", size) for size in sizes), *(("infer", size) for size in INFERENCE)]:
            calls = {}
            for contender, make in CONTENDERS.items():
                network, step, infer, wait = make(name, size)
                network.train(task == "train")
                calls[contender] = (step if task == "train" else infer), wait
            row = {"network": name, "task": task, "batch": size} | _compared(calls, size)
            rows.append(row)
            print(f"  {row}", flush=True)
