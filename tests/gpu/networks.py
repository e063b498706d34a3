"""Training and inference of whole networks beside PyTorch eager on the same GPU, in images a second."""

import statistics
import time

import numpy as np

from minigrad import Tensor, device, models, no_grad, optim
from minigrad.nn import functional as F

from ..benchmarks import cpu

BATCHES = {"keras-cnn": (64, 512), "lenet": (64, 512), "mnist-net": (64, 512), "resnet": (128,)}
INFERENCE = (1, 512)
ROUNDS, SECONDS, DATA = 7, 0.3, 8  # rounds of so many seconds for each contender; batches to take in turn


def _data(name, size):
    return list(cpu.batches(name, size, DATA))


def _ours(name, size):
    network = models.build(name, cpu.SHAPES[name]).to("cuda")
    optimizer = getattr(optim, cpu.OPTIMIZERS[name])(network.parameters(), **cpu.OPTIONS[cpu.OPTIMIZERS[name]])
    data = [(Tensor(x).cuda(), Tensor(y).cuda()) for x, y in _data(name, size)]

    def infer(i):
        with no_grad():
            network(data[i % DATA][0])

    return network, cpu.step_of(network, optimizer, F.cross_entropy, data), infer, lambda: device.synchronize("cuda")


def _theirs(name, size):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # both compute in float32
    torch.backends.cudnn.benchmark = True
    network = cpu.torch_networks(torch)[name]().cuda()
    options = cpu.OPTIONS[cpu.OPTIMIZERS[name]]
    optimizer = getattr(torch.optim, cpu.OPTIMIZERS[name])(network.parameters(), **options)
    data = [(torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()) for x, y in _data(name, size)]

    def infer(i):
        with torch.no_grad():
            network(data[i % DATA][0])

    return network, cpu.step_of(network, optimizer, torch.nn.functional.cross_entropy, data), infer, torch.cuda.synchronize


def _timed(call, wait, seconds):
    """Seconds of one call, from as many as take so long."""
    wait()
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for _ in range(5):
            call(count)
            count += 1
        if count % 50 == 0:
            wait()
    wait()
    return (time.perf_counter() - begun) / count


def _compared(calls, size):
    """Images a second of each contender, {name: (call, wait)}, the two taking turns; medians over rounds."""
    times = {name: [] for name in calls}
    for call, wait in calls.values():
        _timed(call, wait, SECONDS)  # compiles, loads and chooses
    for _ in range(ROUNDS):
        for name, (call, wait) in calls.items():
            times[name].append(_timed(call, wait, SECONDS))
    rates = {name: round(size / statistics.median(values)) for name, values in times.items()}
    return rates | {"ratio": round(rates["minigrad"] / rates["torch"], 3)}


def run():
    rows = []
    for name, sizes in BATCHES.items():
        for task, size in [*(("train", size) for size in sizes), *(("infer", size) for size in INFERENCE)]:
            calls = {}
            for contender, make in (("minigrad", _ours), ("torch", _theirs)):
                network, step, infer, wait = make(name, size)
                network.train(task == "train")
                calls[contender] = (step if task == "train" else infer), wait
            row = {"network": name, "task": task, "batch": size} | _compared(calls, size)
            rows.append(row)
            print(f"  {row}", flush=True)
    return {"images_per_second": rows, "failed": not all(np.isfinite(row["ratio"]) for row in rows)}
