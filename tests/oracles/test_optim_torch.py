"""Every update rule and schedule beside PyTorch's: each option at each of its values."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad import nn, optim
from tests.optim.optim_parts import SCHEDULES, give_gradients, parameters
from tests.oracles.beside_torch import close, numbers, torch


def pair(dtype="float64", like=None):
    """Parameters of ours, and PyTorch's alike."""
    ours = parameters(dtype) if like is None else like
    return ours, [torch.tensor(numbers(parameter).copy(), requires_grad=True) for parameter in ours]


def give(ours, theirs, step, skipped=()):
    """The same gradients to both; none to the skipped."""
    give_gradients(ours, step)
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a.grad = None if index in skipped else a.grad
        b.grad = None if index in skipped else torch.tensor(a.grad.numpy())


def all_close(ours, theirs, precision):
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, precision)


def close_states(first, second, precision):
    """The same names, and numbers as close."""
    state = first.state_dict()["state"]
    for index, values in second.state_dict()["state"].items():
        kept = {key: value for key, value in values.items() if value is not None}
        assert state[index].keys() == kept.keys()
        for key, value in kept.items():
            close(state[index][key], value, precision)


# ---- rules -----------------------------------------------------------------------------------------------------------

COMMON = dict(weight_decay=0.1, maximize=True)
ADAM = [{}, dict(betas=(0.5, 0.7), amsgrad=True), dict(eps=1e-3, **COMMON), dict(amsgrad=True, **COMMON)]
OPTIONS = {
    "SGD": [{}, {"momentum": 0.9}, dict(momentum=0.9, dampening=0.2, **COMMON), dict(momentum=0.8, nesterov=True)],
    "Adam": ADAM,
    "AdamW": ADAM,
    "RMSprop": [{}, dict(alpha=0.5, centered=True), dict(momentum=0.9, eps=1e-3, centered=True, **COMMON)],
    "Adadelta": [{}, dict(rho=0.5, eps=1e-3, **COMMON)],
    "Adagrad": [{}, dict(lr_decay=0.3, **COMMON), dict(initial_accumulator_value=0.1, eps=1e-3)],
}
RULES = [pytest.param(name, options, id=f"{name} {options}") for name, all_ in OPTIONS.items() for options in all_]


def both(name, ours, theirs, **options):
    """The two optimisers over two groups; the second, of the last two parameters, has a rate and a decay of its own."""
    for library, given in ((optim, ours), (torch.optim, theirs)):
        groups = [{"params": given[:2]}, {"params": given[2:], "lr": 0.03, "weight_decay": 0.2}]
        yield getattr(library, name)(groups, lr=0.01, **options)


@pytest.mark.parametrize("name, options", RULES)
def test_rule(name, options):
    """In both types; then PyTorch's state goes on here."""
    for dtype, precision in (("float64", 1e-10), ("float32", 1e-5)):
        ours, theirs = pair(dtype)
        first, second = both(name, ours, theirs, **options)
        for step in range(6):
            give(ours, theirs, step, skipped={1: (0,), 2: (1, 2)}.get(step, ()))
            first.step(), second.step()
            all_close(ours, theirs, precision)
        close_states(first, second, precision)
        for group, other in zip(first.param_groups, second.param_groups, strict=True):
            assert all(other[name] == value for name, value in group.items() if name != "params")
        (again, _) = both(name, ours, theirs)
        again.load_state_dict(second.state_dict())
        give(ours, theirs, 6)
        again.step(), second.step()
        all_close(ours, theirs, precision)


MUON = [
    {},
    {"lr": 0.05, "weight_decay": 0.5, "momentum": 0.5, "nesterov": False},
    {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "eps": 1e-3},
    {"adjust_lr_fn": "original", "ns_coefficients": (2.0, -1.5, 0.5)},
]


@pytest.mark.parametrize("options", MUON, ids=str)
def test_muon(options, monkeypatch):
    """Of matrices, which are all that PyTorch's takes; to rounding where its iteration, of 8 bits, is float64 too."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    draw = np.random.default_rng(0).standard_normal
    ours, theirs = pair(like=[nn.Parameter(draw(shape)) for shape in ((5, 7), (9, 4), (6, 6))])
    first, second = optim.Muon(ours, **options), torch.optim.Muon(theirs, **options)
    for step in range(5):
        give(ours, theirs, step)
        first.step(), second.step()
    all_close(ours, theirs, 1e-12)
    close_states(first, second, 1e-12)


# ---- schedules -------------------------------------------------------------------------------------------------------

THEIRS = SimpleNamespace(**vars(torch.optim.lr_scheduler))
THEIRS.OneCycleLR = partial(THEIRS.OneCycleLR, cycle_momentum=False)
AT_ONCE = {
    "three at once": lambda s, o: [s.ConstantLR(o, 0.2, 7), s.ExponentialLR(o, 0.95), s.MultiStepLR(o, [7, 9], 0.5)]
}
TABLE = {name: make for name, make in SCHEDULES.items() if name != "nested"} | AT_ONCE  # which PyTorch has not


def two_optimizers():
    return [
        library.SGD([{"params": given[:2], "lr": 0.2}, {"params": given[2:]}], lr=0.05)
        for library, given in zip((optim, torch.optim), pair(), strict=True)
    ]


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")  # no updates are needed here
@pytest.mark.parametrize("make", TABLE.values(), ids=TABLE)
def test_schedule(make):
    first, second = two_optimizers()
    ours, theirs = make(optim.lr_scheduler, first), make(THEIRS, second)
    ours, theirs = (made if isinstance(made, list) else [made] for made in (ours, theirs))
    for _ in range(50):
        assert rates(first) == pytest.approx(rates(second), rel=1e-13, abs=1e-18)
        assert ours[-1].get_last_lr() == rates(first)
        for schedule in (*ours, *theirs):
            schedule.step()


@pytest.mark.parametrize("mode, threshold_mode, cooldown", [("min", "rel", 0), ("max", "abs", 3), ("max", "rel", 0)])
def test_reduce_on_plateau(mode, threshold_mode, cooldown):
    first, second = two_optimizers()
    options = {"mode": mode, "threshold_mode": threshold_mode, "cooldown": cooldown}
    options |= {"factor": 0.5, "patience": 2, "threshold": 0.1, "min_lr": [0.01, 1e-4]}
    ours, theirs = (
        library.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        for library, optimizer in ((optim, first), (torch.optim, second))
    )
    rng, seen = np.random.default_rng(0), set()
    for epoch in range(50):
        metric = math.nan if epoch == 20 else float(rng.uniform(0.5, 1.5) / (1 + epoch // 10))
        ours.step(metric), theirs.step(metric)
        assert rates(first) == rates(second)
        seen.add(tuple(rates(first)))
    assert len(seen) > 3
