"""Training and inference on devices: as on the CPU, by our own kernels, with data that lie on the device."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, cuda, nn, no_grad, optim
from minigrad.data import Compose, Dataset, Flip, Loader, Normalize, PadCrop
from minigrad.nn import functional as F
from minigrad_kernels import interpreter

from .stand_in_gpus import gpus


@pytest.fixture
def machine():
    with gpus() as found:
        yield found


# ---- training --------------------------------------------------------------------------------------------------------


class Split(nn.Module):
    """Convolution and batch norm on one device, a linear layer on another, and a way there and back around it."""

    def __init__(self, first, second):
        self.first, self.second = first, second
        self.conv, self.norm, self.drop = nn.Conv2d(1, 4, 3).to(first), nn.BatchNorm2d(4).to(first), nn.Dropout(0.25)
        self.linear, self.gate = nn.Linear(4 * 16, 3).to(second), nn.Linear(36, 3).to(first)

    def forward(self, x):
        x = x.to(self.first)
        hidden = self.drop(F.relu(self.norm(self.conv(x)))).to(self.second)
        hidden = self.linear(hidden.flatten(1))
        return hidden + (hidden.to(self.first) * F.sigmoid(self.gate(x.flatten(1)))).to(self.second)


def trained(first, second):
    """The loss and the state of the model after a step, as NumPy arrays."""
    minigrad.manual_seed(0)
    model = Split(first, second)
    optimizer = optim.Adam(model.parameters(), lr=1e-2, eps=1e-3)  # at which a gradient near 0 may change its sign
    x, y = minigrad.randn(4, 1, 6, 6), Tensor(np.arange(4) % 3)
    loss = F.cross_entropy(model(x), y.to(second))
    loss.backward()
    assert all(p.device == p.grad.device for p in model.parameters())
    optimizer.step()
    return {"loss": loss.item()} | {name: value.cpu().numpy() for name, value in model.state_dict().items()}


def test_a_model_on_two_devices_trains_as_on_one():
    """GPUs are the stand-in's for CuPy, whose current GPU stays the first; arrays that meet on two would be refused."""
    wanted, others = trained("cpu", "cpu"), [trained("interpreter", "cpu")]
    with gpus(2):
        others.append(trained("cuda:0", "cuda:1"))
    for found in others:
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.deep
def test_a_step_on_a_gpu_calls_no_library_and_no_rung_below_the_default(machine):
    """Of a network whose every size fits the highest; float64 has no other rung: so they would be seen."""
    found = {}
    for dtype in ("float32", "float64"):
        model = nn.Sequential(
            *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Dropout(0.25), nn.Flatten(), nn.Linear(16 * 9, 12)),
        ).to("cuda", dtype)
        optimizer = optim.Adam(model.parameters())
        x, y = minigrad.randn(4, 1, 12, 12, dtype=dtype).cuda(), Tensor(np.arange(4)).cuda()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        found[dtype] = {launch.name for launch in machine.launches if "plain" in launch.name or "tiled" in launch.name}
    assert not found["float32"] and not machine.library
    assert {name.partition("_")[0] for name in found["float64"]} >= {"conv2d", "matmul", "pool2d", "norm", "bias"}


# ---- inference -------------------------------------------------------------------------------------------------------


def test_inference_folds_batch_norm_and_relu_into_convolution():
    minigrad.manual_seed(1)
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.ReLU()),
    )
    before = model[1].running_mean.tolist()
    with no_grad():
        model(minigrad.randn(4, 3, 6, 6))  # in training nothing is folded
    assert model[1].running_mean.tolist() != before
    model, x = model.eval().to("interpreter"), minigrad.randn(2, 3, 6, 6).to("interpreter")
    apart = model(x).detach().numpy()
    with interpreter.recording() as launches, no_grad():
        out = model(x)
    assert out.call is None and not out.requires_grad
    np.testing.assert_allclose(out.numpy(), apart, rtol=1e-5, atol=1e-6)
    # Three convolutions, and nothing else that reads a map.
    *first, last = [name.partition("_")[0] for name, _ in launches if not name.startswith("matmul_add")]
    assert first == ["conv2d", "conv2d"] and last in ("conv2d", "matmul")


# ---- data ------------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (23, 3, 6, 5), np.uint8), RNG.integers(0, 4, 23), tuple("abcd"))
NORMALIZE = Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
TRANSFORMS = [  # (the transform, whether it is done where the data lie)
    (NORMALIZE, True),
    (Compose([PadCrop(1), Flip(0.3), NORMALIZE]), True),
    (Compose([Flip(), PadCrop(1)]), False),  # in another order
    (Compose([lambda images, generator: images[:, ::-1].copy()]), False),  # one's own
]


def test_batches_on_the_device_are_those_of_the_cpu():
    for transform, there in TRANSFORMS:
        loaders = [Loader(DATA, 8, True, seed=3, transform=transform, device=place) for place in ("cpu", "interpreter")]
        for _ in range(2):
            for (x, y), (images, labels) in zip(*loaders, strict=True):
                assert images.device == labels.device == "interpreter" and images.dtype == "float32"
                np.testing.assert_allclose(images.numpy(), x.numpy(), rtol=3e-7, atol=1e-7)
                assert labels.tolist() == y.tolist()
        assert bool(loaders[1]._resident) == there
    first, other, again = (Loader(DATA, 8, True, device="interpreter") for _ in range(3))
    wanted = [labels.tolist() for _, labels in first]
    next(iter(other))
    again.load_state_dict(other.state_dict())  # an epoch goes on where it was left
    assert [labels.tolist() for _, labels in again] == wanted[1:]


def test_a_data_set_that_does_not_fit_stays_on_the_host():
    with gpus(1, capacity=5000) as machine:
        loader = Loader(DATA, 8, device="cuda", transform=NORMALIZE)
        images, _ = next(iter(loader))
        assert images.device == "cuda:0" and loader._resident is None and not machine.synchronisations


# ---- ranges ----------------------------------------------------------------------------------------------------------


def test_ops_and_layers_are_ranges_for_profilers(machine):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).cuda()
    x = minigrad.ones(2, 4, device="cuda")
    model(x)
    assert not machine.ranges
    with cuda.emit_nvtx():
        model(x).sum().backward()
    # One range for what runs in one pass, inside of the layer with which it ends.
    begun = [name for name in machine.ranges if name]
    assert begun[:4] == ["Sequential", "Linear", "ReLU", "linear_relu"] and "relu" not in begun
    assert "linear_relu.backward" in begun and machine.ranges.count(None) == len(begun)
