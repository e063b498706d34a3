"""Seconds of training until keras-cnn knows so many of MNIST's test images, beside PyTorch on the same GPU.

98.5 % after 10,000 training images, 99 % after all 60,000 where they are on disk; both cut at random places of padded
images that lie on the device, with the same batches, rates and epochs. Every contender trains once before it is timed,
so that its kernels are compiled and chosen; capturing a graph counts. Evaluations are left out of the time.
"""

import math
import time
from functools import partial

import cupy

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


def _loaders(parts, seed):
    """Of training and of test images; both contenders take the same batches, which are made on the device."""
    images, test = parts
    crop = data.PadCrop(PADDING)
    training = data.Loader(images, BATCH, True, seed, drop_last=True, transform=crop, device=DEVICE)
    return training, data.Loader(test, min(1000, len(test)), device=DEVICE)


def ours(parts, seed, epochs=None, **options):
    """[(seconds, accuracy)] of each epoch; options: of fit."""
    manual_seed(seed)
    loader, test = _loaders(parts, seed)
    model = models.build(NETWORK, parts[0].images.shape[1:], tasks.CLASSES).to(DEVICE)
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    clock = Clock(lambda: train.evaluate(model, test)[1])
    train.fit(model, loader, optimizer, epochs or EPOCHS, schedule=schedule, callbacks=[clock], **options)
    return clock.rows


def theirs(parts, seed, epochs=None, captured=captured_by_torch):
    """As ours, by PyTorch. As a graph it takes the first batch a few times more, before it captures."""
    import torch

    torch.manual_seed(seed)
    loader, test = _loaders(parts, seed)
    shared = lambda batches: ([torch.from_dlpack(tensor.array) for tensor in batch] for batch in batches)
    network = tasks.built(torch.nn, tasks.LAYERS[NETWORK]).to(DEVICE).to(memory_format=torch.channels_last)
    rate, graph = torch.tensor(RATE, device=DEVICE), captured is captured_by_torch
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True, capturable=graph)
    step = captured(training_step(network, optimizer, torch.nn.functional.cross_entropy))

    @torch.no_grad()
    def accuracy():
        network.eval()
        right = sum(int((network(x).argmax(1) == y).sum()) for x, y in shared(test))
        network.train()
        return right / len(parts[1])

    clock, steps = Clock(accuracy), 0
    for _ in range(epochs or EPOCHS):
        for x, y in shared(loader):
            rate.fill_(RATE * (1 + math.cos(math.pi * steps / (EPOCHS * len(loader)))) / 2)
            step(x, y)
            steps += 1
        clock.on_epoch()
    return clock.rows


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
