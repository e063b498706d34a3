"""What trains: minigrad, PyTorch as it comes, PyTorch tuned. Each is imported by the process that is to run it.

An engine is made with the number of threads, which imports its library. `training(task, size)` gives a function that
does step i and returns the loss, and the number of parameters; `epochs` one that runs a whole epoch with the loader.
"""

import ctypes
import math
import os
from functools import partial

import numpy as np
from tasks import BATCHES, built, data, step_of


class Eager:
    """A library of PyTorch's interface: `nn` and `optim` are its modules."""

    fused = {}

    def training(self, task, size):
        model, optimizer = self.prepared(task)
        images, labels = data(task.shape, size)
        images, labels = [self.images(array) for array in images], [self.tensor(array) for array in labels]
        pairs = [(images[i % BATCHES], y) for i, y in enumerate(labels)]
        step = step_of(model, optimizer, self.nn.functional.cross_entropy, pairs)
        return step, sum(math.prod(parameter.shape) for parameter in model.parameters())

    def epochs(self, task, size, images, labels):
        model, optimizer = self.prepared(task)
        loader, loss_of = self.loader(images, labels, size), self.nn.functional.cross_entropy

        def epoch(most=None):
            """The losses of the first and of the last batch; of `most` batches."""
            first = None
            for number, (x, y) in enumerate(loader):
                if number == most:
                    break
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
                first = loss if first is None else first
            return first.item(), loss.item()

        return epoch

    def prepared(self, task):
        model = self.model(task)
        optimizer = getattr(self.optim, task.optimizer)
        return model, optimizer(model.parameters(), **task.options, **self.fused)


class Minigrad(Eager):
    def __init__(self, threads, workers=0):
        import minigrad
        from minigrad_kernels.toolchain import set_threads

        set_threads(threads)
        minigrad.manual_seed(0)
        self.nn, self.optim, self.tensor = minigrad.nn, minigrad.optim, minigrad.Tensor

    def model(self, task):
        from minigrad import models

        if task.name in models.MODELS:
            return models.build(task.name, task.shape)
        return built(self.nn, task.layers)

    def images(self, array):
        # As minigrad's loader delivers them: channels last in memory.
        return self.tensor(np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))

    def loader(self, images, labels, size):
        from minigrad.data import Dataset, Loader, Normalize

        dataset = Dataset(images, labels, tuple("0123456789"))
        return Loader(dataset, size, shuffle=True, transform=Normalize(dataset.mean, dataset.std))


class Torch(Eager):
    """tuned: an optimiser in one pass, and a heap that returns no memory to the system."""

    def __init__(self, threads, workers=0, tuned=False, channels_last=False):
        if tuned:
            keep_memory()
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.torch, self.nn, self.optim, self.tensor = torch, torch.nn, torch.optim, torch.from_numpy
        self.workers, self.channels_last = workers, channels_last
        self.fused = {"fused": True} if tuned else {}

    def model(self, task):
        return self._laid_out(built(self.nn, task.layers))

    def images(self, array):
        return self._laid_out(self.tensor(array))

    def _laid_out(self, thing):
        return thing.to(memory_format=self.torch.channels_last) if self.channels_last else thing

    def loader(self, images, labels, size):
        from torch.utils.data import DataLoader, TensorDataset

        scaled = (images / np.float32(255) - images.mean(dtype=np.float64) / 255) / (images.std(dtype=np.float64) / 255)
        dataset = TensorDataset(self.images(scaled.astype(np.float32)), self.tensor(labels))
        return DataLoader(dataset, size, shuffle=True, num_workers=self.workers)


def keep_memory():
    """Have glibc keep freed memory, and serve all sizes from it; True if it did. Without glibc nothing changes."""
    trim, pad, threshold = -1, -2, -3  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    kept = any(mallopt(threshold, size) for size in (1 << 30, 32 << 20))  # older ones refuse more than 32 MiB
    return bool(kept and mallopt(trim, (1 << 31) - 1) and mallopt(pad, 64 << 20))


def on_cpus(count):
    """Keep this process on so many CPUs: for libraries that ask for no number of threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def jax(threads, workers=0):
    on_cpus(threads)
    import peers_jax

    return peers_jax.Jax()


def tinygrad(threads, workers=0):
    os.environ.setdefault("DEV", "CPU")
    os.environ["NUM_CPU_THREADS"] = str(threads)
    import peers_tinygrad

    return peers_tinygrad.Tinygrad()


ENGINES = {
    "minigrad": Minigrad,
    "torch": Torch,
    "torch nchw": partial(Torch, tuned=True),
    "torch nhwc": partial(Torch, tuned=True, channels_last=True),
    "jax": jax,
    "tinygrad": tinygrad,
}
TORCH = "torch", "torch nchw", "torch nhwc"  # of which the fastest is PyTorch at its best
PEERS = "jax", "tinygrad"
