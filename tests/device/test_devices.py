"""The engine on devices: moving, mixing, memory, wrong labels, streams; on the interpreter and the stand-in's GPUs."""

import copy
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, cuda, device, grad, nn, optim
from minigrad.core.errors import OutOfMemory
from minigrad.data import Compose, Dataset, Loader, Normalize, PadCrop, digits
from minigrad.nn import functional as F
from minigrad.train import fit
from tests.benchmarks import tasks
from tests.kernels.kernel_runs import DEVICE

from .stand_in_gpus import gpus

RNG = np.random.default_rng(0)


@pytest.fixture
def machine():
    with gpus() as found:
        yield found


@pytest.fixture(params=["cuda:0"] if DEVICE == "cuda" else ["interpreter", "cuda:1"])
def place(request):
    """A device. A GPU is one of the stand-in that is not the current one, unless there is a real one."""
    if request.param == "interpreter" or DEVICE == "cuda":
        yield request.param
    else:
        with gpus():
            yield request.param


# ---- moving ----------------------------------------------------------------------------------------------------------


def test_moved_tensors_hold_the_same_and_lie_alike(place):
    for dtype, shape in (("float32", (2, 3, 4, 5)), ("float16", (0, 3, 4)), ("int64", ()), ("bool", (7,))):
        array = (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)
        turned = array.transpose(np.roll(np.arange(array.ndim), 1))
        for x in (array, turned, array[..., ::2] if shape else array):
            there = Tensor(x).to(place)
            assert (there.device, there.dtype, there.shape) == (place, x.dtype, x.shape)
            assert device.order_of(there.array) == device.order_of(x)
            assert type(there.cpu().array) is np.ndarray and there.cpu().tolist() == x.tolist()
            assert there.to(place) is there and there.to(place, copy=True) is not there
    x = Tensor(np.array([0.5, -1.0]), requires_grad=True)
    y = x.to(place)
    (first,) = grad((y * y * y).to("cpu").sum(), x, create_graph=True)
    assert first.device == "cpu" and first.tolist() == [0.75, 3]
    assert grad(first.sum(), x)[0].tolist() == [3, -6]


def test_gpus_by_number_and_by_name(machine):
    assert Tensor([1.0]).cuda().device == Tensor([1.0]).cuda("cuda").device == "cuda:0"
    assert nn.Linear(2, 3).cuda(1).weight.device == minigrad.ones(2, device="cuda:1").device == "cuda:1"
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
    one, other = Tensor([1.0, 2.0]).cuda(0), minigrad.zeros(2).cuda(1)
    assert one.to("cuda:1").device == other.device and (one.to(other) + other).tolist() == [1, 2]
    for wrong in ("cuda:x", "gpu", "cuda:", "cpu:0"):
        with pytest.raises(TypeError):
            minigrad.zeros(1, device=wrong)
    with gpus(error=35):
        assert not cuda.is_available()
        with pytest.raises(RuntimeError, match="device is 'cuda', but no GPU can be used: .*driver"):
            minigrad.zeros(1, device="cuda")


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


