"""SyncBatchNorm: the numbers of batch normalisation over the whole batch, however it is shared out."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad import device as devices
from minigrad.graph import capture
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, SyncBatchNorm
from minigrad.parallel.local import LocalTransport
from tests.device.stand_in_gpus import gpus
from tests.parallel.parallel_runs import on_ranks

CHANNELS = 5


def numbers(shape, dtype="float64", mean=0.0, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) + mean
    if len(shape) == 4:
        values = values.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)  # channels last, as activations lie
    return values.astype(dtype)


def made(model, dtype="float64", dimensions=4):
    """A batch norm with parameters of its own."""
    kind = nn.BatchNorm2d if dimensions == 4 else nn.BatchNorm1d
    layer = kind(CHANNELS, **model).to(dtype)
    for seed, p in enumerate(layer.parameters()):
        p.data = numbers((CHANNELS,), dtype, 1.0, seed=8 + seed)
    return layer


def results(layer, x, g):
    """(what belongs to a row, what is a sum over rows, running statistics) after two steps."""
    layer(Tensor(x * 2))
    out = layer(part := Tensor(x, requires_grad=True))
    assert out.ndim < 4 or not part.numel() or out.array.strides == part.array.strides
    (F.tanh(out) * Tensor(g)).sum().backward()
    groups = [out.detach(), part.grad], [p.grad for p in layer.parameters()], layer.buffers()
    return [[t.numpy() for t in group] for group in groups]


def shared(x, g, shares, model):
    """What all ranks have together, of whose running statistics the bits are the same; and BatchNorm of all rows."""

    def run(world):
        layer = SyncBatchNorm.convert(made(model, x.dtype.name, x.ndim), world)
        own = slice(ends[world.rank], ends[world.rank + 1])
        return results(layer, x[own], g[own])

    ends = [0, *np.cumsum(shares)]
    rows, sums, buffers = zip(*on_ranks(run, len(shares)), strict=True)
    assert all([b.tobytes() for b in other] == [b.tobytes() for b in buffers[0]] for other in buffers)
    joined = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    joined += [sum(parts) for parts in zip(*sums, strict=True)]
    return [*joined, *buffers[0]], sum(results(made(model, x.dtype.name, x.ndim), x, g), [])


CASES = [
    ((8,), (CHANNELS, 4, 3), "float32", {}),
    ((3, 0, 5), (CHANNELS, 6), "float64", {"momentum": None}),
    ((2, 1, 4, 1), (CHANNELS, 4, 3), "float32", {"affine": False}),
    ((0, 1, 6), (CHANNELS, 4, 3), "float64", {"bias": False}),
]


@pytest.mark.parametrize("shares, shape, dtype, model", CASES)
def test_shares_have_the_numbers_of_the_whole_batch(shares, shape, dtype, model):
    # The square of such a mean has many digits more than the variance: sum x^2 / N - m^2 would lose them.
    x, g = (numbers((sum(shares), *shape), dtype, mean=mean, seed=seed) for seed, mean in enumerate((300.0, 3.0)))
    tolerance = 1e-10 if dtype == "float64" else 1e-3
    for one, other in zip(*shared(x, g, shares, model), strict=True):
        assert one.dtype == other.dtype and (one.tobytes() == other.tobytes() or len(shares) > 1)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_outside_of_training_it_has_the_bits_of_batch_norm_and_asks_nobody():
    """Nor does a first layer in backward, as nobody asks for the gradient of the images."""
    x = Tensor(numbers((8, CHANNELS, 4, 4), "float32"))

    def run(world):
        layer, twin = made({}, "float32").eval(), SyncBatchNorm.convert(made({}, "float32")).eval()
        assert world.rank or twin(x).detach().numpy().tobytes() == layer(x).detach().numpy().tobytes()
        layer = SyncBatchNorm(CHANNELS, world=world)
        assert layer(minigrad.ones(0, CHANNELS, 3, 3)).shape == (0, CHANNELS, 3, 3)
        out = layer(x)
        if world.rank == 0:
            out.sum().backward()
            assert layer.bias.grad.tolist() == [128.0] * CHANNELS

    on_ranks(run, 2)


# ---- on devices, in graphs, with DataParallel ------------------------------------------------------------------------


def stepped(world, places, wrap=lambda step: step):
    """Results of four steps of a rank, on one row where it is the second."""
    place, own = places[world.rank], slice(0, 5) if world.rank == 0 else slice(5, 6)
    values = [numbers((6, CHANNELS, 1, 1), "float32", seed=seed)[own] for seed in (0, 1)]
    with devices.place(place).active():
        layer = SyncBatchNorm.convert(made({}, "float32"), world).to(place)

        @wrap
        def step(x, g):
            layer.zero_grad()
            out = layer(x)
            (out * g).sum().backward()
            return out.detach()

        for scale in (1, 2, 3, 4):
            out = step(*(Tensor(scale * array).to(place) for array in values))
        assert out.device == layer.weight.grad.device == layer.running_var.device == devices.place(place).name
        return [t.detach().cpu().numpy() for t in (out, layer.weight.grad, layer.running_mean, layer.running_var)]


def test_it_runs_on_the_interpreter_and_on_gpus_and_becomes_part_of_a_graph(monkeypatch):
    """No rank reads a value on the host, also one with a single element a channel. GPUs are the stand-in's."""
    found, places = [on_ranks(stepped, 2, [place] * 2) for place in ("cpu", "interpreter")], ["cuda:0", "cuda:1"]
    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    with gpus(2) as machine:
        found += [on_ranks(stepped, 2, places, *wrap) for wrap in ((), (capture,))]
        assert len(machine.graph_launches) == 4
    for wanted, there, eager, replayed in zip(*(sum(results, []) for results in found), strict=True):
        assert eager.tobytes() == replayed.tobytes()
        for values in (there, eager):
            np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-5)


