"""The engine on devices: moving, mixing, memory, wrong labels; on the interpreter and on GPUs of the stand-in."""

import copy
import re

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, cuda, device, models, nn, optim
from minigrad.core.errors import OutOfMemory
from minigrad.data import Loader, digits
from minigrad.nn import functional as F
from minigrad.train import fit
from tests.kernels.kernel_runs import DEVICE

from .stand_in_gpus import gpus


@pytest.fixture
def machine():
    with gpus() as found:
        yield found


@pytest.fixture(params=["cuda:0"] if DEVICE == "cuda" else ["interpreter", "cuda:0", "cuda:1"])
def place(request):
    """A device. GPUs, of which the first is the current one, are those of the stand-in unless there is a real one."""
    if request.param == "interpreter" or DEVICE == "cuda":
        yield request.param
    else:
        with gpus():
            yield request.param


# ---- moving ----------------------------------------------------------------------------------------------------------

ORDERS = [(2, 3, 4, 5), (0, 3, 4), (), (7,)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", ORDERS, ids=str)
def test_moved_tensors_hold_the_same_and_lie_alike(place, shape, dtype):
    array = (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)
    turned = array.transpose(np.roll(np.arange(array.ndim), 1))
    for x in (array, turned, array[..., ::2] if shape else array):
        there = Tensor(x).to(place)
        assert there.device == place and there.dtype == x.dtype and there.shape == x.shape
        assert device.order_of(there.array) == device.order_of(x)
        back = there.cpu()
        assert back.device == "cpu" and type(back.array) is np.ndarray
        np.testing.assert_array_equal(back.array, x)
    assert there.to(place) is there and there.to(place, copy=True) is not there


def test_gradients_move_back(place):
    x = minigrad.ones(3, requires_grad=True)
    (x.to(place) * Tensor([1.0, 2.0, 3.0]).to(place)).sum().backward()
    assert x.grad.device == "cpu" and x.grad.tolist() == [1, 2, 3]


def test_gpus_by_number_and_by_name(machine):
    assert Tensor([1.0]).cuda().device == Tensor([1.0]).cuda("cuda").device == "cuda:0"
    assert nn.Linear(2, 3).cuda(1).weight.device == minigrad.ones(2, device="cuda:1").device == "cuda:1"
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
    one, other = Tensor([1.0, 2.0]).cuda(0), minigrad.zeros(2).cuda(1)
    assert one.to("cuda:1").device == other.device and (one.to(other) + other).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="device is 'cuda:2', but the GPUs of this machine are: 'cuda:0', 'cuda:1'"):
        one.to("cuda:2")
    for wrong in ("cuda:x", "gpu", "cuda:", "cpu:0"):
        with pytest.raises(TypeError):
            minigrad.zeros(1, device=wrong)


def test_a_process_that_chooses_its_gpu_uses_no_other(machine):
    """Else the driver sets up GPU 0 for it, too."""
    assert cuda.device_count() == 2 and not machine.contexts
    cuda.set_device(1)
    layer, x = nn.Linear(3, 2).to("cuda"), minigrad.ones(4, 3).to("cuda:1")
    layer(x).sum().backward()
    optim.SGD(layer.parameters(), lr=0.1).step()
    cuda.synchronize()
    assert layer.weight.device == "cuda:1" and cuda.current_device() == 1 and machine.contexts == {1}
    with pytest.raises(RuntimeError, match="device is 'cuda:2', but the GPUs of this machine are"):
        cuda.set_device(2)


def test_without_a_gpu_the_error_says_why():
    with gpus(error=35):
        assert not cuda.is_available()
        with pytest.raises(RuntimeError, match="device is 'cuda', but no GPU can be used: .*driver"):
            minigrad.zeros(1, device="cuda")


def test_modules_move_with_their_state(place):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).to(place)
    assert {t.device for t in (*model.parameters(), *model.buffers())} == {place}
    state = model.state_dict()
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    other.load_state_dict(state)
    model.load_state_dict(other.state_dict())
    twin = copy.deepcopy(model)
    for mine, theirs, third in zip(model.parameters(), other.parameters(), twin.parameters(), strict=True):
        assert (mine.device, theirs.device, third.device) == (place, "cpu", place)
        np.testing.assert_array_equal(mine.detach().numpy(), theirs.detach().numpy())
    model(minigrad.ones(2, 3, 5, 5, device=place)).sum().backward()
    assert {p.grad.device for p in model.cpu().parameters()} == {"cpu"}


