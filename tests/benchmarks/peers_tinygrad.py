"""The benchmarks' networks in tinygrad on the CPU: one step under TinyJit. It compiles with clang, or what CC names."""

import math

from tasks import BATCHES, data
from tinygrad import Context, Device, Tensor, TinyJit, nn


class Tinygrad:
    def training(self, task, size):
        Tensor.manual_seed(0)
        model = Network(task.layers)
        parameters = nn.state.get_parameters(model)
        optimizer = getattr(nn.optim, task.optimizer)(parameters, **task.options)
        images, labels = data(task.shape, size)
        images, labels = [Tensor(array).realize() for array in images], [Tensor(y).realize() for y in labels]

        @TinyJit
        def train(x, y):
            optimizer.zero_grad()
            loss = model(x).sparse_categorical_crossentropy(y)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

        def step(i):
            with Context(TRAINING=1):
                loss = train(images[i % BATCHES], labels[i % len(labels)])
                Device[Device.DEFAULT].synchronize()
            return loss

        return step, sum(math.prod(parameter.shape) for parameter in optimizer.params)


class Network:
    def __init__(self, layers):
        self.layers = [made(*layer) for layer in layers]

    def __call__(self, x):
        return x.sequential(self.layers)


class Block:
    def __init__(self, channels, filters, stride):
        self.body = Network(
            [
                ["conv", channels, filters, 3, stride, 1, False],
                ["norm", filters],
                ["relu"],
                ["conv", filters, filters, 3, 1, 1, False],
                ["norm", filters],
            ]
        )
        plain = stride == 1 and channels == filters
        self.shortcut = Network([] if plain else [["conv", channels, filters, 1, stride, 0, False], ["norm", filters]])

    def __call__(self, x):
        return (self.body(x) + self.shortcut(x)).relu()


def made(kind, *sizes):
    """One layer: an object with parameters, or a function."""
    if kind == "conv":
        channels, filters, size, stride, padding, bias = sizes
        return nn.Conv2d(channels, filters, size, stride, padding, bias=bias)
    makers = {"norm": nn.BatchNorm, "linear": nn.Linear, "block": Block}
    if kind in makers:
        return makers[kind](*sizes)
    plain = {
        "relu": Tensor.relu,
        "flatten": lambda x: x.flatten(1),
        "mean": lambda x: x.mean((2, 3), keepdim=True),
        "pool": lambda x: x.max_pool2d((sizes[0],) * 2),
        "dropout": lambda x: x.dropout(sizes[0]),
    }
    return plain[kind]
