"""The networks that the benchmarks train, as lists of layers that any engine can build, and their data.

A layer is a list: its kind, then all its sizes.

conv      channels, filters, size, stride, padding, whether it has a bias
norm      channels: batch norm
relu, flatten, mean (over the map)
pool      size: maxima
dropout   probability
linear    inputs, outputs
block     channels, filters, stride: ResNet's basic block
"""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

OPTIMIZERS = {"keras-cnn": "Adam", "lenet": "SGD", "mnist-net": "Adam", "resnet": "SGD"}
SHAPES = {"keras-cnn": (1, 28, 28), "lenet": (1, 28, 28), "mnist-net": (1, 28, 28), "resnet": (3, 32, 32)}
OPTIONS = {"Adam": {"lr": 1e-3}, "SGD": {"lr": 0.01, "momentum": 0.9}}
CLASSES, RELABELLED = 10, 0.3
BATCHES, PASSES = 8, 7  # batches of images of their own; passes over them until labels come again
EPOCH_IMAGES, EPOCH_SEED = 10_000, 1
LARGEST = 8e9  # multiplications of a forward pass on 64 images: what a network drawn at random may cost
SMALLEST = 5e7


@dataclass(frozen=True)
class Task:
    """A network, the shape of its images, and the optimiser. What is drawn at random has no name among MODELS."""

    name: str
    shape: tuple
    optimizer: str
    layers: list

    @property
    def options(self):
        return OPTIONS[self.optimizer]


# ---- networks --------------------------------------------------------------------------------------------------------


def _conv(channels, filters, size, padding=0):
    return ["conv", channels, filters, size, 1, padding, True], ["relu"]


def _dense(inputs, outputs):
    return ["linear", inputs, outputs], ["relu"]


def _resnet():
    stages, channels = [["conv", 3, 64, 3, 1, 1, False], ["norm", 64], ["relu"]], 64
    for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        stages += [["block", channels, filters, stride], ["block", filters, filters, 1]]
        channels = filters
    return [*stages, ["mean"], FLAT]


POOL, FLAT, DROP, MORE = ["pool", 2], ["flatten"], ["dropout", 0.25], ["dropout", 0.5]
BODIES = {  # with the size of what the last layer gets
    "keras-cnn": ([*_conv(1, 32, 3), POOL, *_conv(32, 64, 3), POOL, FLAT, *_dense(1600, 64)], 64),
    "lenet": ([*_conv(1, 6, 5, 2), POOL, *_conv(6, 16, 5), POOL, FLAT, *_dense(400, 120), *_dense(120, 84)], 84),
    "mnist-net": ([*_conv(1, 32, 3), *_conv(32, 64, 3), POOL, DROP, FLAT, *_dense(9216, 128), MORE], 128),
    "resnet": (_resnet(), 512),
}
LAYERS = {name: [*body, ["linear", size, CLASSES]] for name, (body, size) in BODIES.items()}


def named(model):
    """The task of one of MODELS."""
    return Task(model, SHAPES[model], OPTIMIZERS[model], LAYERS[model])


def drawn(seed):
    """A network drawn at random, from integers that are 0 or more.

    Images of 3 to 96 channels and 5 to 40 pixels a side; 2 to 4 convolutions with 3 to 96 filters, kernels of 1 to 7,
    strides 1 and 2, any padding up to half the kernel; half of them with batch norm; behind each perhaps a pool or
    dropout. One that costs more than LARGEST or less than SMALLEST is drawn again.
    """
    random = Random(seed)
    while True:
        channels, height, width = random.randint(3, 96), random.randint(5, 40), random.randint(5, 40)
        shape, cost, layers = (channels, height, width), 0, []
        for _ in range(random.randint(2, 4)):
            added, (channels, height, width), spent = _drawn_stage(random, channels, height, width)
            layers += added
            cost += 64 * spent
        layers += [["flatten"], ["linear", channels * height * width, CLASSES]]
        if SMALLEST <= cost <= LARGEST:
            return Task(f"random {seed}", shape, random.choice(("Adam", "SGD")), layers)


