"""Muon beside its definition in NumPy, on the CPU and a device; what it refuses; that a network learns by it."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, data, device, nn, optim
from minigrad.graph import capture
from minigrad.optim.clip import clip_scale
from minigrad.optim.rules import orthogonalized
from minigrad_kernels.layout import FILTER
from tests.device.stand_in_gpus import gpus
from tests.kernels.kernel_runs import DEVICE
from tests.optim.optim_parts import give_gradients, parameters, same


def definition(m, steps=5, eps=1e-7):
    """The iteration in NumPy, without transposing."""
    x = m / max(np.linalg.norm(m), eps)
    for _ in range(steps):
        x = 3.4445 * x - 4.775 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
    return x


def stepped(p, b, g, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, wide=False):
    """(parameter, buffer) after a step."""
    b = momentum * b + (1 - momentum) * g
    d = ((1 - momentum) * g + momentum * b if nesterov else b).reshape(len(g), -1)
    rows, columns = d.shape
    factor = 0.2 * math.sqrt(max(rows, columns)) if wide else math.sqrt(max(1, rows / columns))
    return (1 - lr * weight_decay) * p - lr * factor * definition(d).reshape(p.shape), b


def there(place, dtype="float32", order=FILTER):
    """A filter and a matrix."""
    return [nn.Parameter(device.move(p.array, place)) for p in parameters(dtype, order)[:2]]


def give(params, step):
    hosts = [nn.Parameter(np.zeros(p.shape, p.dtype)) for p in params]
    give_gradients(hosts, step)
    for parameter, host in zip(params, hosts, strict=True):
        parameter.grad = Tensor(device.move(host.grad.array, parameter.device))
    return [host.grad.array.astype(float) for host in hosts]


def host(params):
    return [device.host(parameter.array).astype(float) for parameter in params]


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (4, 7), (7, 4), (16, 2)])
def test_singular_values_come_near_one(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    found = orthogonalized(Tensor(matrix)).numpy()
    np.testing.assert_allclose(found, definition(matrix), rtol=1e-9, atol=1e-12)
    sizes = np.linalg.svd(found, compute_uv=False)
    assert (0.6 < sizes).all() and (sizes < 1.25).all()
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    assert np.abs(found - left @ right).max() < 0.4
    assert not orthogonalized(Tensor(np.zeros(shape))).numpy().any()


OPTIONS = [
    {},
    {"lr": 0.05, "weight_decay": 0.5},
    {"momentum": 0.5, "nesterov": False},
    {"momentum": 0},
    {"adjust_lr_fn": "match_rms_adamw"},
    {"adjust_lr_fn": "original"},
]


@pytest.mark.parametrize("place, options", [(DEVICE, {}), *(("cpu", options) for options in OPTIONS)], ids=str)
def test_steps_are_those_of_the_definition(place, options):
    params = there(place)
    optimizer = optim.Muon(params, **options)
    plain = {name: value for name, value in options.items() if name != "adjust_lr_fn"}
    plain["wide"] = options.get("adjust_lr_fn") == "match_rms_adamw"
    wanted = [(p, np.zeros_like(p)) for p in host(params)]
    for step in range(3):
        wanted = [stepped(*pair, g, **plain) for pair, g in zip(wanted, give(params, step), strict=True)]
        optimizer.step()
    for parameter, found, (p, b) in zip(params, host(params), wanted, strict=True):
        np.testing.assert_allclose(found, p, rtol=1e-5, atol=1e-6)
        buffer = optimizer.state[parameter]["momentum_buffer"]
        assert buffer.strides == parameter.array.strides
        np.testing.assert_allclose(device.host(buffer), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype, close", [("float64", 1e-12), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_types(dtype, close):
    params = there("cpu", dtype)
    wanted = [stepped(p, np.zeros_like(p), g, lr=0.1)[0] for p, g in zip(host(params), give(params, 0), strict=True)]
    optim.Muon(params, lr=0.1).step()
    for found, p in zip(host(params), wanted, strict=True):
        np.testing.assert_allclose(found, p, rtol=close, atol=close)


@pytest.mark.parametrize("place", ["cpu", pytest.param(DEVICE, marks=pytest.mark.deep)])
def test_scaled_and_skipped_steps(place):
    """As in mixed precision: a scale is taken out first; a step with what is not finite changes nothing."""
    params, others = there(place), there(place)
    pair = optim.Muon(params, lr=0.1), optim.Muon(others, lr=0.1)
    for step in range(3):
        give(params, step), give(others, step)
        found = device.move(np.full(1, float(step == 1)), place)
        if step == 1:
            params[1].grad = params[1].grad * math.nan
        pair[0].step(scale=clip_scale(params, 0.5)[1], found_inf=found)
        if step != 1:
            optim.clip_grad_norm_(others, 0.5)
            pair[1].step()
    for one, two in zip(host(params), host(others), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    for one, two in zip(pair[0].state_dict()["state"].values(), pair[1].state_dict()["state"].values(), strict=True):
        np.testing.assert_allclose(one["momentum_buffer"], two["momentum_buffer"], rtol=1e-5, atol=1e-6)


def test_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match=r"Muon: params\[1\] has shape \(7,\), wanted a matrix or filter; give others"):
        optim.Muon(parameters()[1:])


@pytest.mark.deep
def test_a_graph_repeats_steps():
    """Rates are heard by each replay; where another option changes, the graph is made anew."""

    def trained(wrap):
        w = nn.Parameter(np.ones((2, 3), np.float32)).to("cuda").detach().requires_grad_()
        optimizer = optim.Muon([w], lr=0.5)

        @wrap
        def step(x):
            optimizer.zero_grad()
            ((w - x) ** 2).sum().backward()
            optimizer.step()
            return w.sum()

        found = []
        for count in range(6):
            x = Tensor(np.full((2, 3), float(count), np.float32)).to("cuda")
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.param_groups[0]["momentum"] = 0.95 if count < 4 else 0.5
            found.append(step(x).item())
        return found, w.tolist()

    with gpus(1):
        assert trained(capture) == trained(lambda function: function)


LABELS = np.arange(60) % 3
IMAGES = (np.random.default_rng(1).standard_normal((3, 1, 6, 6))[LABELS]).astype("f")
IMAGES += 0.5 * np.random.default_rng(2).standard_normal(IMAGES.shape).astype("f")


def learner():
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return model, optim.Muon(matrices, lr=0.02), optim.AdamW(others, lr=3e-3)


def learn(model, *optimizers, steps):
    found = []
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(Tensor(IMAGES)), Tensor(LABELS))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        found.append(loss.item())
    return found


def test_a_network_learns_and_a_resumed_run_is_the_same_run(tmp_path):
    whole = learner()
    losses = learn(*whole, steps=20)
    assert losses[0] > 0.9 and losses[-1] < 0.3 * losses[0]
    first, second = learner(), learner()
    assert learn(*first, steps=8) == losses[:8]
    checkpoint.save(tmp_path, first[0], first[1], extra=first[2].state_dict()["param_groups"])
    checkpoint.load(tmp_path, second[0], second[1])
    second[2].load_state_dict(first[2].state_dict())
    assert learn(*second, steps=12) == losses[8:]
    assert same([p.array for p in second[0].parameters()], [p.array for p in whole[0].parameters()])


def test_muon_learns_the_digits():
    """Filters and matrices by Muon, the rest by AdamW: two epochs of a thousand digits, from 10 % right."""
    minigrad.manual_seed(0)
    train, test = data.digits()
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    optimizers = (
        optim.Muon([p for p in model.parameters() if p.ndim >= 2], lr=0.02),
        optim.AdamW([p for p in model.parameters() if p.ndim < 2], lr=3e-3),
    )

    def right():
        with minigrad.no_grad():
            images, labels = next(iter(data.Loader(test, batch_size=len(test))))
            return float((model(images).argmax(1) == labels).double().mean().item())

    before = right()
    for images, labels in list(data.Loader(train, batch_size=64, shuffle=True)) * 2:
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert before < 0.3 and right() > 0.9
