"""The training step of tests/kernel_training.py beside PyTorch's on the same GPU: the same network, batch and Adam."""

import time

import cupy
import numpy as np

from ..kernel_training import Network

INPUTS, HIDDEN, CLASSES, BATCH, STEPS, ROUNDS = 784, 512, 10, 256, 50, 9


def _ours(images, labels):
    network = Network(INPUTS, HIDDEN, CLASSES, "cuda", rate=1e-3)
    return lambda: network.train(images, labels), lambda: cupy.cuda.Device().synchronize()


def _torch(images, labels):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False  # both multiply in float32
    network = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    ).cuda()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step():
        x, target = torch.from_numpy(images).cuda(), torch.from_numpy(labels).cuda()
        loss = torch.nn.functional.cross_entropy(network(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, torch.cuda.synchronize


def run():
    """Median milliseconds of a step, host included, the two taking turns."""
    random = np.random.default_rng(0)
    images = random.standard_normal((BATCH, INPUTS)).astype(np.float32)
    labels = random.integers(0, CLASSES, BATCH)
    contenders = {"minigrad kernels": _ours(images, labels), "torch": _torch(images, labels)}
    times = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, (step, synchronize) in contenders.items():
            synchronize()
            begun = time.perf_counter()
            for _ in range(STEPS):
                step()
            synchronize()
            times[name].append(1000 * (time.perf_counter() - begun) / STEPS)
    found = {name: round(float(np.median(values)), 4) for name, values in times.items()}
    print(f"  ms a step: {found}", flush=True)
    return {"network": f"{INPUTS}-{HIDDEN}-{CLASSES}, batch {BATCH}, Adam", "ms": found}
