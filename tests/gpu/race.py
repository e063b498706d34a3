"""Seconds of training until keras-cnn knows so many of MNIST's test images, beside PyTorch on the same GPU.

98.5 % after 10,000 training images, 99 % after all 60,000 where they are on disk; both cut at random places of padded
images that lie on the device, with the same batches, rates and epochs. Every contender trains once before it is timed,
so that its kernels are compiled and chosen; capturing a graph counts. Evaluations are left out of the time.

cifar.py trains the ResNet by the same functions.
"""

import contextlib
import math
import time
from typing import NamedTuple

import numpy as np

from minigrad import data, device, manual_seed, models, optim, train
from minigrad.data import available
from tests.benchmarks import tasks

from .contenders import WARM, torch_waits

TARGETS = {10_000: 0.985, 60_000: 0.99}  # by the number of training images
SEEDS = 3
DEVICE = "cuda"
TEST_BATCH = 1000


class Recipe(NamedTuple):
    """How all contenders train; the rate falls from `rate` to 0 along a cosine."""

    network: str = "keras-cnn"
    optimizer: str = "Adam"
    options: dict = {}  # noqa: RUF012  (of the optimizer, in both libraries)
    epochs: int = 10
    batch: int = 64
    rate: float = 3e-3
    padding: int = 2
    flip: bool = False
    precision: str = "float32"


MNIST = Recipe()


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


def ours(parts, seed, recipe=MNIST, epochs=None, **options):
    """[(seconds, accuracy)] of each epoch; options: of fit."""
    manual_seed(seed)
    images, test_images = parts
    model = models.build(recipe.network, images.images.shape[1:], tasks.CLASSES).to(DEVICE)
    optimizer = getattr(optim, recipe.optimizer)(model.parameters(), lr=recipe.rate, **recipe.options)
    change = data.Compose([data.PadCrop(recipe.padding), *([data.Flip()] if recipe.flip else [])])
    loader = data.Loader(images, recipe.batch, True, seed, drop_last=True, transform=change, device=DEVICE)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs * len(loader))
    clock = Clock(model, data.Loader(test_images, TEST_BATCH, device=DEVICE))
    options |= {} if recipe.precision == "float32" else {"precision": recipe.precision}
    train.fit(model, loader, optimizer, epochs or recipe.epochs, schedule=schedule, callbacks=[clock], **options)
    return clock.rows


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def _on_gpu(part, padding):
    """Images of a data set with a margin of zeros, scaled to 0..1, and its labels."""
    import torch

    images = torch.from_numpy(part.images).to(DEVICE).float() / 255
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    return padded.contiguous(memory_format=torch.channels_last), torch.from_numpy(np.asarray(part.labels)).to(DEVICE)


def _cut(padded, picked, size, flip=False):
    """Windows of the picked images at random places, every second one from right to left if they are to be flipped."""
    import torch

    places = padded.shape[-1] - size + 1
    rows, columns = (
        torch.randint(places, (len(picked), 1), device=DEVICE) + torch.arange(size, device=DEVICE) for _ in range(2)
    )
    if flip:
        columns = torch.where(torch.rand(len(picked), 1, device=DEVICE) < 0.5, columns, columns.flip(1))
    return padded[picked[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _torch_step(network, optimizer, inputs, whole, mode=contextlib.nullcontext):
    """step(images, labels); whole: captured as one graph on the static inputs, optimiser included."""
    import torch

    def step(x, y):
        optimizer.zero_grad()
        with mode():
            loss = torch.nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()

    if not whole:
        return step
    stream, replayed = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    kept = [tensor.clone() for tensor in network.state_dict().values()]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            step(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(replayed):
        step(*inputs)
    with torch.no_grad():  # training begins where it would without a graph
        for tensor, before in zip(network.state_dict().values(), kept, strict=True):
            tensor.copy_(before)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()

    def replay(x, y):
        inputs[0].copy_(x)
        inputs[1].copy_(y)
        replayed.replay()

    return replay


def theirs(parts, seed, recipe=MNIST, epochs=None, whole=True):
    """As ours, by PyTorch."""
    import torch

    torch.manual_seed(seed)
    (padded, labels), (test_images, test_labels) = (_on_gpu(part, recipe.padding) for part in parts)
    size, batch = parts[0].images.shape[-1], recipe.batch
    network = tasks.built(torch.nn, tasks.LAYERS[recipe.network]).to(DEVICE).to(memory_format=torch.channels_last)
    rate = torch.tensor(recipe.rate, device=DEVICE)
    more = {"capturable": whole} if recipe.optimizer == "Adam" else {}
    optimizer = getattr(torch.optim, recipe.optimizer)(
        network.parameters(), lr=rate, fused=True, **recipe.options, **more
    )
    inputs = [_cut(padded, torch.arange(batch, device=DEVICE), size), labels[:batch].clone()]
    half = {"device_type": DEVICE, "dtype": torch.bfloat16, "cache_enabled": not whole}
    mode = (lambda: torch.autocast(**half)) if recipe.precision == "bfloat16" else contextlib.nullcontext
    torch_waits()
    begun, rows, steps = time.perf_counter(), [], len(labels) // batch
    step = _torch_step(network, optimizer, inputs, whole, mode)
    for epoch in range(epochs or recipe.epochs):
        network.train()
        order = torch.randperm(len(labels), device=DEVICE)
        for number in range(steps):
            past = (epoch * steps + number) / (recipe.epochs * steps)
            rate.fill_(recipe.rate * (1 + math.cos(math.pi * past)) / 2)
            picked = order[number * batch : (number + 1) * batch]
            step(_cut(padded, picked, size, recipe.flip), labels[picked])
        torch_waits()
        now = time.perf_counter()
        network.eval()
        rows.append((now - begun, _accuracy(network, test_images, test_labels, recipe.padding)))
        begun += time.perf_counter() - now
    return rows


def _accuracy(network, padded, labels, padding):
    import torch

    inner, right = padded[:, :, padding:-padding, padding:-padding], 0
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
