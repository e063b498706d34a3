"""Seconds of training until keras-cnn knows so many of MNIST's test images, beside PyTorch on the same GPU.

98.5 % after 10,000 training images, 99 % after all 60,000 where they are on disk; both cut at random places of padded
images that lie on the device, with the same batches, rates and epochs. Every contender trains for an epoch before it is
timed, so that its kernels are compiled; capturing a graph counts. Evaluations are left out of the time.
"""

import math
import time
from functools import partial
from itertools import count

import cupy

from minigrad import data, manual_seed, models, no_grad, optim
from minigrad.data import available
from minigrad.graph import capture
from minigrad.nn import functional as F
from tests.benchmarks import tasks

from .networks import as_it_is, captured_by_torch, training_step

TARGETS = {10_000: 0.985, 60_000: 0.99}  # by the number of training images
SEEDS = 3
DEVICE = "cuda"
# How all contenders train; the rate falls from RATE to 0 along a cosine.
NETWORK, EPOCHS, BATCH, RATE, PADDING = "keras-cnn", 10, 64, 3e-3, 2


def ours(seed, shape, steps, captured=as_it_is):
    """(network, a step of training, how it takes a tensor, the mode of an evaluation)"""
    manual_seed(seed)
    network = models.build(NETWORK, shape, tasks.CLASSES).to(DEVICE)
    optimizer = optim.Adam(network.parameters(), lr=RATE)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    update = training_step(network, optimizer, F.cross_entropy)

    def step(x, y):
        update(x, y)
        schedule.step()

    return network, captured(step), as_it_is, no_grad


def theirs(seed, shape, steps, captured=as_it_is):
    """As ours, by PyTorch. As a graph it takes the first batch a few times more, before it captures."""
    import torch

    torch.manual_seed(seed)
    network = tasks.built(torch.nn, tasks.LAYERS[NETWORK]).to(DEVICE).to(memory_format=torch.channels_last)
    rate, numbers = torch.tensor(RATE, device=DEVICE), count()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True, capturable=captured is captured_by_torch)
    update = captured(training_step(network, optimizer, torch.nn.functional.cross_entropy))

    def step(x, y):
        rate.fill_(RATE * (1 + math.cos(math.pi * next(numbers) / steps)) / 2)
        update(x, y)

    return network, step, lambda tensor: torch.from_dlpack(tensor.array), torch.no_grad


CONTENDERS = {
    "minigrad, graph": partial(ours, captured=capture),
    "minigrad": ours,
    "torch graph": partial(theirs, captured=captured_by_torch),
    "torch": theirs,
}


def now():
    """Seconds, once the device has done its work."""
    cupy.cuda.Device().synchronize()
    return time.perf_counter()


def trained(contender, parts, seed, epochs):
    """[(seconds of training, accuracy)] at the end of each epoch."""
    loader = data.Loader(parts[0], BATCH, True, seed, drop_last=True, transform=data.PadCrop(PADDING), device=DEVICE)
    test, spent, rows = data.Loader(parts[1], min(1000, len(parts[1])), device=DEVICE), 0.0, []
    network, step, taken, unrecorded = contender(seed, parts[0].images.shape[1:], EPOCHS * len(loader))
    for _ in range(epochs):
        network.train()
        begun = now()
        for batch in loader:
            step(*map(taken, batch))
        spent += now() - begun
        network.eval()
        with unrecorded():
            batches = (map(taken, batch) for batch in test)
            right = sum((network(x).argmax(1) == y).sum().item() for x, y in batches)
        rows.append((spent, right / len(parts[1])))
    return rows


def race(found):
    found["rows"] = rows = []
    folder = available("mnist")
    if folder is None:
        found["why"] = "MNIST is not on disk: MINIGRAD_DATA names a folder with it"
        return
    whole, arrived = data.mnist(folder, download=False), {}
    for images, target in TARGETS.items():
        parts = whole[0].subset(slice(images)), whole[1]
        for name, contender in CONTENDERS.items() if images <= len(whole[0]) else ():
            trained(contender, parts, 0, 1)
            for seed in range(SEEDS):
                epochs = trained(contender, parts, seed, EPOCHS)
                row = {"contender": name, "images": images, "seed": seed, "target": target}
                row["seconds"] = next((round(seconds, 3) for seconds, right in epochs if right >= target), None)
                row |= {"accuracy": max(right for _, right in epochs), "all_seconds": round(epochs[-1][0], 3)}
                rows.append(row)
                arrived.setdefault((name, images), []).append(row["seconds"])
                print(f"  {row}", flush=True)
    found["failed"] = not all(any(seconds) for (name, _), seconds in arrived.items() if name.startswith("minigrad"))