def test_checkpoints_know_no_device(place, tmp_path):
    def parts():
        model = nn.Linear(3, 2)
        return model, optim.Adam(model.parameters())

    model, optimizer = parts()
    model.to(place)
    model(minigrad.ones(4, 3, device=place)).sum().backward()
    optimizer.step()
    checkpoint.save(tmp_path / "run", model, optimizer)
    here, its = parts()
    checkpoint.load(tmp_path / "run", here, its)
    np.testing.assert_array_equal(here.weight.detach().numpy(), model.weight.detach().numpy())
    assert its.state[here.weight]["exp_avg"].tolist() == device.host(optimizer.state[model.weight]["exp_avg"]).tolist()
    checkpoint.load(tmp_path / "run", model, optimizer)
    assert model.weight.device == place


# ---- two devices -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: minigrad.cat([x, y]),
        lambda x, y: x @ y,
        lambda x, y: F.linear(x, y),
        lambda x, y: minigrad.where(x > 0, x, y),
        lambda x, y: F.mse_loss(x, y),
        lambda x, y: F.cross_entropy(x, y[0].long() * 0),
    ],
)
def test_ops_refuse_two_devices_by_name(place, call):
    x, y = minigrad.ones(3, 3, device=place), minigrad.ones(3, 3)
    with pytest.raises(
        RuntimeError, match=rf"(is on cpu, \S+ on {place}|is on {place}, \S+ on cpu); wanted one device"
    ):
        call(x, y)
    with pytest.raises(RuntimeError, match="wanted one device"):
        call(y, x)


def test_numbers_and_tensors_without_dimensions_go_anywhere(place):
    x = minigrad.ones(2, device=place, requires_grad=True)
    y = (x * 2 + Tensor(np.float32(3))) / minigrad.tensor(4.0)
    assert y.device == place and y.tolist() == [1.25, 1.25]
    with pytest.raises(RuntimeError, match="wanted one device"):
        x * minigrad.tensor(4.0, requires_grad=True)


def test_subscripts_may_come_from_the_host(place):
    x = minigrad.arange(6, dtype="float32").reshape(2, 3).to(place).requires_grad_()
    y = x[[1, 0, 1], Tensor(np.array([2, 2, 2]))]
    y.sum().backward()
    assert y.tolist() == [5, 2, 5] and x.grad.tolist() == [[0, 0, 1], [0, 0, 2]]


# ---- labels, memory --------------------------------------------------------------------------------------------------


def test_wrong_labels_are_reported_when_the_device_is_waited_for(place):
    scores = minigrad.zeros(4, 3, device=place, requires_grad=True)
    loss = F.cross_entropy(scores, Tensor(np.array([0, -100, 7, -5])).to(place))
    loss.backward()  # nobody has looked yet
    with pytest.raises(ValueError, match=re.escape("cross_entropy: target[2] = 7 is not the number of a class")):
        loss.item()
    assert np.isnan(loss.item())  # reported once; the device goes on
    assert F.cross_entropy(scores, Tensor(np.array([0, 1, 2, 0])).to(place)).item() == pytest.approx(np.log(3))
    F.cross_entropy(scores, Tensor(np.array([3, 0, 0, 0])).to(place))
    with pytest.raises(ValueError, match=re.escape("target[0] = 3")):
        device.synchronize(place)


def test_out_of_memory_says_what_to_do():
    with gpus(1, capacity=1 << 16):
        x = minigrad.ones(1000, device="cuda")
        with pytest.raises(OutOfMemory, match="cuda:0 is out of memory: wanted 400,... bytes, but .* are free"):
            minigrad.zeros(100_000, device="cuda")
        assert isinstance(pytest.raises(MemoryError, minigrad.zeros, 100_000, device="cuda").value, OutOfMemory)
        assert (x + 1).sum().item() == 2000  # and the GPU goes on


def test_fit_says_which_batch_was_too_large():
    with gpus(1, capacity=1 << 20):
        model = models.build("mlp", (1, 8, 8)).to("cuda")
        train, _ = digits()
        loader = Loader(train, 1024)
        with pytest.raises(OutOfMemory, match="a batch had 1024 images, try 512"):
            fit(model, loader, optim.SGD(model.parameters(), 0.1), 1)
        assert all(p.grad is None for p in model.parameters())


def test_memory_that_was_kept_is_given_back_before_an_error():
    with gpus(1, capacity=1 << 20):
        for size in (100_000, 150_000, 200_000):  # each too large for what the one before left in the pool
            minigrad.zeros(size, device="cuda")