def test_modules_move_with_their_state_and_checkpoints_know_no_device(place, tmp_path):
    def parts():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        return model, optim.Adam(model.parameters())

    (model, optimizer), (here, its) = parts(), parts()
    model.to(place)
    model(minigrad.ones(2, 3, 5, 5, device=place)).sum().backward()
    optimizer.step()
    checkpoint.save(tmp_path / "run", model, optimizer)
    checkpoint.load(tmp_path / "run", here, its)
    moments = (its.state[here[0].weight]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"])
    assert device.host(moments[0]).tolist() == device.host(moments[1]).tolist()
    for one, where in ((copy.deepcopy(model), place), (here, "cpu")):
        assert {t.device for t in (*one.parameters(), *one.buffers())} == {where}
        for name, value in one.state_dict().items():
            np.testing.assert_array_equal(value.cpu().numpy(), model.state_dict()[name].cpu().numpy())
    assert {p.grad.device for p in model.cpu().parameters()} == {"cpu"}


def test_what_is_made_filled_and_added_there_stays_there(place):
    x = minigrad.arange(3, dtype="float32", device=place)
    assert Tensor(x.array, dtype="float64").device == minigrad.tensor(x.array, "int64", place).device == place
    layer = nn.BatchNorm2d(3, device=place)
    assert {t.device for t in (*layer.parameters(), *layer.buffers())} == {place}
    assert nn.init.constant_(minigrad.zeros(2, device=place), 2.5).tolist() == [2.5, 2.5]
    model = nn.Linear(2, 1).to(place)
    for owner in (model, optim.SGD(model.parameters(), 0.1)):
        model(minigrad.ones(1, 2, device=place)).sum().backward()
        owner.zero_grad(set_to_none=False)
        assert model.weight.grad.device == place and model.weight.grad.tolist() == [[0, 0]]
    # Numbers and subscripts may come from the host.
    x = minigrad.arange(6, dtype="float32").reshape(2, 3).to(place).requires_grad_()
    y = x[[1, 0, 1], Tensor(np.array([2, 2, 2]))] * 2 + Tensor(np.float32(3)) / minigrad.tensor(4.0)
    y.sum().backward()
    assert y.device == place and y.tolist() == [10.75, 4.75, 10.75] and x.grad.tolist() == [[0, 0, 2], [0, 0, 4]]


def test_gradients_of_two_devices_do_not_mix(place):
    for here, there in (("cpu", place), (place, "cpu")):
        w = minigrad.ones(2, device=here, requires_grad=True)
        w.sum().backward()
        w.data = w.detach().to(there)
        with pytest.raises(RuntimeError, match=f"a gradient on {there} cannot be added to .grad on {here}"):
            w.sum().backward()
        w.grad = None
        w.sum().backward()
        assert w.grad.device == there


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


def test_out_of_memory_says_what_to_do_and_the_gpu_goes_on():
    with gpus(1, capacity=1 << 20):
        for size in (100_000, 150_000, 200_000):  # each too large for what the one before left in the pool
            minigrad.zeros(size, device="cuda")
        x = minigrad.ones(1000, device="cuda")
        with pytest.raises(OutOfMemory, match="cuda:0 is out of memory: wanted 4,000,... bytes, but .* are free"):
            minigrad.zeros(1_000_000, device="cuda")
        assert issubclass(OutOfMemory, MemoryError) and (x + 1).sum().item() == 2000
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1 << 16))
        with pytest.raises(OutOfMemory):
            model.cuda()
        assert {p.device for p in model.parameters()} == {"cpu"}  # it moves whole or not at all
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256)).to("cuda")
        with pytest.raises(OutOfMemory, match="a batch had 1024 images, try 512"):
            fit(model, Loader(digits()[0], 1024), optim.SGD(model.parameters(), 0.1), 1)
        assert all(p.grad is None for p in model.parameters())


# ---- streams and threads ---------------------------------------------------------------------------------------------


def parts(place):
    minigrad.manual_seed(0)
    layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 4)
    model = nn.Sequential(*layers).to(place)
    return model, optim.Adam(model.parameters())


def losses(training, batch, count):
    step = tasks.step_of(*training, F.cross_entropy, [batch])
    return [step(number).item() for number in range(count)]


@pytest.mark.deep
def test_trainings_on_several_streams_and_in_several_threads(machine):
    """A training that changes its stream, and one for each GPU in a thread, have the losses of one alone."""
    x, y = RNG.standard_normal((2, 1, 8, 8), "float32"), np.array([1, 2])
    batches = {gpu: (Tensor(x).to(gpu), Tensor(y).to(gpu)) for gpu in ("cuda:0", "cuda:1")}
    wanted, training, found = losses(parts("cuda:1"), batches["cuda:1"], 2), parts("cuda:1"), []
    for _ in range(2):
        cuda.synchronize("cuda:1")
        with cuda.stream(cuda.Stream("cuda:1")):
            assert cuda.current_device() == 1
            found += losses(training, batches["cuda:1"], 1)
    assert found == wanted and cuda.current_device() == 0
    trainings = [parts(gpu) for gpu in batches]  # each from the one seed
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(losses, trainings, batches.values(), (2, 2))) == [wanted, wanted]


@pytest.mark.deep
def test_a_loader_serves_any_stream(machine):
    data = Dataset(RNG.integers(0, 256, (13, 1, 8, 8), np.uint8), RNG.integers(0, 4, 13), tuple("abcd"))
    loader, kept = Loader(data, 8, device="cuda"), []
    for stream in (cuda.Stream(), cuda.Stream()):
        with cuda.stream(stream):
            kept.append(next(iter(loader))[0])
    with cuda.stream(stream):
        np.testing.assert_allclose(kept[1].numpy(), data.images[:8] / 255, rtol=1e-6)
    for steps in ([PadCrop(2), Normalize((0.1,), (0.5,))], [Normalize((0.1,), (0.5,)), PadCrop(2)]):
        (model, optimizer), loader = parts("cuda"), Loader(data, 8, True, transform=Compose(steps), device="cuda")
        cuda.synchronize()
        with cuda.stream(cuda.Stream()):
            assert len(fit(model, loader, optimizer, 1, clip=1.0)) == 1
