"""Seconds of training until keras-cnn knows so many of MNIST's test images, beside PyTorch on the same GPU.

98.5 % after 10,000 training images, 99 % after all 60,000 where they are on disk; both cut at random places of padded
images that lie on the device, with the same batches, rates and epochs. Every contender trains once before it is timed,
so that its kernels are compiled and chosen; capturing a graph counts. Evaluations are left out of the time.
"""

import math
import time
from functools import partial

import cupy
import numpy as np

from minigrad import data, manual_seed, models, optim, train
from minigrad.data import available
from tests.benchmarks import tasks

from .networks import captured_by_torch, training_step

TARGETS = {10_000: 0.985, 60_000: 0.99}  # by the number of training images
SEEDS = 3
DEVICE = "cuda"
# How all contenders train; the rate falls from RATE to 0 along a cosine.
NETWORK, EPOCHS, BATCH, RATE, PADDING = "keras-cnn", 10, 64, 3e-3, 2


class Clock(train.Callback):
    """Seconds of training at the end of each epoch, and the accuracy there, which evaluate() says."""

    def __init__(self, evaluate):
        self.evaluate, self.rows, self.spent = evaluate, [], 0.0
        self.on_start()

    def on_start(self, history=None):
        cupy.cuda.Device().synchronize()
        self.begun = time.perf_counter()

    def on_epoch(self, history=None):
        cupy.cuda.Device().synchronize()
        self.spent += time.perf_counter() - self.begun
        self.rows.append((self.spent, self.evaluate()))
        self.on_start()


def ours(parts, seed, epochs=None, **options):
    """[(seconds, accuracy)] of each epoch; options: of fit."""
    manual_seed(seed)
    images, test_images = parts
    model = models.build(NETWORK, images.images.shape[1:], tasks.CLASSES).to(DEVICE)
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    loader = data.Loader(images, BATCH, True, seed, drop_last=True, transform=data.PadCrop(PADDING), device=DEVICE)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    test = data.Loader(test_images, min(1000, len(test_images)), device=DEVICE)
    clock = Clock(lambda: train.evaluate(model, test)[1])
    train.fit(model, loader, optimizer, epochs or EPOCHS, schedule=schedule, callbacks=[clock], **options)
    return clock.rows


def theirs(parts, seed, epochs=None, captured=captured_by_torch):
    """As ours, by PyTorch. As a graph it takes the first batch a few times more, before it captures."""
    import torch

    torch.manual_seed(seed)
    (padded, labels), (test_images, test_labels) = map(_on_gpu, parts)
    network = tasks.built(torch.nn, tasks.LAYERS[NETWORK]).to(DEVICE).to(memory_format=torch.channels_last)
    rate = torch.tensor(RATE, device=DEVICE)
    graph = captured is captured_by_torch
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True, capturable=graph)
    step = captured(training_step(network, optimizer, torch.nn.functional.cross_entropy))

    @torch.no_grad()
    def accuracy():
        network.eval()
        right = network(test_images[:, :, PADDING:-PADDING, PADDING:-PADDING]).argmax(1) == test_labels
        network.train()
        return right.double().mean().item()

    clock, steps = Clock(accuracy), len(labels) // BATCH
    for epoch in range(epochs or EPOCHS):
        order = torch.randperm(len(labels), device=DEVICE)
        for number in range(steps):
            past = (epoch * steps + number) / (EPOCHS * steps)
            rate.fill_(RATE * (1 + math.cos(math.pi * past)) / 2)
            picked = order[number * BATCH : (number + 1) * BATCH]
            step(_cut(padded, picked), labels[picked])
        clock.on_epoch()
    return clock.rows


def _on_gpu(part):
    """Images of a data set with a margin of zeros, scaled to 0..1, and its labels."""
    import torch

    images = torch.from_numpy(part.images).to(DEVICE).float() / 255
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    return padded.contiguous(memory_format=torch.channels_last), torch.from_numpy(np.asarray(part.labels)).to(DEVICE)


def _cut(padded, picked):
    """Windows of the picked images at random places."""
    import torch

    size = padded.shape[-1] - 2 * PADDING
    start = lambda: torch.randint(2 * PADDING + 1, (len(picked), 1), device=DEVICE)
    rows, columns = (start() + torch.arange(size, device=DEVICE) for _ in range(2))
    return padded[picked[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


# ---- the race --------------------------------------------------------------------------------------------------------

CONTENDERS = {
    "minigrad, graph": ours,
    "minigrad": partial(ours, eager=True),
    "torch graph": theirs,
    "torch": partial(theirs, captured=lambda step: step),
}


def race(found):
    found["rows"] = rows = []
    folder = available("mnist")
    if folder is None:
        found["why"] = "MNIST is not on disk: MINIGRAD_DATA names a folder with it"
        return
    whole, arrived = data.mnist(folder, download=False), {}
    for count, target in TARGETS.items():
        if count > len(whole[0]):
            continue
        parts = whole[0].subset(slice(count)), whole[1]
        for name, contender in CONTENDERS.items():
            contender(parts, 0, epochs=1)
            for seed in range(SEEDS):
                epochs = contender(parts, seed)
                row = {"contender": name, "images": count, "seed": seed, "target": target}
                row["seconds"] = next((round(seconds, 3) for seconds, right in epochs if right >= target), None)
                row |= {"accuracy": max(right for _, right in epochs), "all_seconds": round(epochs[-1][0], 3)}
                rows.append(row)
                arrived.setdefault((name, count), []).append(row["seconds"])
                print(f"  {row}", flush=True)
    found["failed"] = not all(any(seconds) for (name, _), seconds in arrived.items() if name.startswith("minigrad"))
