"""Training steps on the CPU beside PyTorch: python tests/benchmarks/cpu.py [--models ...] [--write]

Each contender is a process of its own; rounds alternate between them, so that a drift of the machine's speed meets
both. A step is forward, backward and optimiser on one batch. The median over all steps counts, and the ratio of
medians. --write stores the figures in tests/benchmarks/results/cpu.json, from which the README's table is made.

PyTorch runs eagerly with its default settings and the same number of threads.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "cpu.json"
OPTIMIZERS = {"keras-cnn": "Adam", "lenet": "SGD", "mnist-net": "Adam", "resnet": "SGD"}
SHAPES = {"keras-cnn": (1, 28, 28), "lenet": (1, 28, 28), "mnist-net": (1, 28, 28), "resnet": (3, 32, 32)}
OPTIONS = {"Adam": {"lr": 1e-3}, "SGD": {"lr": 0.01, "momentum": 0.9}}


def batches(model, size, count):
    import numpy as np

    random = np.random.default_rng(0)
    for _ in range(count):
        yield random.standard_normal((size, *SHAPES[model]), dtype=np.float32), random.integers(0, 10, size)


def minigrad_step(model, size, threads):
    import minigrad
    from minigrad import models, nn, optim
    from minigrad_kernels.toolchain import set_threads

    set_threads(threads)
    minigrad.manual_seed(0)
    network = models.build(model, SHAPES[model])
    optimizer = getattr(optim, OPTIMIZERS[model])(network.parameters(), **OPTIONS[OPTIMIZERS[model]])
    data = [(minigrad.Tensor(x), minigrad.Tensor(y)) for x, y in batches(model, size, 8)]
    return step_of(network, optimizer, nn.functional.cross_entropy, data)


def torch_step(model, size, threads):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network = torch_networks(torch)[model]()
    optimizer = getattr(torch.optim, OPTIMIZERS[model])(network.parameters(), **OPTIONS[OPTIMIZERS[model]])
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches(model, size, 8)]
    return step_of(network, optimizer, torch.nn.functional.cross_entropy, data)


def step_of(network, optimizer, cross_entropy, data):
    """The same loop for both: their interfaces are alike."""

    def step(i):
        x, y = data[i % len(data)]
        optimizer.zero_grad()
        cross_entropy(network(x), y).backward()
        optimizer.step()

    return step


def torch_networks(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels, filters, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(filters)
            self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(filters)
            self.shortcut = nn.Identity()
            if stride != 1 or channels != filters:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
                )

        def forward(self, x):
            out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(out + self.shortcut(x))

    def conv(*args, **kwargs):
        return nn.Conv2d(*args, **kwargs), nn.ReLU()

    def dense(*args):
        return nn.Linear(*args), nn.ReLU()

    def resnet():
        stages, channels = [], 64
        for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            stages += [Block(channels, filters, stride), Block(filters, filters, 1)]
            channels = filters
        stem = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
        return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    pool, flatten = lambda: nn.MaxPool2d(2), nn.Flatten
    return {
        "keras-cnn": lambda: nn.Sequential(
            *conv(1, 32, 3), pool(), *conv(32, 64, 3), pool(), flatten(), *dense(1600, 64), nn.Linear(64, 10)
        ),
        "lenet": lambda: nn.Sequential(
            *conv(1, 6, 5, padding=2), pool(), *conv(6, 16, 5), pool(), flatten(),
            *dense(400, 120), *dense(120, 84), nn.Linear(84, 10),
        ),
        "mnist-net": lambda: nn.Sequential(
            *conv(1, 32, 3), *conv(32, 64, 3), pool(), nn.Dropout(0.25), flatten(),
            *dense(9216, 128), nn.Dropout(0.5), nn.Linear(128, 10),
        ),
        "resnet": resnet,
    }  # fmt: skip


def serve(engine, model, size, threads):
    """Run as many steps as each line of standard input says; answer with the seconds of each."""
    step = {"minigrad": minigrad_step, "torch": torch_step}[engine](model, size, threads)
    for line in sys.stdin:
        seconds = []
        for i in range(int(line)):
            start = time.perf_counter()
            step(i)
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


def start(engine, model, size, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--serve", engine, model, str(size), str(threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(process, steps):
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def compare(model, size, threads, seconds):
    """Median step of each contender, in seconds."""
    workers = {engine: start(engine, model, size, threads) for engine in ("minigrad", "torch")}
    try:
        steps = {}
        for engine, worker in workers.items():
            ask(worker, 5)
            steps[engine] = max(1, int(seconds / 10 / statistics.median(ask(worker, 3))))
        times = {engine: [] for engine in workers}
        for _ in range(10):
            for engine, worker in workers.items():
                times[engine] += ask(worker, steps[engine])
    finally:
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    return {engine: statistics.median(values) for engine, values in times.items()}


def versions():
    import llvmlite
    import numba
    import numpy
    import torch

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    modules = {"numpy": numpy, "numba": numba, "llvmlite": llvmlite, "torch": torch}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: module.__version__ for name, module in modules.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10, help="measured time of each contender")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        for threads in arguments.threads:
            found = compare(model, arguments.batch_size, threads, arguments.seconds)
            ours, theirs = (1000 * found[engine] for engine in ("minigrad", "torch"))
            row = {"model": model, "batch_size": arguments.batch_size, "threads": threads}
            rows.append({**row, "minigrad_ms": round(ours, 2), "torch_ms": round(theirs, 2)})
            rows[-1]["ratio"] = round(theirs / ours, 2)
            print(f"{model:10} threads {threads}: minigrad {ours:.2f} ms, torch {theirs:.2f} ms", rows[-1]["ratio"])
    if arguments.write:
        RESULTS.write_text(json.dumps({**versions(), "steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4], *map(int, sys.argv[4:6]))
    else:
        main()
