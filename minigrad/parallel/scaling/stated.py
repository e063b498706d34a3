"""Well-known networks from their papers, layer by layer: parameters, multiply-adds, what waits for backward.

Float32, images of 224 x 224 in 1000 classes. A convolution, a linear layer and a batch norm keep their input, a ReLU
its result, which is the input of the next layer, so it counts once; a pool keeps a position of 4 bytes for each of its
results.

Source  He, Zhang, Ren and Sun 2016, "Deep residual learning for image recognition", table 1 (a stride of 2 stands in
        the 3x3 convolution, as in torchvision); Simonyan and Zisserman 2015, "Very deep convolutional networks",
        table 1, column D
"""

from .network import Layer, assembled

__all__ = ["STATED", "resnet_layers", "stated", "vgg_layers"]

ELEMENT = 4  # bytes


def _convolution(inputs, outputs, taps, size, stride=1, bias=False):
    """A convolution that keeps the size, but for its stride."""
    out = size // stride
    weights = outputs * inputs * taps * taps
    return Layer(
        (weights, outputs) if bias else (weights,),
        weights * out * out,
        ELEMENT * inputs * size * size,
        ELEMENT * outputs * out * out,
    )


def _norm(channels, size):
    return Layer((channels, channels), 0, ELEMENT * channels * size * size, ELEMENT * channels * size * size)


def _pool(channels, size):
    """From a map of this size, which the ReLU before it keeps, to one of half of it."""
    out = ELEMENT * channels * (size // 2) ** 2
    return Layer((), 0, ELEMENT * channels * size * size + out, out)


def _linear(inputs, outputs):
    return Layer((outputs * inputs, outputs), outputs * inputs, ELEMENT * inputs, ELEMENT * outputs)


def _block(channels, filters, stride, size, bottleneck):
    """(layers, channels of the result) of a residual block on a map of this size."""
    out, wide = size // stride, filters * (4 if bottleneck else 1)
    if bottleneck:
        layers = [_convolution(channels, filters, 1, size), _norm(filters, size)]
        layers += [_convolution(filters, filters, 3, size, stride), _norm(filters, out)]
        layers += [_convolution(filters, wide, 1, out), _norm(wide, out)]
    else:
        layers = [_convolution(channels, filters, 3, size, stride), _norm(filters, out)]
        layers += [_convolution(filters, filters, 3, out), _norm(filters, out)]
    if stride != 1 or channels != wide:
        shortcut = _convolution(channels, wide, 1, size, stride)
        shared = Layer(shortcut.parameters, shortcut.macs, 0, shortcut.output)  # its input is kept already
        layers += [shared, _norm(wide, out)]
    return layers, wide


def resnet_layers(blocks, bottleneck, size=224, classes=1000):
    """The Layers of a residual network; images below 64 x 64 get a 3x3 first convolution and no pool.

    blocks      of each of the four stages
    bottleneck  three convolutions to a block instead of two
    """
    if size < 64:
        layers = [_convolution(3, 64, 3, size), _norm(64, size)]
    else:
        layers = [_convolution(3, 64, 7, size, 2), _norm(64, size // 2), _pool(64, size // 2)]
        size //= 4
    channels = 64
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage and not index else 1
            block, channels = _block(channels, 64 << stage, stride, size, bottleneck)
            layers += block
            size //= stride
    last = ELEMENT * channels * size * size  # the result of the last ReLU, which the mean over positions does not need
    return [*layers, Layer((), 0, last, ELEMENT * channels), _linear(channels, classes)]


def vgg_layers(stages=((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), size=224, classes=1000):
    """The Layers of VGG-16: 3x3 convolutions with a bias, a pool after each stage, three linear layers."""
    layers, channels = [], 3
    for filters, count in stages:
        for _ in range(count):
            layers.append(_convolution(channels, filters, 3, size, bias=True))
            channels = filters
        layers.append(_pool(channels, size))
        size //= 2
    return [*layers, _linear(channels * size * size, 4096), _linear(4096, 4096), _linear(4096, classes)]


# name: (layers, batch, milliseconds of a step on one GPU)
STATED = {
    "resnet-18": (lambda: resnet_layers((2, 2, 2, 2), False), 64, 30.0),
    "resnet-50": (lambda: resnet_layers((3, 4, 6, 3), True), 64, 90.0),
    "vgg-16": (vgg_layers, 64, 120.0),
}


def stated(name):
    """A Network of this list by its name."""
    layers, batch, milliseconds = STATED[name]
    return assembled(name, layers(), batch, milliseconds / 1000, "assumed")
