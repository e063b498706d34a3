"""Model parallel: layers of one model on several devices, with the numbers of one."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, grad, nn, optim
from minigrad.core.errors import StateError
from minigrad.nn import functional as F
from minigrad.parallel.local import run_local
from minigrad.parallel.pipeline import Pipeline
from minigrad.parallel.transfer import recv, send
from minigrad_kernels.toolchain import set_threads, threads

from .stand_in_gpus import gpus

LIMIT = 60.0  # seconds
STEPS = 2


@pytest.fixture(autouse=True)
def one_kernel_thread():
    """Ranks are threads already."""
    before = threads()
    set_threads(1)
    yield
    set_threads(before)


class Split(nn.Module):
    """Convolution and batch norm on one device, the linear layers on another, and a way from each around the other."""

    def __init__(self, first, second):
        self.conv = nn.Conv2d(1, 4, 3).to(first)
        self.norm = nn.BatchNorm2d(4).to(first)
        self.drop = nn.Dropout(0.25)
        self.linear = nn.Linear(4 * 16, 6).to(second)
        self.gate = nn.Linear(36, 6).to(first)
        self.head = nn.Linear(6, 3).to(second)
        self.first, self.second = first, second

    def forward(self, x):
        x = x.to(self.first)
        hidden = self.drop(F.relu(self.norm(self.conv(x)))).to(self.second)
        gate = F.sigmoid(self.gate(x.flatten(1)))
        hidden = self.linear(hidden.flatten(1))
        there_and_back = (hidden.to(self.first) * gate).to(self.second)
        return self.head(hidden + there_and_back)


def trained(first, second, rule):
    """(losses, state of the model) after some steps, as NumPy arrays."""
    minigrad.manual_seed(0)
    model = Split("cpu", "cpu")
    for name, place in (("conv", first), ("norm", first), ("gate", first), ("linear", second), ("head", second)):
        getattr(model, name).to(place)
    model.first, model.second = first, second
    optimizer = rule(model.parameters())
    x, y = minigrad.randn(4, 1, 6, 6), Tensor(np.arange(4) % 3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y.to(second))
        loss.backward()
        for name, p in model.named_parameters():
            wanted = second if name.startswith(("linear", "head")) else first
            assert p.device == p.grad.device == wanted, name
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.cpu().numpy() for name, value in model.state_dict().items()}


RULES = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=1e-2, eps=1e-3),  # an eps at which a gradient near 0 may change its sign
}


def assert_close(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for name, value in wanted[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("rule", RULES)
def test_a_model_on_the_interpreter_and_the_cpu_trains_as_on_one(rule):
    wanted = trained("cpu", "cpu", RULES[rule])
    for places in (("interpreter", "cpu"), ("cpu", "interpreter")):
        assert_close(trained(*places, RULES[rule]), wanted)


@pytest.mark.parametrize("rule", RULES)
def test_a_model_on_two_gpus_has_the_bits_of_one(rule):
    """On the stand-in for CuPy, whose current GPU stays the first; arrays that meet on two GPUs would be refused."""
    with gpus(2):
        one = trained("cuda:0", "cuda:0", RULES[rule])
        two = trained("cuda:0", "cuda:1", RULES[rule])
    assert two[0] == one[0]
    for name, value in one[1].items():
        assert two[1][name].tobytes() == value.tobytes(), name
    assert_close(one, trained("cpu", "cpu", RULES[rule]))


def test_gradients_of_second_order_cross_devices():
    x = Tensor(np.array([0.5, -1.0]), requires_grad=True)
    y = x.to("interpreter")
    (first,) = grad((y * y * y).to("cpu").sum(), x, create_graph=True)
    assert first.device == "cpu"
    np.testing.assert_allclose(first.detach().numpy(), 3 * x.detach().numpy() ** 2)
    np.testing.assert_allclose(grad(first.sum(), x)[0].numpy(), 6 * x.detach().numpy())


def test_a_forgotten_move_names_both_devices():
    layer = nn.Linear(2, 2).to("interpreter")
    with pytest.raises(StateError, match="weight is on interpreter, input on cpu; wanted one device"):
        layer(minigrad.ones(3, 2))


# ---- between ranks ---------------------------------------------------------------------------------------------------


def test_what_was_sent_lies_where_it_is_wanted():
    """The gradient comes back to the device that the input was on."""

    def run(world):
        if world.rank == 0:
            x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
            send(x.to("interpreter") * 2, 1).backward()
            return x.grad.device, x.grad.tolist()
        x = recv((2, 3), None, 0, device="interpreter")
        (x * x).sum().backward()
        return x.device, x.tolist()

    sender, receiver = run_local(run, 2, timeout=LIMIT)
    assert sender == ("cpu", [[0, 8, 16], [24, 32, 40]])
    assert receiver == ("interpreter", [[0, 2, 4], [6, 8, 10]])


def staged(world, places):
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    pipe = Pipeline(model, world, 2, balance=[2, 1, 2], device=places[world.rank])
    rule = optim.SGD(pipe.parameters(), lr=0.1) if world.rank != 1 else None
    x, y = minigrad.randn(4, 1, 6, 6), Tensor(np.arange(4) % 3)
    losses = []
    for _ in range(STEPS):
        pipe.zero_grad()
        losses.append(pipe.train_step(x, y))
        if rule:
            rule.step()
    assert pipe.device == places[world.rank] and pipe(x).device == pipe.device
    return losses, {name: value.numpy() for name, value in pipe.state_dict().items()}


def test_stages_of_a_pipeline_may_lie_on_different_devices():
    wanted = run_local(staged, 3, ("cpu",) * 3, timeout=LIMIT)[0]
    for found in run_local(staged, 3, ("cpu", "interpreter", "cpu"), timeout=LIMIT):
        assert_close(found, wanted)
    with gpus(2):
        for found in run_local(staged, 3, ("cuda:0", "cuda:1", "cpu"), timeout=LIMIT):
            assert_close(found, wanted)
