"""The benchmarks' networks in tinygrad on the CPU: one step under TinyJit. It compiles with clang, or what CC names."""

import math

from tasks import BATCHES, data, halves
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
    def __init__(self, *sizes):
        self.body, self.shortcut = map(Network, halves(*sizes))

    def __call__(self, x):
        return (self.body(x) + self.shortcut(x)).relu()


def made(kind, *sizes):
    """One layer: an object with parameters, or a function."""
    makers = {
        "conv": lambda *sizes: nn.Conv2d(*sizes[:5], bias=sizes[5]),
        "norm": nn.BatchNorm,
        "linear": nn.Linear,
        "block": Block,
        "relu": lambda: Tensor.relu,
        "flatten": lambda: lambda x: x.flatten(1),
        "mean": lambda: lambda x: x.mean((2, 3), keepdim=True),
        "pool": lambda size: lambda x: x.max_pool2d((size, size)),
        "dropout": lambda p: lambda x: x.dropout(p),
    }
    return makers[kind](*sizes)
