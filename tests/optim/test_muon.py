"""Muon beside its definition in NumPy, on the CPU and a device; in graphs; that a network learns by it."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, device, nn, optim
from minigrad.graph import capture
from minigrad.optim.clip import clip_scale
from minigrad.optim.rules import orthogonalized
from tests.device.stand_in_gpus import gpus
from tests.kernels.kernel_runs import DEVICE
from tests.optim.optim_parts import arrays, give_gradients, parameters, same


def definition(m, steps=5, eps=1e-7):
    """The iteration in NumPy, without transposing."""
    x = m / max(np.linalg.norm(m), eps)
    for _ in range(steps):
        x = 3.4445 * x - 4.775 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
    return x


def stepped(p, b, g, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="original"):
    """(parameter, buffer) after a step."""
    b = momentum * b + (1 - momentum) * g
    d = ((1 - momentum) * g + momentum * b if nesterov else b).reshape(len(g), -1)
    rows, columns = d.shape
    wide = adjust_lr_fn == "match_rms_adamw"
    factor = 0.2 * math.sqrt(max(rows, columns)) if wide else math.sqrt(max(1, rows / columns))
    return (1 - lr * weight_decay) * p - lr * factor * definition(d).reshape(p.shape), b


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (4, 7), (7, 4), (16, 2)])
def test_singular_values_come_near_one(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    found = orthogonalized(Tensor(matrix)).numpy()
    np.testing.assert_allclose(found, definition(matrix), rtol=1e-9, atol=1e-12)
    sizes = np.linalg.svd(found, compute_uv=False)
    assert (0.6 < sizes).all() and (sizes < 1.25).all()
    assert not orthogonalized(Tensor(np.zeros(shape))).numpy().any()


CASES = [  # options, where, the type, how close
    ({}, DEVICE, "float32", 1e-5),
    ({}, "cpu", "float64", 1e-12),
    ({"lr": 0.1}, "cpu", "float16", 2e-3),
    ({"lr": 0.1}, "cpu", "bfloat16", 2e-2),
    ({"lr": 0.05, "weight_decay": 0.5, "momentum": 0.5, "nesterov": False}, "cpu", "float32", 1e-5),
    ({"momentum": 0, "adjust_lr_fn": "match_rms_adamw"}, "cpu", "float32", 1e-5),
]


@pytest.mark.parametrize("options, place, dtype, close", CASES, ids=str)
def test_steps_are_those_of_the_definition(options, place, dtype, close):
    params = parameters(dtype, place=place)[:2]  # a filter and a matrix
    optimizer = optim.Muon(params, **options)
    wanted = [(p.astype(float), np.zeros(p.shape)) for p in arrays(params)]
    for step in range(3 if place == "cpu" and close <= 1e-5 else 1):
        give_gradients(params, step)
        gradients = [device.host(p.grad.array).astype(float) for p in params]
        wanted = [stepped(*pair, g, **options) for pair, g in zip(wanted, gradients, strict=True)]
        optimizer.step()
    for parameter, found, (p, b) in zip(params, arrays(params), wanted, strict=True):
        np.testing.assert_allclose(found.astype(float), p, rtol=close, atol=close)
        buffer = optimizer.state[parameter]["momentum_buffer"]
        assert buffer.strides == parameter.array.strides
        np.testing.assert_allclose(device.host(buffer).astype(float), b, rtol=close, atol=close)
    with pytest.raises(ValueError, match=r"Muon: params\[1\] has shape \(7,\), wanted a matrix or filter; give others"):
        optim.Muon(parameters()[1:])


@pytest.mark.parametrize("place", ["cpu", pytest.param(DEVICE, marks=pytest.mark.deep)])
def test_scaled_and_skipped_steps(place):
    """As in mixed precision: a scale is taken out first; a step with what is not finite changes nothing."""
    params, others = parameters(place=place)[:2], parameters(place=place)[:2]
    pair = optim.Muon(params, lr=0.1), optim.Muon(others, lr=0.1)
    for step in range(3):
        give_gradients(params, step), give_gradients(others, step)
        if step == 1:
            params[1].grad = params[1].grad * math.nan
        found = device.move(np.full(1, float(step == 1)), place)
        pair[0].step(scale=clip_scale(params, 0.5)[1], found_inf=found)
        if step != 1:
            optim.clip_grad_norm_(others, 0.5)
            pair[1].step()
    for one, two in zip(arrays(params), arrays(others), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    for one, two in zip(params, others, strict=True):
        buffers = (device.host(o.state[p]["momentum_buffer"]) for o, p in zip(pair, (one, two), strict=True))
        np.testing.assert_allclose(*buffers, rtol=1e-5, atol=1e-6)


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
        for count in range(5):
            x = Tensor(np.full((2, 3), float(count), np.float32)).to("cuda")
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.param_groups[0]["momentum"] = 0.95 if count < 3 else 0.5
            found.append(step(x).item())
        return found, w.tolist()

    with gpus(1):
        assert trained(capture) == trained(lambda function: function)


LABELS = np.arange(60) % 3
IMAGES = (np.random.default_rng(1).standard_normal((3, 1, 6, 6))[LABELS]).astype("f")
IMAGES += 0.5 * np.random.default_rng(2).standard_normal(IMAGES.shape).astype("f")


def test_a_network_learns_and_a_resumed_run_is_the_same_run(tmp_path):
    """Filters and matrices by Muon, the rest by AdamW."""

    def learner():
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
        matrices, others = ([p for p in model.parameters() if (p.ndim >= 2) == flag] for flag in (True, False))
        return model, optim.Muon(matrices, lr=0.02), optim.AdamW(others, lr=3e-3)

    def learn(model, *optimizers, steps):
        found = []
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(Tensor(IMAGES)), Tensor(LABELS))
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            found.append(loss.item())
        return found

    whole, first, second = learner(), learner(), learner()
    losses = learn(*whole, steps=20)
    assert losses[0] > 0.9 and losses[-1] < 0.3 * losses[0]
    assert learn(*first, steps=8) == losses[:8]
    checkpoint.save(tmp_path, first[0], first[1])
    checkpoint.load(tmp_path, second[0], second[1])
    second[2].load_state_dict(first[2].state_dict())
    assert learn(*second, steps=12) == losses[8:]
    assert same(arrays(second[0].parameters()), arrays(whole[0].parameters()))
