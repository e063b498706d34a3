"""SyncBatchNorm: the numbers of batch normalisation over the whole batch, however it is shared out."""

import copy

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, grad, nn, optim
from minigrad import device as devices
from minigrad.core.errors import KindError, ShapeError
from minigrad.graph import capture
from minigrad.nn import functional as F
from minigrad.parallel.data_parallel import DataParallel
from minigrad.parallel.errors import DeadlineError, DisagreementError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.sync_batch_norm import SyncBatchNorm
from minigrad.parallel.transport import deadline_after
from minigrad_kernels.toolchain import set_threads, threads

from .stand_in_gpus import gpus

LIMIT = 20.0  # seconds
CHANNELS = 5


@pytest.fixture(autouse=True)
def one_kernel_thread():
    """Ranks are threads already."""
    before = threads()
    set_threads(1)
    yield
    set_threads(before)


def numbers(shape, dtype="float64", mean=0.0, deviation=1.0, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * deviation + mean
    if len(shape) == 4:
        values = values.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)  # channels last, as activations lie
    return values.astype(dtype)


def layers(model, dtype, dimensions=4):
    """A batch norm with parameters of its own."""
    kind = nn.BatchNorm2d if dimensions == 4 else nn.BatchNorm1d
    layer = kind(CHANNELS, **model).to(dtype)
    for seed, p in enumerate(layer.parameters()):
        p.data = numbers((CHANNELS,), dtype, 1.0, seed=8 + seed)
    return layer


def results(layer, x, g, steps=2):
    """(out, dx, dweight, dbias, running statistics) of the last of some steps, each on another part of the numbers."""
    for step in range(steps):
        part = Tensor(x * (step + 1), requires_grad=True)
        layer.zero_grad()
        out = layer(part)
        (out * Tensor(g)).sum().backward()
    assert out.ndim < 4 or not part.numel() or out.data.strides == part.data.strides
    parameters = [p.grad.numpy() for p in layer.parameters()]
    return [out.detach().numpy(), part.grad.numpy(), parameters, [b.numpy() for b in layer.buffers()]]


def shared(x, g, shares, dtype, model):
    """The results of each rank, and of the whole batch on one."""

    def run(world):
        layer = SyncBatchNorm.convert(layers(model, dtype, x.ndim), world)
        own = slice(ends[world.rank], ends[world.rank + 1])
        return results(layer, x[own], g[own])

    ends = [0, *np.cumsum(shares)]
    return run_local(run, len(shares), timeout=LIMIT), results(layers(model, dtype, x.ndim), x, g)


def joined(found):
    """What all ranks have together: rows one after the other, gradients of parameters added."""
    out, dx = (np.concatenate([one[i] for one in found]) for i in (0, 1))
    return [out, dx, [sum(gradients) for gradients in zip(*(one[2] for one in found), strict=True)], found[0][3]]


SHARES = [(4, 4), (3, 0, 5), (0, 1, 6), (2, 1, 4, 1)]
MODELS = [{}, {"affine": False}, {"bias": False}, {"momentum": None}, {"track_running_stats": False}]


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("shape", [(CHANNELS,), (CHANNELS, 6), (CHANNELS, 4, 3)], ids=str)
def test_shares_have_the_numbers_of_the_whole_batch(shares, shape):
    x, g = (numbers((sum(shares), *shape), mean=3.0, seed=seed) for seed in (0, 1))
    found, whole = shared(x, g, shares, "float64", {})
    for got, wanted in zip(joined(found), whole, strict=True):
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_all_options_are_those_of_batch_norm(model):
    x, g = (numbers((8, CHANNELS, 3, 3), seed=seed) for seed in (0, 1))
    found, whole = shared(x, g, (3, 5), "float64", model)
    for got, wanted in zip(joined(found), whole, strict=True):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_running_statistics_have_the_same_bits_on_all_ranks(shares):
    x, g = (numbers((sum(shares), CHANNELS, 3, 3), "float32", 5.0, seed=seed) for seed in (0, 1))
    found, _ = shared(x, g, shares, "float32", {})
    first = [buffer.tobytes() for buffer in found[0][3]]
    assert len(first) == 3 and all([buffer.tobytes() for buffer in one[3]] == first for one in found)


