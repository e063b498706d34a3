"""Seconds of training until keras-cnn knows so many of MNIST's test images, beside PyTorch on the same GPU.

98.5 % after 10,000 training images, 99 % after all 60,000 where they are on disk; both cut at random places of padded
images that lie on the device, with the same batches, rates and epochs. Every contender trains once before it is timed,
so that its kernels are compiled and chosen; capturing a graph counts. Evaluations are left out of the time.
"""

import math
import time

import numpy as np

from minigrad import data, device, manual_seed, models, optim, train
from minigrad.data import available
from tests.benchmarks import tasks

from .contenders import captured_by_torch, torch_waits, training_step

TARGETS = {10_000: 0.985, 60_000: 0.99}  # by the number of training images
SEEDS = 3
DEVICE = "cuda"
TEST_BATCH = 1000
# How all contenders train; the rate falls from RATE to 0 along a cosine.
NETWORK, EPOCHS, BATCH, RATE, PADDING = "keras-cnn", 10, 64, 3e-3, 2


class Clock(train.Callback):
    """Seconds of training at the end of each epoch, and the accuracy on the test images there."""

    def __init__(self, model, test):
        self.model, self.test, self.rows = model, test, []

    def on_start(self, history):
        device.synchronize(DEVICE)
        self.begun = time.perf_counter()

    def on_epoch(self, history):
        device.synchronize(DEVICE)
        now = time.perf_counter()
        _, accuracy = train.evaluate(self.model, self.test)
        self.rows.append((now - self.begun, accuracy))
        self.begun += time.perf_counter() - now


def ours(parts, seed, epochs=None, **options):
    """[(seconds, accuracy)] of each epoch; options: of fit."""
    manual_seed(seed)
    images, test_images = parts
    model = models.build(NETWORK, images.images.shape[1:], tasks.CLASSES).to(DEVICE)
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    loader = data.Loader(images, BATCH, True, seed, drop_last=True, transform=data.PadCrop(PADDING), device=DEVICE)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    clock = Clock(model, data.Loader(test_images, TEST_BATCH, device=DEVICE))
    train.fit(model, loader, optimizer, epochs or EPOCHS, schedule=schedule, callbacks=[clock], **options)
    return clock.rows


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def _on_gpu(part):
    """Images of a data set with a margin of zeros, scaled to 0..1, and its labels."""
    import torch

    images = torch.from_numpy(part.images).to(DEVICE).float() / 255
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    return padded.contiguous(memory_format=torch.channels_last), torch.from_numpy(np.asarray(part.labels)).to(DEVICE)


def _cut(padded, picked, size):
    """Windows of the picked images at random places."""
    import torch

    places = padded.shape[-1] - size + 1
    rows, columns = (
        torch.randint(places, (len(picked), 1), device=DEVICE) + torch.arange(size, device=DEVICE) for _ in range(2)
    )
    return padded[picked[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def theirs(parts, seed, epochs=None, whole=True):
    """As ours, by PyTorch. As a graph (whole) it takes the first batch a few times more, before it captures."""
    import torch

    torch.manual_seed(seed)
    (padded, labels), (test_images, test_labels) = (_on_gpu(part) for part in parts)
    size = parts[0].images.shape[-1]
    network = tasks.built(torch.nn, tasks.LAYERS[NETWORK]).to(DEVICE).to(memory_format=torch.channels_last)
    rate = torch.tensor(RATE, device=DEVICE)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True, capturable=whole)
    step = training_step(network, optimizer, torch.nn.functional.cross_entropy)
    step = captured_by_torch(step) if whole else step
    torch_waits()
    begun, rows, steps = time.perf_counter(), [], len(labels) // BATCH
    for epoch in range(epochs or EPOCHS):
        network.train()
        order = torch.randperm(len(labels), device=DEVICE)
        for number in range(steps):
            past = (epoch * steps + number) / (EPOCHS * steps)
            rate.fill_(RATE * (1 + math.cos(math.pi * past)) / 2)
            picked = order[number * BATCH : (number + 1) * BATCH]
            step(_cut(padded, picked, size), labels[picked])
        torch_waits()
        now = time.perf_counter()
        network.eval()
        rows.append((now - begun, _accuracy(network, test_images, test_labels)))
        begun += time.perf_counter() - now
    return rows


def _accuracy(network, padded, labels):
    import torch

    inner, right = padded[:, :, PADDING:-PADDING, PADDING:-PADDING], 0
    with torch.no_grad():
        for start in range(0, len(labels), TEST_BATCH):
            found = network(inner[start : start + TEST_BATCH]).argmax(1)
            right += int((found == labels[start : start + TEST_BATCH]).sum())
    return right / len(labels)


# ---- the race --------------------------------------------------------------------------------------------------------

CONTENDERS = {
    "minigrad, graph": ours,
    "minigrad": lambda parts, seed, **more: ours(parts, seed, eager=True, **more),
    "torch graph": theirs,
    "torch": lambda parts, seed, **more: theirs(parts, seed, whole=False, **more),
}


def reached(rows, target):
    """Seconds until the accuracy was first that high; None if it never was."""
    return next((round(seconds, 3) for seconds, accuracy in rows if accuracy >= target), None)


def run(found):
    found["rows"] = []
    folder = available("mnist")
    if folder is None:
        found["why"] = "MNIST is not on disk: MINIGRAD_DATA names a folder with it"
        return
    whole = data.mnist(folder, download=False)
    for count, target in TARGETS.items():
        if count > len(whole[0]):
            continue
        parts = whole[0].subset(slice(count)), whole[1]
        for name, contender in CONTENDERS.items():
            contender(parts, 0, epochs=1)
            for seed in range(SEEDS):
                rows = contender(parts, seed)
                row = {"contender": name, "images": count, "seed": seed, "target": target}
                row |= {"seconds": reached(rows, target), "accuracy": max(accuracy for _, accuracy in rows)}
                row["all_seconds"] = round(rows[-1][0], 3)
                found["rows"].append(row)
                print(f"  {row}", flush=True)
    found["failed"] = not all(_arrived(found["rows"]).values())


def _arrived(rows):
    """{(contender, images): whether it got there with any seed} of minigrad's."""
    arrived = {}
    for row in rows:
        if row["contender"].startswith("minigrad"):
            key = row["contender"], row["images"]
            arrived[key] = arrived.get(key, False) or row["seconds"] is not None
    return arrived
