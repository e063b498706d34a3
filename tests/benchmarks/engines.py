"""What trains: minigrad, PyTorch as it comes, PyTorch tuned. Each is imported by the process that is to run it.

An engine is made with the number of threads, which imports its library. `training(task, size)` gives a function that
does step i and returns the loss, and the number of parameters.
"""

import ctypes
import math
import os
from functools import partial

import numpy as np
from tasks import BATCHES, built, data, training_step


class Eager:
    """A library of PyTorch's interface: `library`, its `nn` and `optim`. Ranks share a batch and have one model."""

    fused: dict = {}
    rank, ranks = 0, 1

    def training(self, task, size):
        model, step = self.prepared(task)
        own = slice(self.rank * size // self.ranks, (self.rank + 1) * size // self.ranks)
        images, labels = data(task.shape, size)
        images, labels = [self.images(array[own]) for array in images], [self.tensor(array[own]) for array in labels]
        count = sum(math.prod(parameter.shape) for parameter in model.parameters())
        return lambda i: step(images[i % BATCHES], labels[i % len(labels)]), count

    def prepared(self, task):
        """(a model, its training step)."""
        model = self.model(task)
        optimizer = getattr(self.optim, task.optimizer)(model.parameters(), **task.options, **self.fused)
        return model, training_step(model, optimizer, self.nn.functional.cross_entropy)


class Minigrad(Eager):
    def __init__(self, threads):
        import minigrad
        from minigrad_kernels.toolchain import set_threads

        set_threads(threads)
        minigrad.manual_seed(0)
        self.library, self.nn, self.optim, self.tensor = minigrad, minigrad.nn, minigrad.optim, minigrad.Tensor
        self.clip = minigrad.optim.clip_grad_norm_

    def model(self, task):
        from minigrad import models

        if task.name in models.MODELS:
            return models.build(task.name, task.shape)
        return built(self.nn, task.layers)

    def images(self, array):
        # As minigrad's loader delivers them: channels last in memory.
        return self.tensor(np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))

    def loader(self, images, labels, size, workers):
        from minigrad.data import Dataset, Loader, Normalize

        dataset = Dataset(images, labels, tuple("0123456789"))
        return Loader(dataset, size, shuffle=True, transform=Normalize(dataset.mean, dataset.std))


class MinigradRanks(Minigrad):
    """A rank of several, by MPI."""

    def __init__(self, threads):
        super().__init__(threads)
        from minigrad import parallel

        self.world = parallel.init(timeout=600)  # rank 0 waits for its turn, and all others for rank 0
        self.rank, self.ranks = self.world.rank, self.world.size
        self.wrapped = parallel.DataParallel

    def model(self, task):
        return self.wrapped(super().model(task), self.world)

    def told(self, number):
        """The number that rank 0 gives."""
        return self.world.broadcast_object(number)


class Torch(Eager):
    """tuned: an optimiser in one pass, and a heap that returns no memory to the system."""

    def __init__(self, threads, tuned=False, channels_last=False):
        if tuned:
            keep_memory()
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.library, self.nn, self.optim, self.tensor = torch, torch.nn, torch.optim, torch.from_numpy
        self.clip = torch.nn.utils.clip_grad_norm_
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.fused = {"fused": True} if tuned else {}

    def model(self, task):
        return built(self.nn, task.layers).to(memory_format=self.layout)

    def images(self, array):
        return self.tensor(array).to(memory_format=self.layout)

    def loader(self, images, labels, size, workers):
        from torch.utils.data import DataLoader, TensorDataset

        scaled = (images / np.float32(255) - images.mean(dtype=np.float64) / 255) / (images.std(dtype=np.float64) / 255)
        dataset = TensorDataset(self.images(scaled.astype(np.float32)), self.tensor(labels))
        return DataLoader(dataset, size, shuffle=True, num_workers=workers)


class TorchRanks(Torch):
    """A rank of several, by gloo; mpiexec says which."""

    def __init__(self, threads):
        super().__init__(threads)
        self.rank, self.ranks = (int(os.environ[name]) for name in ("PMI_RANK", "PMI_SIZE"))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        self.library.distributed.init_process_group("gloo", rank=self.rank, world_size=self.ranks)

    def model(self, task):
        return self.nn.parallel.DistributedDataParallel(super().model(task))

    def told(self, number):
        value = self.library.tensor([number])
        self.library.distributed.broadcast(value, 0)
        return int(value)


def keep_memory():
    """Have glibc keep freed memory, and serve all sizes from it. Without glibc nothing changes."""
    trim, pad, threshold = -1, -2, -3  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt and any(mallopt(threshold, size) for size in (1 << 30, 32 << 20)):  # older ones refuse more than 32 MiB
        mallopt(trim, (1 << 31) - 1)
        mallopt(pad, 64 << 20)


def jax(threads):
    if hasattr(os, "sched_setaffinity"):  # it asks for no number of threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import peers_jax

    return peers_jax.Jax()


def tinygrad(threads):
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
    "minigrad ranks": MinigradRanks,
    "torch ranks": TorchRanks,
}
TORCH = "torch", "torch nchw", "torch nhwc"  # of which the fastest is PyTorch at its best
PEERS = "jax", "tinygrad"