@pytest.mark.parametrize("mean, deviation", [(0, 1), (100, 1), (3000, 0.5)])
def test_float32_is_as_exact_as_its_digits_allow(mean, deviation):
    """Rounding moves x - mean by eps |mean|, thus z by r = eps (|mean| / deviation + |z|); the rest are a few eps.

    The variance has the rounding of m_r in it, times 2 (m_r - m): of itself less than 2 r, as |m_r - m| < deviation.
    At 3000 +- 0.5 the square of the mean has 9 digits more than the variance: sum x^2 - N mean^2 would keep none.
    """
    x, g = numbers((9, CHANNELS, 4, 4), "float32", mean, deviation), numbers((9, CHANNELS, 4, 4), "float32", seed=1)
    found, _ = shared(x, g, (4, 0, 5), "float32", {"momentum": 1.0})
    out, dx, (dweight, dbias), (_, running_var, _) = joined(found)
    layer = layers({"momentum": 1.0}, "float64")
    exact = results(layer, x.astype("float64"), g.astype("float64"))
    weight = np.abs(layer.weight.data).reshape(-1, 1, 1)
    spread = x.astype("float64").std((0, 2, 3)).reshape(-1, 1, 1) * 2  # of the last step
    eps, z = 2.0**-24, np.abs((x - x.mean((0, 2, 3), keepdims=True, dtype="float64")) * 2 / spread)
    r = eps * (2 * mean / spread + z + 1)
    assert (np.abs(out - exact[0]) <= 4 * r * (weight + 1)).all()
    total = np.abs(g) + np.abs(dbias).reshape(-1, 1, 1) / 144 + (z + 1) * np.abs(dweight).reshape(-1, 1, 1) / 144 + 0.1
    assert (np.abs(dx - exact[1]) <= 8 * r * weight / spread * total).all()
    assert (np.abs(dweight - exact[2][0]) <= 4 * (r * np.abs(g)).sum((0, 2, 3))).all()
    np.testing.assert_allclose(running_var, exact[3][1], rtol=8 * eps + 2 * r.max())


def test_a_large_mean_does_not_cancel():
    """A mean of 1e7 deviations: its square has 14 digits more than the variance, which sum x^2 / N - m^2 would lose."""
    x = numbers((9, CHANNELS, 4, 4), mean=1e7)
    found, _ = shared(x, x, (4, 0, 5), "float64", {"momentum": 1.0})
    wanted = (x * 2 - 2e7).var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(joined(found)[3][1], wanted, rtol=1e-7)


def test_a_world_of_one_rank_has_the_bits_of_batch_norm():
    x, g = (numbers((8, CHANNELS, 4, 4), "float32", 2.0, seed=seed) for seed in (0, 1))
    (found,), whole = shared(x, g, (8,), "float32", {})
    for one, other in zip(found, whole, strict=True):
        assert [a.tobytes() for a in one] == [b.tobytes() for b in other]


def test_outside_of_training_it_is_batch_norm_and_asks_nobody():
    x = Tensor(numbers((4, CHANNELS, 3, 3), "float32"))

    def run(world):
        for model in ({}, {"track_running_stats": False}):
            layer = layers(model, "float32")
            twin = SyncBatchNorm.convert(copy.deepcopy(layer)).eval()
            if world.rank == 0:
                assert twin(x).numpy().tobytes() == layer.eval()(x).detach().numpy().tobytes()

    with minigrad.no_grad():
        run_local(run, 2, timeout=1.0)


# ---- gradients -------------------------------------------------------------------------------------------------------

ENDS = (0, 3, 3, 8)


