"""Every update rule, schedule and clip beside PyTorch's."""

import itertools
import math

import numpy as np
import pytest

from minigrad import Tensor, nn, optim
from minigrad.device import empty
from minigrad_kernels.layout import FILTER

torch = pytest.importorskip("torch")

SHAPES = [(4, 3, 3, 2), (5, 7), (7,), ()]
PRECISION = {"float64": 1e-10, "float32": 1e-5}
STEPS = 12


def product(**options):
    """Every combination of the options."""
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


RULES = [("SGD", o) for o in product(momentum=[0, 0.9], dampening=[0, 0.2], weight_decay=[0, 0.1], maximize=[0, 1])]
RULES += [("SGD", o) for o in product(momentum=[0.8], nesterov=[True], weight_decay=[0, 0.1], maximize=[0, 1])]
RULES += [
    (name, o)
    for name in ("Adam", "AdamW")
    for o in product(betas=[(0.9, 0.999), (0.5, 0.7)], weight_decay=[0, 0.1], amsgrad=[0, 1], maximize=[0, 1])
]
RULES += [("Adam", {"eps": 1e-3}), ("AdamW", {}), ("RMSprop", {}), ("RMSprop", {"alpha": 0.5, "eps": 1e-3})]
RULES += [("RMSprop", o) for o in product(momentum=[0, 0.9], centered=[0, 1], weight_decay=[0, 0.1], maximize=[0, 1])]
IDS = [f"{name} {' '.join(f'{key}={value}' for key, value in options.items())}" for name, options in RULES]


def parameters(dtype):
    """Ours and PyTorch's, alike; the filters lie H W I O."""
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for shape in SHAPES:
        array = rng.standard_normal(shape).astype(dtype)
        laid = empty(shape, dtype, FILTER if len(shape) == 4 else None)
        laid[...] = array
        ours.append(nn.Parameter(laid))
        theirs.append(torch.tensor(array, requires_grad=True))
    return ours, theirs


def give_gradients(ours, theirs, step, skipped=()):
    """The same gradients to both, in C order; none to the skipped."""
    rng = np.random.default_rng(100 + step)
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        gradient = rng.standard_normal(a.shape).astype(a.dtype)
        a.grad = None if index in skipped else Tensor(gradient)
        b.grad = None if index in skipped else torch.tensor(gradient)


def close(ours, theirs, precision):
    for a, b in zip(ours, theirs, strict=True):
        b = b.detach().numpy()
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(np.asarray(a.detach()), b, rtol=precision, atol=precision * scale)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("name, options", RULES, ids=IDS)
def test_rule(name, options, dtype):
    ours, theirs = parameters(dtype)
    options = {
        key: bool(value) if key in ("maximize", "amsgrad", "centered") else value for key, value in options.items()
    }
    first, second = (
        getattr(library, name)(given, lr=0.01, **options) for library, given in ((optim, ours), (torch.optim, theirs))
    )
    for step in range(STEPS):
        give_gradients(ours, theirs, step, skipped={1: (0,), 2: (1, 2)}.get(step, ()))
        first.step(), second.step()
        close(ours, theirs, PRECISION[dtype])
    state, wanted = first.state_dict(), second.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [group["params"] for group in wanted["param_groups"]]
    for index, values in wanted["state"].items():
        kept = {key: value for key, value in values.items() if value is not None}
        assert state["state"][index].keys() == kept.keys()
        for key, value in kept.items():
            precision = PRECISION[dtype] * max(1.0, float(value.abs().max()))
            np.testing.assert_allclose(state["state"][index][key], value.numpy(), rtol=precision, atol=precision)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_state_of_pytorch_goes_on_here(name):
    ours, theirs = parameters("float64")
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {"amsgrad": True}
    second = getattr(torch.optim, name)(theirs, lr=0.01, **options)
    for step in range(3):
        give_gradients(ours, theirs, step)
        second.step()
    for a, b in zip(ours, theirs, strict=True):
        a.data[...] = b.detach().numpy()
    first = getattr(optim, name)(ours)
    first.load_state_dict(second.state_dict())
    for step in range(3, 6):
        give_gradients(ours, theirs, step)
        first.step(), second.step()
        close(ours, theirs, 1e-12)


def test_groups_with_options_of_their_own():
    ours, theirs = parameters("float64")
    optimizers = [
        library.SGD([{"params": given[:2], "lr": 0.1}, {"params": given[2:3], "momentum": 0.5}], lr=0.01)
        for library, given in ((optim, ours), (torch.optim, theirs))
    ]
    for optimizer, given in zip(optimizers, (ours, theirs), strict=True):
        optimizer.add_param_group({"params": given[3], "weight_decay": 0.3})
    for step in range(STEPS):
        give_gradients(ours, theirs, step)
        for optimizer in optimizers:
            optimizer.step()
        close(ours, theirs, 1e-12)


# ---- schedules -------------------------------------------------------------------------------------------------------

SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 7, 0.5),
    "step by one": lambda s, o: s.StepLR(o, 1),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 20, 0.001),
    "cosine odd": lambda s, o: s.CosineAnnealingLR(o, 7),
    "cosine one": lambda s, o: s.CosineAnnealingLR(o, 1, 0.01),
    "linear": lambda s, o: s.LinearLR(o),
    "linear down": lambda s, o: s.LinearLR(o, 1.0, 0.1, 30),
    "lambda": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda epoch: 1 / (1 + epoch), lambda epoch: 0.5]),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.5, 51, **NO_MOMENTUM[s]),
    "one cycle linear": lambda s, o: s.OneCycleLR(o, [0.5, 0.1], 60, anneal_strategy="linear", **NO_MOMENTUM[s]),
    "one cycle epochs": lambda s, o: s.OneCycleLR(
        o, 0.5, epochs=6, steps_per_epoch=10, pct_start=0.25, div_factor=5, three_phase=True, **NO_MOMENTUM[s]
    ),
    "one cycle no rise": lambda s, o: s.OneCycleLR(o, 0.5, 60, pct_start=0.0, **NO_MOMENTUM[s]),
    "warm-up and cosine": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 45)], [5]
    ),
    "three": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.StepLR(o, 3, 0.5), s.LambdaLR(o, lambda e: 0.1)], [6, 30]
    ),
    "nothing first": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1), s.StepLR(o, 3, 0.5)], [0]),
    "two at once": lambda s, o: [s.LinearLR(o, 0.1, total_iters=8), s.StepLR(o, 10, 0.3)],
    "cosine and step": lambda s, o: [s.CosineAnnealingLR(o, 30), s.StepLR(o, 4, 0.9)],
}
NO_MOMENTUM = {optim.lr_scheduler: {}, torch.optim.lr_scheduler: {"cycle_momentum": False}}


def two_optimizers():
    ours, theirs = parameters("float64")
    return [
        library.SGD([{"params": given[:2], "lr": 0.2}, {"params": given[2:]}], lr=0.05)
        for library, given in ((optim, ours), (torch.optim, theirs))
    ]


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")  # no updates are needed here
@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_schedule(make):
    first, second = two_optimizers()
    ours, theirs = make(optim.lr_scheduler, first), make(torch.optim.lr_scheduler, second)
    ours, theirs = (made if isinstance(made, list) else [made] for made in (ours, theirs))
    for _ in range(50):
        assert rates(first) == pytest.approx(rates(second), rel=1e-13, abs=1e-18)
        assert ours[-1].get_last_lr() == rates(first)
        for schedule in (*ours, *theirs):
            schedule.step()


@pytest.mark.parametrize("options", product(mode=["min", "max"], threshold_mode=["rel", "abs"], cooldown=[0, 3]))
def test_reduce_on_plateau(options):
    first, second = two_optimizers()
    options = {**options, "factor": 0.5, "patience": 2, "threshold": 0.01, "min_lr": [0.01, 1e-4]}
    ours, theirs = (
        library.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        for library, optimizer in ((optim, first), (torch.optim, second))
    )
    rng = np.random.default_rng(0)
    seen = set()
    for epoch in range(50):
        metric = math.nan if epoch == 20 else float(rng.uniform(0.5, 1.5) / (1 + epoch // 10))
        ours.step(metric), theirs.step(metric)
        assert rates(first) == rates(second)
        seen.add(tuple(rates(first)))
    assert len(seen) > 3


# ---- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, math.inf, "inf"])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
@pytest.mark.parametrize("dtype", PRECISION)
def test_clip_norm(dtype, max_norm, norm_type):
    ours, theirs = parameters(dtype)
    give_gradients(ours, theirs, 0, skipped=(1,))
    norm1 = optim.clip_grad_norm_(ours, max_norm, norm_type)
    norm2 = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    precision = {"float64": 1e-12, "float32": 1e-6}[dtype]
    assert str(norm1.dtype) == dtype and norm1.shape == ()
    assert norm1.item() == pytest.approx(norm2.item(), rel=precision)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), rtol=precision)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_clip_norm_that_is_not_finite(bad, norm_type):
    ours, theirs = parameters("float64")
    give_gradients(ours, theirs, 0)
    ours[1].grad.data[2, 3] = bad
    theirs[1].grad[2, 3] = bad
    norm1 = optim.clip_grad_norm_(ours, 1.0, norm_type)
    norm2 = torch.nn.utils.clip_grad_norm_(theirs, 1.0, norm_type)
    np.testing.assert_equal(norm1.item(), norm2.item())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a.grad), b.grad.numpy())


def test_clip_value():
    ours, theirs = parameters("float32")
    give_gradients(ours, theirs, 0)
    ours[0].grad.data[0, 0, 0, 0], theirs[0].grad[0, 0, 0, 0] = math.nan, math.nan
    optim.clip_grad_value_(ours, 0.3)
    torch.nn.utils.clip_grad_value_(theirs, 0.3)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a.grad), b.grad.numpy())