def test_data_parallel_has_the_gradients_of_the_whole_batch():
    """Sums of gradients and of statistics share a communicator, in one order."""
    x = Tensor(numbers((8, 1, 6, 6)))

    def gradients(own, wrap=lambda model: model):
        minigrad.manual_seed(0)
        parts = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6)]
        model = wrap(nn.Sequential(*parts).double())
        F.cross_entropy(model(x[own]), Tensor(np.arange(8) % 3)[own]).backward()
        return [p.grad.numpy() for p in model.parameters()]

    def run(world):
        wrap = lambda model: DataParallel(SyncBatchNorm.convert(model, world), world, bucket_bytes=500)
        return gradients(slice(world.rank, None, 4), wrap)

    for *found, wanted in zip(*on_ranks(run, 4), gradients(slice(None)), strict=True):
        assert len({value.tobytes() for value in found}) == 1
        np.testing.assert_allclose(found[0], wanted, rtol=1e-9, atol=1e-11)


# ---- convert ---------------------------------------------------------------------------------------------------------


def test_convert_changes_batch_norms_alone_and_keeps_every_tensor():
    norm, seen = nn.BatchNorm1d(3, eps=1e-3, momentum=None), []
    norm.register_forward_hook(lambda module, given, out: seen.append(module))
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Sequential(norm, nn.InstanceNorm1d(3), norm))
    before, names = [*model.eval().parameters(), *model.buffers()], list(model.state_dict())
    assert SyncBatchNorm.convert(model) is model and list(model.state_dict()) == names
    assert all(a is b for a, b in zip(before, [*model.parameters(), *model.buffers()], strict=True))
    first, second, third = model[1], model[2][0], model[2][2]
    assert type(first) is SyncBatchNorm and second is third and (second.eps, second.momentum) == (1e-3, None)
    assert not first.training and type(model[2][1]) is nn.InstanceNorm1d and first.world is None
    second(minigrad.ones(2, 3))
    assert seen == [second]