def by_ranks(x, weight, bias, g, differentiate):
    """(sum of out * g over three ranks, its gradients for x, weight and bias)."""

    def run(world):
        own = slice(ENDS[world.rank], ENDS[world.rank + 1])
        layer = SyncBatchNorm(CHANNELS, track_running_stats=False, dtype="float64")
        layer.weight.data, layer.bias.data = weight, bias
        part = Tensor(x[own], requires_grad=True)
        loss = (F.tanh(layer(part)) * Tensor(g[own])).sum()
        found = grad(loss, [part, layer.weight, layer.bias]) if differentiate else ()
        return loss.item(), [one.numpy() for one in found]

    found = run_local(run, 3, timeout=LIMIT)
    losses, gradients = zip(*found, strict=True)
    if not differentiate:
        return sum(losses)
    parts, *others = zip(*gradients, strict=True)
    return sum(losses), [np.concatenate(parts), *(sum(other) for other in others)]


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_the_slopes_of_the_loss_of_all_ranks(seed):
    """(L(p + e u) - L(p - e u)) / 2 e = <gradient, u>, for x, weight and bias."""
    x, g = (numbers((8, CHANNELS, 2, 2), seed=seed + i) for i in (10, 20))
    point = [x, *(numbers((CHANNELS,), mean=1.0, seed=seed + i) for i in (30, 40))]
    _, gradients = by_ranks(*point, g, True)
    for which, gradient in enumerate(gradients):
        u, e = numbers(gradient.shape, seed=seed + 50), 1e-6
        ahead, behind = (
            by_ranks(*(p + sign * e * u if i == which else p for i, p in enumerate(point)), g, False)
            for sign in (1, -1)
        )
        assert (ahead - behind) / (2 * e) == pytest.approx((gradient * u).sum(), rel=1e-6, abs=1e-8)


def second(layer, x, g):
    """(gradients of a loss, gradients of the sum of their squares)."""
    x = Tensor(x, requires_grad=True)
    inputs = [x, layer.weight, layer.bias]
    first = grad((F.tanh(layer(x)) * Tensor(g)).sum(), inputs, create_graph=True)
    deeper = grad((first[0] * first[0]).sum(), inputs[:2])
    return [one.detach().numpy() for one in (*first, *deeper)]


def test_gradients_of_both_orders_are_those_of_the_whole_batch():
    """The square is taken of dx alone: dweight and dbias of a rank are its part of a sum."""
    x, g = (numbers((8, CHANNELS, 2, 2), seed=seed) for seed in (0, 1))

    def run(world):
        own = slice(ENDS[world.rank], ENDS[world.rank + 1])
        return second(SyncBatchNorm.convert(layers({}, "float64"), world), x[own], g[own])

    found, whole = run_local(run, 3, timeout=LIMIT), second(layers({}, "float64"), x, g)
    for place, wanted in enumerate(whole):
        parts = [one[place] for one in found]
        got = np.concatenate(parts) if wanted.ndim == 4 else sum(parts)
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-11)


def test_the_fast_gradients_are_those_of_the_rules():
    x, g = (numbers((8, CHANNELS, 2, 2), seed=seed) for seed in (0, 1))

    def run(world):
        own = slice(ENDS[world.rank], ENDS[world.rank + 1])
        layer = SyncBatchNorm.convert(layers({}, "float64"), world)
        part = Tensor(x[own], requires_grad=True)
        inputs = [part, layer.weight, layer.bias]
        ways = [grad((layer(part) * Tensor(g[own])).sum(), inputs, create_graph=way) for way in (False, True)]
        for fast, rule in zip(*ways, strict=True):
            np.testing.assert_allclose(fast.numpy(), rule.detach().numpy(), rtol=1e-12, atol=1e-13)

    run_local(run, 3, timeout=LIMIT)


def test_a_first_layer_exchanges_nothing_in_backward():
    """Nobody asks for the gradient of the images."""

    def run(world):
        layer = SyncBatchNorm(CHANNELS, world=world)
        out = layer(Tensor(numbers((4, CHANNELS, 2, 2), "float32")))
        if world.rank == 0:
            out.sum().backward()
            assert layer.bias.grad.tolist() == [16.0] * CHANNELS

    run_local(run, 2, timeout=LIMIT)


