"""The networks by name: their sizes, their gradients, and the smallest images they take."""

import numpy as np
import pytest

import minigrad
from minigrad import models, nn, ops
from minigrad.core.errors import ShapeError
from minigrad.core.tape import write

# Counted by hand: filters * (channels * taps + 1) for each convolution, outputs * (inputs + 1) for each dense layer.
PARAMETERS = {
    "digits-cnn": ((1, 8, 8), 160 + 4_640 + 18_496 + 10_250),
    "keras-cnn": ((1, 28, 28), 320 + 18_496 + 102_464 + 650),
    "lenet": ((1, 28, 28), 156 + 2_416 + 48_120 + 10_164 + 850),
    "mnist-net": ((1, 28, 28), 320 + 18_496 + 1_179_776 + 1_290),
    "mlp": ((1, 8, 8), 8_320 + 16_512 + 1_290),
    "resnet": ((3, 32, 32), 11_173_962),  # the figure known for ResNet-18 with a 3x3 first convolution
}


def test_every_model_is_counted_here():
    assert PARAMETERS.keys() == models.MODELS.keys()


@pytest.mark.parametrize("name", models.MODELS)
def test_parameters(name):
    shape, count = PARAMETERS[name]
    model = models.build(name, shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("name", models.MODELS)
def test_smallest_image(name):
    smallest = models.MODELS[name].smallest
    model = models.build(name, (2, smallest, smallest), classes=3).eval()
    scores = model(minigrad.randn(2, 2, smallest, smallest))
    assert scores.shape == (2, 3)
    assert np.isfinite(scores.detach().numpy()).all()


@pytest.mark.parametrize("name", [name for name, a in models.MODELS.items() if a.smallest > 1])
def test_smaller_images_are_refused_with_the_smallest_size(name):
    smallest = models.MODELS[name].smallest
    with pytest.raises(ShapeError, match=f"{name} wants images of at least {smallest} x {smallest}"):
        models.build(name, (1, 28, smallest - 1))
    with pytest.raises((ValueError, ZeroDivisionError)):  # the table is no stricter than the network itself
        models.MODELS[name].make((1, smallest - 1, smallest - 1), 10)(minigrad.zeros(1, 1, smallest - 1, smallest - 1))


def test_shape_without_channels():
    with pytest.raises(ShapeError, match=r"build: shape is \(28, 28\), want \(C, H, W\)"):
        models.build("mlp", (28, 28))


def test_unknown_name():
    with pytest.raises(ShapeError, match="'vgg', wanted 'digits-cnn' or "):
        models.build("vgg", (1, 28, 28))


@pytest.mark.parametrize("name", [name for name in models.MODELS if name != "resnet"])
def test_relu_follows_every_convolution_and_inner_dense_layer(name):
    layers = list(models.build(name, PARAMETERS[name][0]))
    for layer, following in zip(layers, layers[1:], strict=False):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert isinstance(following, nn.ReLU)
    assert isinstance(layers[-1], nn.Linear)


def test_lenet_sees_small_images_as_padded_to_32():
    minigrad.manual_seed(1)
    small = models.lenet((1, 28, 28))
    minigrad.manual_seed(1)
    large = models.lenet((1, 32, 32))
    images = minigrad.randn(3, 1, 28, 28)
    padded = ops.pad(images, (2, 2, 2, 2))
    np.testing.assert_allclose(small(images).detach().numpy(), large(padded).detach().numpy(), rtol=0, atol=1e-5)


def test_resnet_shortcuts_carry_the_input():
    block = models.BasicBlock(4, 4, 1)
    for convolution in (block.conv1, block.conv2):
        write(convolution.weight).fill(0)
    images = minigrad.rand(2, 4, 5, 5)
    np.testing.assert_array_equal(block(images).detach().numpy(), images.numpy())
    projection = models.BasicBlock(4, 8, 2)
    for convolution in (projection.conv1, projection.conv2):
        write(convolution.weight).fill(0)
    out = projection.eval()(images)
    want = ops.relu(projection.shortcut(images))
    np.testing.assert_array_equal(out.detach().numpy(), want.detach().numpy())
    assert out.shape == (2, 8, 3, 3)


@pytest.mark.parametrize("name", models.MODELS)
def test_every_parameter_gets_a_gradient(name):
    shape = PARAMETERS[name][0] if name != "resnet" else (3, 8, 8)
    model = models.build(name, shape)
    ops.cross_entropy(model(minigrad.randn(3, *shape)), minigrad.tensor([0, 5, 9])).backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None and np.abs(parameter.grad.numpy()).max() > 0, path


def test_the_seed_decides_the_parameters():
    states = []
    for seed in (3, 3, 4):
        minigrad.manual_seed(seed)
        states.append(models.build("lenet", (1, 28, 28)).state_dict()["0.weight"].numpy().copy())
    np.testing.assert_array_equal(states[0], states[1])
    assert (states[0] != states[2]).any()