def _drawn_stage(random, channels, height, width):
    """Layers around one convolution, the shape behind them, and its multiplications for one image."""
    filters, size = random.randint(3, 96), random.randint(1, min(7, height, width))
    stride, padding, norm = random.choice((1, 1, 2)), random.randint(0, size // 2), random.random() < 0.5
    layers = [["conv", channels, filters, size, stride, padding, not norm]]
    layers += [["norm", filters]] * norm + [["relu"]]
    height, width = ((side + 2 * padding - size) // stride + 1 for side in (height, width))
    cost = height * width * filters * channels * size**2
    behind = random.choice(("pool", "dropout", "nothing"))
    if behind == "pool" and min(height, width) >= 2:
        layers.append(["pool", 2])
        height, width = height // 2, width // 2
    elif behind == "dropout":
        layers.append(["dropout", random.choice((0.1, 0.25, 0.5))])
    return layers, (filters, height, width), cost


def halves(channels, filters, stride):
    """The layers of a block, and those of its shortcut: none where that hands its argument on."""
    body = [["conv", channels, filters, 3, stride, 1, False], ["norm", filters], ["relu"]]
    body += [["conv", filters, filters, 3, 1, 1, False], ["norm", filters]]
    plain = stride == 1 and channels == filters
    return body, [] if plain else [["conv", channels, filters, 1, stride, 0, False], ["norm", filters]]


def built(nn, layers):
    """A Sequential of the layers, by minigrad.nn or torch.nn."""

    class Block(nn.Module):
        def __init__(self, *sizes):
            super().__init__()
            self.body, self.shortcut = (built(nn, part) for part in halves(*sizes))

        def forward(self, x):
            return nn.functional.relu(self.body(x) + self.shortcut(x))

    makers = {
        "conv": lambda *sizes: nn.Conv2d(*sizes[:5], bias=sizes[5]),
        "norm": nn.BatchNorm2d,
        "relu": nn.ReLU,
        "flatten": nn.Flatten,
        "mean": lambda: nn.AdaptiveAvgPool2d(1),
        "pool": nn.MaxPool2d,
        "dropout": nn.Dropout,
        "linear": nn.Linear,
        "block": Block,
    }
    return nn.Sequential(*(makers[kind](*sizes) for kind, *sizes in layers))


def training_step(network, optimizer, cross_entropy):
    """step(x, y), which returns the loss. The same for minigrad and PyTorch: their interfaces are alike."""

    def step(x, y):
        optimizer.zero_grad()
        loss = cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def step_of(network, optimizer, cross_entropy, data):
    """step(i) on batch i of the data."""
    step = training_step(network, optimizer, cross_entropy)
    return lambda i: step(*data[i % len(data)])


# ---- data ------------------------------------------------------------------------------------------------------------


def batches(model, size, count):
    """Batches (images, labels) for one of MODELS, of which the first BATCHES have images of their own."""
    images, labels = data(SHAPES[model], size, count)
    return [(images[i % BATCHES], y) for i, y in enumerate(labels)]


def data(shape, size, count=BATCHES * PASSES):
    """BATCHES arrays of images, and `count` arrays of labels: labels[i] belong to images[i % BATCHES].

    An image is the pattern of its class in noise. A share of the labels is drawn anew each time, so that the loss
    falls but never to nothing: gradients that vanish would be subnormal numbers, which cost time that no real
    training spends.
    """
    random = np.random.default_rng(0)
    patterns = random.standard_normal((CLASSES, *shape), dtype=np.float32)
    classes = [random.integers(0, CLASSES, size) for _ in range(BATCHES)]
    images = [random.standard_normal((size, *shape), dtype=np.float32) + patterns[kinds] for kinds in classes]
    labels = []
    for i in range(count):
        others = random.integers(0, CLASSES, size)
        labels.append(np.where(random.random(size) < RELABELLED, others, classes[i % BATCHES]))
    return images, labels


def epoch_data():
    """(uint8 images (N, 1, 28, 28), labels, what they are): MNIST's first 10,000 training images, or random ones.

    MNIST is looked for in the folder that MINIGRAD_DATA names and in its subfolder mnist.
    """
    folder = os.environ.get("MINIGRAD_DATA")
    for place in (Path(folder), Path(folder) / "mnist") if folder else ():
        files = [place / f"train-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1")]
        if files[0].exists():
            images, labels = (np.frombuffer(gzip.decompress(file.read_bytes()), np.uint8) for file in files)
            images = images[16 : 16 + EPOCH_IMAGES * 28 * 28].reshape(-1, 1, 28, 28)
            return images, labels[8 : 8 + EPOCH_IMAGES].astype(np.int64), "MNIST"
    random = np.random.default_rng(EPOCH_SEED)
    patterns = random.integers(0, 128, (CLASSES, 1, 28, 28))
    labels = random.integers(0, CLASSES, EPOCH_IMAGES)
    noise = random.integers(0, 128, (EPOCH_IMAGES, 1, 28, 28))
    return (patterns[labels] + noise).astype(np.uint8), labels, "random"