# ---- on devices ------------------------------------------------------------------------------------------------------


def on_device(place):
    """Results of two ranks, moved to the CPU."""
    x, g = (numbers((4, CHANNELS, 3, 3), "float32", seed=seed) for seed in (0, 1))

    def run(world):
        layer = SyncBatchNorm.convert(layers({}, "float32"), world).to(place)
        own = slice(0, 3) if world.rank == 0 else slice(3, 4)
        part = Tensor(x[own], requires_grad=True)
        out = layer(part.to(place))
        (out * Tensor(g[own]).to(place)).sum().backward()
        assert out.device == layer.weight.grad.device == layer.running_var.device != "cpu" or place == "cpu"
        return [t.detach().cpu().numpy() for t in (out, part.grad, layer.weight.grad, layer.running_var)]

    return run_local(run, 2, timeout=LIMIT)


def test_the_interpreter_finds_the_numbers_of_the_cpu():
    for found, wanted in zip(on_device("interpreter"), on_device("cpu"), strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_it_runs_on_gpus():
    """On the stand-in for CuPy, whose kernels are interpreted."""
    wanted = on_device("cpu")
    with gpus():
        found = on_device("cuda")
    for ones, others in zip(found, wanted, strict=True):
        for one, other in zip(ones, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_it_becomes_part_of_a_graph(monkeypatch):
    """No rank reads a value on the host, also one with a single element a channel."""
    rows = numbers((6, CHANNELS, 1, 1), "float32"), numbers((6, CHANNELS, 1, 1), "float32", seed=1)

    def run(world, wrap):
        place, own = f"cuda:{world.rank}", slice(0, 5) if world.rank == 0 else slice(5, 6)
        with devices.place(place).active():
            layer = SyncBatchNorm.convert(layers({}, "float32"), world).to(place)

            @wrap
            def step(x, g):
                layer.zero_grad()
                out = layer(x)
                (out * g).sum().backward()
                return out.detach()

            for scale in (1, 2, 3, 4):
                out = step(*(Tensor(scale * values[own]).to(place) for values in rows)).numpy()
            return [out, *(t.detach().numpy() for t in (layer.weight.grad, layer.running_mean, layer.running_var))]

    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    with gpus(2) as machine:
        eager = run_local(run, 2, lambda function: function, timeout=LIMIT)
        replayed = run_local(run, 2, capture, timeout=LIMIT)
        assert len(machine.graph_launches) == 4
    for one, other in zip(eager, replayed, strict=True):
        assert [x.tobytes() for x in one] == [x.tobytes() for x in other]


# ---- with DataParallel -----------------------------------------------------------------------------------------------


def test_data_parallel_trains_as_on_the_whole_batch():
    """Buckets of gradients and sums of statistics share one communicator, in the same order on all ranks."""

    def model():
        minigrad.manual_seed(0)
        parts = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6)]
        return nn.Sequential(*parts, nn.ReLU(), nn.Linear(6, 3)).double()

    x, y = Tensor(numbers((6, 1, 6, 6))), Tensor(np.arange(6) % 3)

    def trained(model, x, y):
        rule = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            rule.zero_grad()
            F.cross_entropy(model(x), y).backward()
            rule.step()
        return [value.numpy() for value in model.state_dict().values()]

    def run(world):
        own = slice(world.rank * 2, world.rank * 2 + 2)
        return trained(DataParallel(SyncBatchNorm.convert(model(), world), world, bucket_bytes=500), x[own], y[own])

    found, whole = run_local(run, 3, timeout=LIMIT), trained(model(), x, y)
    for one in found:
        assert [a.tobytes() for a in one] == [a.tobytes() for a in found[0]]
    for value, wanted in zip(found[0], whole, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-11)


# ---- convert ---------------------------------------------------------------------------------------------------------


