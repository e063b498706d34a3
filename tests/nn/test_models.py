"""The networks by name: their sizes, their gradients, and the smallest images they take."""

import numpy as np
import pytest

import minigrad
from minigrad import models, ops
from minigrad.core.tape import write

# Counted by hand: filters * (channels * taps + 1) for each convolution, outputs * (inputs + 1) for each dense layer.
PARAMETERS = {  # shape of an image, numbers, the least height and width
    "digits-cnn": ((1, 8, 8), 160 + 4_640 + 18_496 + 10_250, 2),
    "keras-cnn": ((1, 28, 28), 320 + 18_496 + 102_464 + 650, 10),
    "lenet": ((1, 28, 28), 156 + 2_416 + 48_120 + 10_164 + 850, 1),
    "mnist-net": ((1, 28, 28), 320 + 18_496 + 1_179_776 + 1_290, 6),
    "mlp": ((1, 8, 8), 8_320 + 16_512 + 1_290, 1),
    "resnet": ((3, 32, 32), 11_173_962, 1),  # the figure known for ResNet-18 with a 3x3 first convolution
}


@pytest.mark.parametrize("name", models.MODELS)
def test_model(name):
    """Its size; the smallest image that it takes, and that it refuses a smaller one; a gradient for each parameter."""
    shape, count, smallest = PARAMETERS[name]
    model = models.build(name, shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    small = models.build(name, (2, smallest, smallest), classes=3).eval()
    assert small(minigrad.randn(2, 2, smallest, smallest)).shape == (2, 3)
    if smallest > 1:
        with pytest.raises(ValueError):
            models.build(name, (1, 28, smallest - 1))(minigrad.zeros(1, 1, 28, smallest - 1))
    shape = shape if name != "resnet" else (3, 8, 8)
    ops.cross_entropy(model(minigrad.randn(3, *shape)), minigrad.tensor([0, 5, 9])).backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None and np.abs(parameter.grad.numpy()).max() > 0, path


def test_lenet_sees_small_images_as_padded_to_32():
    """And the seed decides its parameters."""
    found, images = [], minigrad.randn(3, 1, 28, 28)
    for side, inputs in ((28, images), (32, ops.pad(images, (2, 2, 2, 2)))):
        minigrad.manual_seed(1)
        found.append(models.lenet((1, side, side))(inputs).detach().numpy())
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


def test_resnet_shortcuts_carry_the_input():
    images = minigrad.rand(2, 4, 5, 5)
    for channels, stride in ((4, 1), (8, 2)):
        block = models.BasicBlock(4, channels, stride).eval()
        write(block.conv1.weight).fill(0), write(block.conv2.weight).fill(0)
        wanted = ops.relu(block.shortcut(images))
        assert wanted.shape[1] == channels
        np.testing.assert_array_equal(block(images).detach().numpy(), wanted.detach().numpy())
