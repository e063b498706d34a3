"""Trainings that repeat for a long time, and all that must not grow meanwhile: for tests and tests/reliability/soak.py.

A round ends where everything is as it was a round before: the loader's thread has ended, nothing of a step is alive.
The cyclic collector is off, so that whatever only it would find piles up and is seen.
"""

import contextlib
import gc
import os
import sys
from pathlib import Path

import minigrad
from minigrad import Tensor, checkpoint, data, device, nn, no_grad, optim, recompute
from minigrad.core.tape import Node
from minigrad.graph import capture
from minigrad.nn import functional as F
from minigrad_kernels import launcher

__all__ = ["BATCHES", "OnCpu", "OnGpu", "JSON", "OF_STAND_INS", "counted", "grown", "soak"]

BATCHES, SIZE = 8, 16  # of a round


def counted(machine=None):
    """How much there is of what must not grow; `machine` is that of the stand-in for GPUs."""
    kinds = {"tensors": Tensor, "nodes": Node}
    if machine is not None:
        import cupy

        kinds |= {"events": cupy.cuda.Event, "streams": cupy.cuda.Stream, "graphs": cupy.cuda.Graph}
    everything = gc.get_objects()
    found = {name: sum(issubclass(type(one), kind) for one in everything) for name, kind in kinds.items()}
    everything.clear()  # it may hold what holds it
    statistics = device.memory_statistics()
    found |= {"pool bytes": statistics["reserved_bytes"], "pool bytes in use": statistics["used_bytes"]}
    if machine is not None:
        found |= {"GPU bytes in use": machine.devices[0].used, "GPU bytes": machine.devices[0].held}
    for name, folder in (("files", "/proc/self/fd"), ("threads", "/proc/self/task")):
        if os.path.isdir(folder):
            found[name] = len(os.listdir(folder))
    return found


def of_python():
    """(the same of Python's own memory, objects that only the collector found, which gives up Python's free lists)."""
    cycles = gc.collect()
    return {"blocks of Python": sys.getallocatedblocks(), "resident bytes": resident()}, cycles


def resident():
    """Bytes of the process that lie in memory; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


class OnCpu:
    """Rounds of eager steps: augmented batches of a background thread, dropout, recomputed layers, clipping.

    Each ends with an evaluation, each tenth with a checkpoint that is loaded again.
    """

    def __init__(self, folder):
        minigrad.manual_seed(0)
        self.folder, self.rounds = folder, 0
        images = data.digits()[0].subset(slice(BATCHES * SIZE))
        augment = data.Compose([data.PadCrop(1), data.Flip(), data.Normalize(images.mean, images.std)])
        self.loader = data.Loader(images, SIZE, shuffle=True, transform=augment)
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.rest = nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))
        self.model = nn.Sequential(self.first, self.rest)
        self.optimizer = optim.Adam(self.model.parameters())

    def round(self):
        self.rounds += 1
        for x, y in self.loader:
            self.optimizer.zero_grad()
            F.cross_entropy(self.rest(recompute(self.first, x)), y).backward()
            optim.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        with no_grad():
            self.model.eval()
            self.model(x)
            self.model.train()
        if self.rounds % 10 == 0:
            checkpoint.save(self.folder, self.model, self.optimizer, keep=2)
            checkpoint.load(self.folder, self.model, self.optimizer)


class OnGpu:
    """Rounds on a GPU: eager steps on batches that are sent there, replays of a graph, every tenth time a new graph."""

    def __init__(self, machine):
        minigrad.manual_seed(0)
        self.machine, self.rounds = machine, 0
        images = data.digits()[0].subset(slice(BATCHES * SIZE))
        self.loader = data.Loader(images, SIZE, shuffle=True, transform=lambda x, generator: x, device="cuda")
        layers = nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 10)
        self.model = nn.Sequential(*layers).to("cuda")
        self.optimizer = optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.captured = capture(self.step)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def round(self):
        self.rounds += 1
        for number, (x, y) in enumerate(self.loader):
            (self.step if number % 2 else self.captured)(x, y)
        if self.rounds % 10 == 0:
            self.captured.reset()
        self.machine.launches.clear()  # of which the stand-in keeps a list
        self.machine.graph_launches.clear()


@contextlib.contextmanager
def bare():
    """Cycles pile up inside, and plans of launchers are soon complete: it grows no more than that."""
    most, launcher.MOST = launcher.MOST, 16
    try:
        yield
    finally:
        launcher.MOST = most
        gc.enable()


def soak(training, rounds, machine=None, samples=10, progress=lambda rounds: rounds):
    """([what was counted after ten rounds, and then up to `samples` times], objects that only the collector found).

    Rounds between two counts are a multiple of ten, so that each is taken right after a checkpoint or a new graph.
    """
    every = max(10, rounds // samples // 10 * 10)
    with bare():
        for _ in range(10):
            training.round()
        python, _ = of_python()
        gc.disable()
        found, cycles = [counted(machine) | python], 0
        for number in progress(range(1, rounds + 1)):
            training.round()
            if number % every == 0:
                found.append(counted(machine))
                python, more = of_python()
                found[-1] |= python
                cycles += more
        return found, cycles


SLACK = {"blocks of Python": 1000, "resident bytes": 8 << 20}  # what goes up and down
JSON = 100  # objects in cycles that Python's own encoder leaves for each checkpoint, at most
OF_STAND_INS = {"blocks of Python", "resident bytes"}  # which keep books


def grown(found):
    """{name: by how much} of what is more at the end than after ten rounds."""
    last = {name: found[-1][name] - found[0][name] for name in found[0]}
    return {name: n for name, n in last.items() if n > SLACK.get(name, 0)}