def test_convert_replaces_batch_norms_alone_and_keeps_every_tensor():
    norm = nn.BatchNorm1d(3, eps=1e-3, momentum=None)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Sequential(norm, nn.InstanceNorm1d(3), norm))
    model.eval()
    before, names = [*model.parameters(), *model.buffers()], list(model.state_dict())
    found = SyncBatchNorm.convert(model)
    assert found is model and list(model.state_dict()) == names
    assert all(a is b for a, b in zip(before, [*model.parameters(), *model.buffers()], strict=True))
    first, second, third = model[1], model[2][0], model[2][2]
    assert type(first) is SyncBatchNorm and second is third and (second.eps, second.momentum) == (1e-3, None)
    assert not first.training and type(model[2][1]) is nn.InstanceNorm1d and first.world is None
    assert SyncBatchNorm.convert(model)[1] is first


def test_convert_of_a_batch_norm_is_what_replaces_it():
    norm = nn.BatchNorm2d(3)
    seen = []
    norm.register_forward_hook(lambda module, given, out: seen.append(module))

    def run(world):
        layer = SyncBatchNorm.convert(norm, world)
        assert type(layer) is SyncBatchNorm and layer.weight is norm.weight and layer.world is world
        layer(minigrad.ones(2, 3, 1, 1))
        assert seen == [layer]
        layer.weight = None
        assert norm.weight is not None

    run_local(run, 1, timeout=LIMIT)
    with pytest.raises(KindError, match="module is a str, wanted a Module"):
        SyncBatchNorm.convert("norm")
    with pytest.raises(KindError, match="world is 3"):
        SyncBatchNorm.convert(norm, 3)
    with pytest.raises(KindError, match="world is 3"):
        SyncBatchNorm(4, world=3)


# ---- what is refused, and what ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [(1, 0), (0, 0, 1)], ids=str)
def test_one_element_in_the_whole_batch_is_refused_on_every_rank(shares):
    def run(world):
        layer = SyncBatchNorm(2, world=world)
        with pytest.raises(ShapeError, match="one element a channel"):
            layer(minigrad.ones(shares[world.rank], 2))
        assert layer.num_batches_tracked.item() == 0
        return True

    assert all(run_local(run, len(shares), timeout=LIMIT))


def test_a_batch_without_elements_stays_without():
    def run(world):
        out = SyncBatchNorm(2, world=world)(minigrad.ones(0, 2, 3, 3))
        out.sum().backward()
        return out.shape

    assert run_local(run, 2, timeout=LIMIT) == [(0, 2, 3, 3)] * 2


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: (SyncBatchNorm(3), (4, 2, 3, 3)), "input has 2 channels"),
        (lambda: (SyncBatchNorm(3), (3,)), r"wanted \(N, 3, ...\)"),
        (lambda: (SyncBatchNorm(3, eps=0), (4, 3)), "eps is 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(make, words):
    def run(world):
        layer, shape = make()
        with pytest.raises(ShapeError, match=words):
            layer(minigrad.ones(*shape))

    run_local(run, 2, timeout=1.0)


def test_ranks_with_other_channels_or_types_are_told_so():
    def channels(world):
        SyncBatchNorm(2 + world.rank, world=world)(minigrad.ones(4, 2 + world.rank))

    def types(world):
        kind = ("float32", "float64")[world.rank]
        SyncBatchNorm(2, world=world, dtype=kind)(minigrad.ones(4, 2, dtype=kind))

    for run in (channels, types):
        with pytest.raises(DisagreementError, match="all_gather"):
            run_local(run, 2, timeout=LIMIT)


def test_a_rank_that_stays_away_is_noticed():
    def run(world):
        if world.rank == 0:
            SyncBatchNorm(2, world=world)(minigrad.ones(4, 2))
        else:
            world.transport.take(0, 63 * 64, deadline_after(LIMIT))  # a channel on which nothing comes

    with pytest.raises(DeadlineError, match="all_gather.*SyncBatchNorm"):
        run_local(run, 2, timeout=0.2)
