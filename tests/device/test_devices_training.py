"""Training and inference on devices: as on the CPU, by our own kernels, with data that lie on the device."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, cuda, models, nn, no_grad, optim
from minigrad.data import Compose, Dataset, Flip, Loader, Normalize, PadCrop
from minigrad.nn import functional as F
from minigrad_kernels import interpreter

from .stand_in_gpus import gpus


@pytest.fixture
def machine():
    with gpus() as found:
        yield found


# ---- training --------------------------------------------------------------------------------------------------------


def trained(name, place, kind=optim.Adam, steps=3, batch=4):
    """(losses, parameters) after some steps from the same start."""
    minigrad.manual_seed(0)
    model = models.build(name, (1, 28, 28)).to(place)
    optimizer = kind(model.parameters(), lr=1e-3)
    x, y = minigrad.randn(batch, 1, 28, 28).to(place), Tensor(np.arange(batch) % 10).to(place)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy() for p in model.parameters()]


@pytest.mark.deep
@pytest.mark.parametrize("name", ["lenet", "keras-cnn"])
def test_three_steps_on_the_interpreter_equal_the_cpu(name):
    here, there = trained(name, "cpu"), trained(name, "interpreter")
    np.testing.assert_allclose(there[0], here[0], rtol=1e-5)
    for one, other in zip(here[1], there[1], strict=True):
        # A step of Adam is at most the rate; gradients near 0 may differ in sign.
        np.testing.assert_allclose(other, one, atol=6e-3)
        assert np.median(np.abs(other - one)) < 1e-6


@pytest.mark.deep
def test_two_runs_give_the_same_bits():
    one, other = trained("lenet", "interpreter", steps=2), trained("lenet", "interpreter", steps=2)
    assert one[0] == other[0]
    for first, second in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(first, second)


def test_dropout_drops_the_same_on_every_device():
    drop, x = nn.Dropout(0.4), minigrad.ones(3, 5, 7)
    outs = []
    for place in ("cpu", "interpreter"):
        minigrad.manual_seed(5)
        outs.append([drop(x.to(place)).tolist() for _ in range(2)])
    assert outs[0] == outs[1] and outs[0][0] != outs[0][1]


def lowest_rungs(machine, dtype):
    """The launches of a rung's lowest kinds in a step of a network whose every size fits the highest."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(16 * 9, 12),
    ).to("cuda", dtype)
    optimizer = optim.Adam(model.parameters())
    x, y = minigrad.randn(4, 1, 12, 12, dtype=dtype).cuda(), Tensor(np.arange(4)).cuda()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    return {launch.name for launch in machine.launches if "plain" in launch.name or "tiled" in launch.name}


def test_a_step_on_a_gpu_calls_no_library_and_no_rung_below_the_default(machine):
    assert not lowest_rungs(machine, "float32")
    assert not machine.library
    lowest = lowest_rungs(machine, "float64")  # which has no other: so they would be seen
    assert {name.partition("_")[0] for name in lowest} >= {"conv2d", "matmul", "pool2d", "norm", "bias"}


def test_a_step_of_lenet_on_a_gpu_calls_no_library_product(machine):
    trained("lenet", "cuda:0", steps=1)
    assert machine.launches and not machine.library


# ---- inference -------------------------------------------------------------------------------------------------------


def network():
    minigrad.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 1),
        nn.ReLU(),
    )
    for _ in range(3):
        model(minigrad.randn(4, 3, 6, 6))
    return model.eval()


@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_inference_folds_batch_norm_and_relu_into_convolution(place):
    model, x = network().to(place), minigrad.randn(2, 3, 6, 6).to(place)
    apart = model(x).detach().numpy()
    with interpreter.recording() as launches, no_grad():
        out = model(x)
    assert out.call is None and not out.requires_grad
    np.testing.assert_allclose(out.numpy(), apart, rtol=1e-5, atol=1e-6)
    if place == "interpreter":  # three convolutions, and nothing else that reads a map
        assert [name.partition("_")[0] for name, _ in launches if not name.startswith("matmul_add")] in (
            ["conv2d", "conv2d", "conv2d"],
            ["conv2d", "conv2d", "matmul"],
        )


