"""Networks by name: what the command line trains, and models to start from.

Each is a function of the shape of an image and the number of classes. ReLU follows each convolution and each
dense layer but the last, whose outputs are scores for cross entropy. A convolution is stated as (filters, height and
width of the window, padding, height and width of the pool behind it), where a pool of 1 is none.
"""

import inspect
import math
import runpy
from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

from . import nn, ops
from .core.check import instance_of, one_of

__all__ = ["MODELS", "Architecture", "architecture", "build", "digits_cnn", "keras_cnn", "lenet", "mlp"]
__all__ += ["mnist_net", "resnet18"]


def digits_cnn(shape=(1, 8, 8), classes=10):
    """3x3 convolutions with 16, 32 and 64 filters that keep the size, one pool, dense: for small images."""
    return _stacked(shape, classes, [(16, 3, 1, 1), (32, 3, 1, 1), (64, 3, 1, 2)])


def keras_cnn(shape=(1, 28, 28), classes=10):
    """Convolution and pool twice, then dense 64: the network of Keras' introductions.

    Source  TensorFlow, "Convolutional Neural Network (CNN)" tutorial
    """
    return _stacked(shape, classes, [(32, 3, 0, 2), (64, 3, 0, 2)], [64])


def lenet(shape=(1, 28, 28), classes=10):
    """LeNet-5 with ReLU and maxima; images below 32 x 32 are padded to that size by the first convolution.

    Source  LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition"
    """
    padding = tuple(max(0, (32 - size + 1) // 2) for size in shape[1:])
    return _stacked(shape, classes, [(6, 5, padding, 2), (16, 5, 0, 2)], [120, 84])


def mnist_net(shape=(1, 28, 28), classes=10):
    """Two convolutions, one pool, dense 128, with dropout: the network of PyTorch's MNIST example.

    Source  PyTorch, examples/mnist
    """
    *convolutions, flatten, dense, relu, scores = _stacked(shape, classes, [(32, 3, 0, 1), (64, 3, 0, 2)], [128])
    return nn.Sequential(*convolutions, nn.Dropout(0.25), flatten, dense, relu, nn.Dropout(0.5), scores)


def mlp(shape=(1, 28, 28), classes=10):
    """Two dense layers of 128 and the scores: no convolution, to compare with."""
    return _stacked(shape, classes, [], [128, 128])


def _stacked(shape, classes, convolutions, dense=()):
    """Convolutions, stated as above, then dense layers with so many outputs, then the scores."""
    (channels, *sizes), layers = shape, []
    for filters, kernel, padding, pool in convolutions:
        convolution = nn.Conv2d(channels, filters, kernel, padding=padding)
        layers += [convolution, nn.ReLU(), *[nn.MaxPool2d(pool)] * (pool > 1)]
        pads, channels = convolution.padding, filters
        sizes = [(size + 2 * pad - kernel + 1) // pool for size, pad in zip(sizes, pads, strict=True)]
    layers, inputs = [*layers, nn.Flatten()], channels * math.prod(sizes)
    for outputs in dense:
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


# ---- residual network ----------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    """Two convolutions whose result is added to their input, or to its projection where the shape changes."""

    def __init__(self, channels, filters, stride):
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.shortcut = nn.Identity()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, input):
        out = ops.relu(self.bn1(self.conv1(input)))
        out = self.bn2(self.conv2(out))
        return ops.relu(out + self.shortcut(input))


def resnet18(shape=(3, 32, 32), classes=10):
    """ResNet-18 for small images: a 3x3 first convolution and no pool before the blocks.

    Source  He, Zhang, Ren and Sun 2016, "Deep residual learning for image recognition", sections 3.3 and 4.2
    """
    stages = []
    channels = 64
    for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        stages += [BasicBlock(channels, filters, stride), BasicBlock(filters, filters, 1)]
        channels = filters
    return nn.Sequential(
        nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


# ---- by name -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Architecture:
    """A network and what it wants.

    made_for    height and width of the images it was designed for; None where any will do
    normalised  whether its inputs have mean 0 and deviation 1 over the data, rather than lie in 0..1
    """

    make: object
    made_for: int | None = None
    normalised: bool = False


MODELS = {
    "digits-cnn": Architecture(digits_cnn, normalised=True),
    "keras-cnn": Architecture(keras_cnn, made_for=28),
    "lenet": Architecture(lenet, made_for=28),
    "mnist-net": Architecture(mnist_net, made_for=28, normalised=True),
    "mlp": Architecture(mlp),
    "resnet": Architecture(resnet18, normalised=True),
}


def architecture(name):
    """The Architecture of a name in MODELS, or of FILE.py:NAME, a function or a class in a file of one's own.

    It is called with the shape of an image and the number of classes if it takes two arguments, else with none.
    Errors  ValueError for an unknown name, and for what the file does not hold
    """
    file, _, function = name.rpartition(":")
    if not file.endswith(".py"):
        return MODELS[one_of("build", "name", name, MODELS)]
    try:
        make = runpy.run_path(file)[function]
        takes = len(inspect.signature(make).parameters)
    except (OSError, KeyError, TypeError) as error:
        raise ShapeError(f"build: {name} cannot be used, wanted FILE.py:FUNCTION ({error!r})") from error
    return Architecture(make if takes >= 2 else lambda shape, classes: make(), normalised=True)


def build(name, shape, classes=10):
    """A new network by name, for images of shape (C, H, W), its parameters drawn from the default generator.

    Errors  ValueError as architecture, and for a shape of another length; TypeError where a function gives no Module;
            images so small that nothing is left of them inside are refused by the layer where they vanish
    """
    found = architecture(name)
    if len(shape) != 3:
        raise ShapeError(f"build: shape is {shape}, want (C, H, W)")
    return instance_of("build", f"the result of {name}", found.make(tuple(shape), classes), nn.Module)
