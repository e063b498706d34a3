"""The engine on devices, at the edges: GPUs that are not current, streams, threads, small types, work cut short."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, cuda, device, gradcheck, gradgradcheck, models, nn, no_grad, optim
from minigrad.core.errors import OutOfMemory
from minigrad.data import Compose, Dataset, Loader, Normalize, PadCrop
from minigrad.nn import functional as F
from minigrad.train import fit

from .stand_in_gpus import gpus

pytestmark = pytest.mark.deep

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (23, 1, 28, 28), np.uint8), RNG.integers(0, 4, 23), tuple("abcd"))


@pytest.fixture(params=["interpreter", "cuda:1"])
def place(request):
    """A device; a GPU is not the current one."""
    if request.param == "interpreter":
        yield request.param
    else:
        with gpus():
            yield request.param


@pytest.fixture
def machine():
    with gpus() as found:
        yield found


# ---- arrays and modules of a GPU that is not the current one ---------------------------------------------------------


def test_layers_are_made_and_filled_there(place):
    for layer in (nn.BatchNorm2d(3, device=place), nn.GroupNorm(3, 3, device=place), nn.LayerNorm(4, device=place)):
        assert {t.device for t in (*layer.parameters(), *layer.buffers())} == {place}
        assert layer(minigrad.ones(2, 3, 4, 4, device=place)).device == place
    assert nn.init.constant_(minigrad.zeros(2, device=place), 2.5).tolist() == [2.5, 2.5]
    with pytest.raises(ValueError, match="constant_: val is 300, which does not fit in uint8"):
        nn.init.constant_(minigrad.zeros(2, dtype="uint8", device=place), 300)


def test_gradients_are_filled_with_zeros_where_they_are(place):
    model = nn.Linear(2, 1).to(place)
    for owner in (model, optim.SGD(model.parameters(), 0.1)):
        model(minigrad.ones(1, 2, device=place)).sum().backward()
        owner.zero_grad(set_to_none=False)
        assert model.weight.grad.device == place and model.weight.grad.tolist() == [[0, 0]]


def test_arrays_become_tensors_of_another_type_there(place):
    x = minigrad.arange(3, dtype="float32", device=place)
    assert Tensor(x.array, dtype="float64").device == minigrad.tensor(x.array, "int64", place).device == place
    assert minigrad.tensor(x.array, "int64").tolist() == [0, 1, 2]


def test_arguments_may_be_given_by_name(place):
    x, labels = minigrad.randn(2, 3).to(place), Tensor(np.array([1, 2])).to(place)
    assert F.one_hot(input=labels, num_classes=3).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert minigrad.nonzero(input=labels).tolist() == [[0], [1]]
    assert F.nll_loss(input=x, target=labels).device == F.embedding(input=labels, weight=x.T).device == place


def test_arrays_of_the_device_can_be_loaded(place):
    model, other = nn.Linear(2, 3).to(place), nn.Linear(2, 3)
    other.load_state_dict({name: tensor.array for name, tensor in model.state_dict().items()})
    assert other.weight.tolist() == model.weight.tolist()


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


def test_anomalies_are_found_there(place):
    with minigrad.detect_anomaly():
        with pytest.raises(RuntimeError, match=r"log: the result has NaN, .*input \(2,\) from -1 to -1"):
            (minigrad.ones(2, device=place, requires_grad=True) - 2).log()
        (minigrad.ones(2, device=place, requires_grad=True) * 2).sum().backward()


def test_gradients_are_checked_there(place):
    x, y = (minigrad.randn(2, 3, dtype="float64").to(place).requires_grad_() for _ in range(2))
    assert gradcheck(lambda x, y: (x * y).sin(), (x, y))
    assert gradgradcheck(lambda x, y: x * y * y, (x, y))


# ---- types and layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "bool", "float16"])
def test_numbers_of_every_type_are_added_at_indices(place, dtype):
    index, ones = np.array([1, 1, 2]), np.array([-1, -1, 1]).astype(dtype)
    wanted = np.zeros(4, dtype)
    np.add.at(wanted, index, ones)
    out = minigrad.zeros(4, dtype=dtype).to(place).scatter_add(0, Tensor(index).to(place), Tensor(ones).to(place))
    assert out.dtype == dtype and out.tolist() == wanted.tolist()


def test_an_index_without_dimensions_picks_an_array(place):
    for where in ("cpu", place):
        picked = minigrad.arange(8, dtype="float32", device=where)[::2].gather(0, Tensor(np.array(2)).to(where))
        assert picked.device == where and device.is_array(picked.array) and picked.shape == () and picked.item() == 4


def test_where_keeps_the_order_of_the_axes(place):
    x = Tensor(RNG.standard_normal((2, 4, 4, 3)).astype("float32")).to(place).permute(0, 3, 1, 2)
    for out in (minigrad.where(x > 0, x, 0.0), minigrad.where(x > 0, 1.0, x), minigrad.where(x[:, :1] > 0, x, x[:1])):
        assert device.order_of(out.array) == (0, 2, 3, 1)
    np.testing.assert_array_equal(minigrad.where(x > 0, x, 0.0).numpy(), np.maximum(x.numpy(), 0))


# ---- streams and threads ---------------------------------------------------------------------------------------------


def parts(place="cuda:0", name="lenet"):
    minigrad.manual_seed(0)
    model = models.build(name, (1, 28, 28)).to(place)
    return model, optim.Adam(model.parameters())


def losses(model, optimizer, x, y, count=2):
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.deep
@pytest.mark.parametrize("gpu", ["cuda:0", "cuda:1"])
def test_a_training_may_change_its_stream(machine, gpu):
    x, y = Tensor(RNG.standard_normal((2, 1, 28, 28), "float32")).to(gpu), Tensor(np.array([1, 2])).to(gpu)
    wanted = losses(*parts(gpu), x, y, 3)
    training, found = parts(gpu), []
    for stream in (cuda.Stream(gpu), cuda.Stream(gpu), None):
        cuda.synchronize(gpu)
        if stream is None:
            found += losses(*training, x, y, 1)
        else:
            with cuda.stream(stream):
                assert f"cuda:{cuda.current_device()}" == gpu
                found += losses(*training, x, y, 1)
    assert found == wanted and cuda.current_device() == 0


@pytest.mark.deep
@pytest.mark.parametrize("steps", [[PadCrop(2), Normalize((0.1,), (0.5,))], [Normalize((0.1,), (0.5,)), PadCrop(2)]])
def test_a_loader_serves_any_stream(machine, steps):
    (model, optimizer), loader = parts(), Loader(DATA, 12, True, transform=Compose(steps), device="cuda")
    for epoch in (1, 2):
        cuda.synchronize()
        with cuda.stream(cuda.Stream()):
            assert len(fit(model, loader, optimizer, 1, clip=1.0)) == 1, epoch


def test_data_on_the_device_are_there_for_every_stream(machine):
    loader, kept = Loader(DATA, 12, device="cuda"), []
    for stream in (cuda.Stream(), cuda.Stream()):
        with cuda.stream(stream):
            kept.append(next(iter(loader))[0])
    with cuda.stream(stream):
        np.testing.assert_allclose(kept[1].numpy(), DATA.images[:12] / 255, rtol=1e-6)


def test_a_wrong_label_on_a_stream_is_reported(machine):
    scores, labels = minigrad.zeros(2, 3, device="cuda", requires_grad=True), Tensor(np.array([1, 7])).cuda()
    cuda.synchronize()
    with cuda.stream(cuda.Stream()), pytest.raises(ValueError, match=r"target\[1\] = 7"):
        F.cross_entropy(scores, labels).item()


@pytest.mark.deep
def test_threads_train_on_a_gpu_each(machine):
    x, y = RNG.standard_normal((2, 1, 28, 28), "float32"), np.array([1, 2])
    training = {gpu: parts(gpu) for gpu in ("cuda:0", "cuda:1")}
    work = lambda gpu: losses(*training[gpu], Tensor(x).to(gpu), Tensor(y).to(gpu))
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(work, training)
    assert first == second and len(first) == 2


# ---- half-way --------------------------------------------------------------------------------------------------------


def test_a_module_moves_whole_or_not_at_all():
    with gpus(1, capacity=1 << 15):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4096))
        with pytest.raises(OutOfMemory):
            model.cuda()
        assert {p.device for p in model.parameters()} == {"cpu"}


def test_inference_goes_on_after_memory_did_not_suffice():
    with gpus(1, capacity=1 << 20):
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 64, 3)).cuda().eval()
        x = minigrad.ones(32, 3, 16, 16, device="cuda")
        with no_grad():
            with pytest.raises(OutOfMemory):
                model(x)
            assert model(x[:1]).shape == (1, 64, 12, 12)


class Halted(Exception):
    pass


def test_what_waited_when_a_forward_was_left_is_computed_before_anything_changes():
    conv, seen = nn.Conv2d(2, 3, 1), []

    def halt(module, arguments, out):
        seen.append(out)
        raise Halted

    conv.register_forward_hook(halt)
    x = minigrad.randn(1, 2, 3, 3)
    wanted = conv.forward(x).tolist()
    with no_grad(), pytest.raises(Halted):
        nn.Sequential(conv, nn.ReLU())(x)
    conv.weight.array[...] = 0
    assert seen[0].call is None and seen[0].tolist() == wanted


def test_threads_may_look_at_one_waiting_convolution():
    class Shared(nn.Module):
        def __init__(self):
            self.conv, self.found = nn.Conv2d(2, 3, 3), []

        def forward(self, x):
            y, self.found = self.conv(x), []
            threads = [threading.Thread(target=lambda: self.found.append(y.tolist())) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return y

    model, x = Shared(), minigrad.randn(4, 2, 16, 16)
    for _ in range(5):
        with no_grad():
            out = model(x).tolist()
        assert model.found == [out] * 8