def test_what_is_folded_later_does_not_change_what_was_looked_at():
    """A second use of a convolution's result, a hook, and a result kept until after the call."""

    class Twice(nn.Module):
        def __init__(self):
            self.conv, self.norm, self.kept = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), None
            self.norm.running_mean.array[:] = 3

        def forward(self, x):
            self.kept = y = self.conv(x)
            return F.relu(self.norm(y)) + F.relu(y) + y

    model, x = Twice().eval(), minigrad.randn(2, 2, 3, 3)
    wanted = model(x)
    with no_grad():
        out = model(x)
        seen = []
        hook = model.conv.register_forward_hook(lambda module, arguments, result: seen.append(result.numpy().copy()))
        model(x)
    hook.remove()
    np.testing.assert_allclose(out.numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert model.kept.call is None
    np.testing.assert_array_equal(model.kept.numpy(), model.conv(x).detach().numpy())
    np.testing.assert_array_equal(seen[0], model.kept.numpy())


def test_nothing_waits_outside_of_a_module():
    x, w = minigrad.ones(1, 1, 2, 2), minigrad.ones(1, 1, 1, 1)
    with no_grad():
        y = F.conv2d(x, w)
        kept = nn.Conv2d(1, 1, 1)(x)
        x.array[...] = 7
    assert type(y) is Tensor and y.sum().item() == 4 and kept.call is None
    conv = nn.Conv2d(1, 1, 1)
    conv(x).sum().backward()
    assert conv.weight.grad.item() == 28


def test_batch_norm_in_training_is_not_folded():
    model, x = network().train(), minigrad.randn(4, 3, 6, 6)
    before = model[1].running_mean.tolist()
    with no_grad():
        model(x)
    assert model[1].running_mean.tolist() != before and model[1].num_batches_tracked.item() == 4


# ---- data ------------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (23, 3, 6, 5), np.uint8), RNG.integers(0, 4, 23), tuple("abcd"))
NORMALIZE = Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
RESIDENT = {
    "as they are": None,
    "normalised": NORMALIZE,
    "cut": PadCrop(2),
    "mirrored": Flip(),
    "all": Compose([PadCrop(1, "edge"), Flip(0.3), NORMALIZE]),
}


@pytest.mark.parametrize("name", RESIDENT)
def test_batches_made_on_the_device_are_those_of_the_cpu(name):
    loaders = [
        Loader(DATA, 8, True, seed=3, transform=RESIDENT[name], device=place) for place in ("cpu", "interpreter")
    ]
    for _ in range(2):
        for here, there in zip(*loaders, strict=True):
            assert there[0].device == there[1].device == "interpreter" and there[0].dtype == "float32"
            np.testing.assert_allclose(there[0].numpy(), here[0].numpy(), rtol=3e-7, atol=1e-7)
            np.testing.assert_array_equal(there[1].numpy(), here[1].numpy())
    assert loaders[1]._resident


@pytest.mark.parametrize("steps", [[Flip(), PadCrop(1)], [lambda images, generator: images[:, ::-1].copy()]])
def test_other_transforms_are_applied_on_the_host_and_sent(steps):
    loaders = [Loader(DATA, 8, True, transform=Compose(steps), device=place) for place in ("cpu", "interpreter")]
    for here, there in zip(*loaders, strict=True):
        assert there[0].device == "interpreter"
        np.testing.assert_array_equal(there[0].numpy(), here[0].numpy())
    assert loaders[1]._resident is None


def test_a_data_set_that_does_not_fit_stays_on_the_host():
    with gpus(1, capacity=5000) as machine:
        loader = Loader(DATA, 8, device="cuda", transform=NORMALIZE)
        images, _ = next(iter(loader))
        assert images.device == "cuda:0" and loader._resident is None and not machine.synchronisations


def test_an_epoch_on_the_device_goes_on_where_it_was_left():
    loader = Loader(DATA, 8, True, device="interpreter")
    first = [labels.tolist() for _, labels in loader]
    other = Loader(DATA, 8, True, device="interpreter")
    next(iter(other))
    state = other.state_dict()
    again = Loader(DATA, 8, True, device="interpreter")
    again.load_state_dict(state)
    assert [labels.tolist() for _, labels in again] == first[1:]


# ---- ranges ----------------------------------------------------------------------------------------------------------


def test_ops_and_layers_are_ranges_for_profilers(machine):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).cuda()
    x = minigrad.ones(2, 4, device="cuda")
    model(x)
    assert not machine.ranges
    with cuda.emit_nvtx():
        model(x).sum().backward()
    # One range for what runs in one pass, inside of the layer with which it ends.
    assert machine.ranges[:4] == ["Sequential", "Linear", "ReLU", "linear_relu"] and "relu" not in machine.ranges
    assert "linear_relu.backward" in machine.ranges
    assert not machine.open_ranges
