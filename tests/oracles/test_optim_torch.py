"""Every update rule and clip beside PyTorch's: each option at each of its values."""

import inspect
import itertools
import math

import numpy as np
import pytest

from minigrad import Tensor, nn, optim
from minigrad.device import empty
from minigrad_kernels.layout import FILTER

torch = pytest.importorskip("torch")

SHAPES = [(4, 3, 3, 2), (5, 7), (7,), ()]
STEPS = 6
COMMON = dict(weight_decay=0.1, maximize=True)
ADAM = [{}, dict(betas=(0.5, 0.7), amsgrad=True), dict(eps=1e-3, **COMMON), dict(amsgrad=True, **COMMON)]
OPTIONS = {
    "SGD": [{}, {"momentum": 0.9}, dict(momentum=0.9, dampening=0.2, **COMMON), dict(momentum=0.8, nesterov=True)],
    "Adam": [*ADAM, dict(decoupled_weight_decay=True, **ADAM[3])],
    "AdamW": ADAM,
    "RMSprop": [{}, dict(alpha=0.5, centered=True), dict(momentum=0.9, eps=1e-3, centered=True, **COMMON)],
    "Adagrad": [{}, dict(lr_decay=0.3, **COMMON), dict(initial_accumulator_value=0.1, eps=1e-3)],
}
RULES = [pytest.param(name, options, id=f"{name} {options}") for name, all_ in OPTIONS.items() for options in all_]


def parameters(dtype):
    """Ours and PyTorch's, alike; the filters lie H W I O."""
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for shape in SHAPES:
        laid = empty(shape, dtype, FILTER if len(shape) == 4 else None)
        laid[...] = rng.standard_normal(shape)
        ours.append(nn.Parameter(laid))
        theirs.append(torch.tensor(laid.copy(), requires_grad=True))
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
        scale = np.abs(b).max(initial=1.0, where=np.isfinite(b))
        np.testing.assert_allclose(np.asarray(a.detach()), b, rtol=precision, atol=precision * scale)


def both(name, ours, theirs, **options):
    """The two optimisers over two groups; the second, of the last two parameters, has a rate and a decay of its own."""
    for library, given in ((optim, ours), (torch.optim, theirs)):
        groups = [{"params": given[:2]}, {"params": given[2:], "lr": 0.03, "weight_decay": 0.2}]
        yield getattr(library, name)(groups, lr=0.01, **options)


def close_states(first, second, precision):
    """The same names, and numbers as close."""
    state = first.state_dict()["state"]
    for index, values in second.state_dict()["state"].items():
        kept = {key: value.numpy() for key, value in values.items() if value is not None}
        assert state[index].keys() == kept.keys()
        for key, value in kept.items():
            bound = precision * max(1, np.abs(value).max())
            np.testing.assert_allclose(state[index][key], value, rtol=precision, atol=bound)


@pytest.mark.parametrize("name, options", RULES)
def test_rule(name, options):
    """In both types; then PyTorch's state goes on here."""
    for dtype, precision in (("float64", 1e-10), ("float32", 1e-5)):
        ours, theirs = parameters(dtype)
        first, second = both(name, ours, theirs, **options)
        for step in range(STEPS):
            give_gradients(ours, theirs, step, skipped={1: (0,), 2: (1, 2)}.get(step, ()))
            first.step(), second.step()
            close(ours, theirs, precision)
        close_states(first, second, precision)
        for group, other in zip(first.param_groups, second.param_groups, strict=True):
            assert all(other[name] == value for name, value in group.items() if name != "params")
        (again, _) = both(name, ours, theirs)
        again.load_state_dict(second.state_dict())
        give_gradients(ours, theirs, STEPS)
        again.step(), second.step()
        close(ours, theirs, precision)


SPEED, EXECUTION = {"foreach", "fused"}, {"capturable", "differentiable"}  # how PyTorch computes, not what


@pytest.mark.parametrize("name", OPTIONS)
def test_arguments(name):
    """PyTorch's names and defaults, without two options of execution; maximize and those after it by name."""
    mine, theirs = (inspect.signature(getattr(library, name)).parameters for library in (optim, torch.optim))
    wanted = [(p.name, p.default) for p in theirs.values() if p.name not in EXECUTION | SPEED]
    named = getattr(optim, name)(parameters("float32")[0], **dict.fromkeys(SPEED, True)).defaults
    own = [(p.name, str(p.default)) for p in mine.values() if p.kind is not p.VAR_KEYWORD]
    own += [(n, str(named[n])) for n in ("maximize", "decoupled_weight_decay") if n in theirs]
    assert sorted(own) == sorted((n, str(d)) for n, d in wanted)


def test_clipping():
    for norm_type, most, bad in itertools.product((2.0, 1.0, math.inf), (0.5, 1e6), (None, math.nan, math.inf)):
        ours, theirs = parameters("float64")
        give_gradients(ours, theirs, 0, skipped=(0,))
        if bad is not None:
            ours[1].grad.array[2, 3] = theirs[1].grad[2, 3] = bad
        found = optim.clip_grad_norm_(ours, most, norm_type)
        wanted = torch.nn.utils.clip_grad_norm_(theirs, most, norm_type)
        np.testing.assert_allclose(found.item(), wanted.item(), rtol=1e-12)
        close([a.grad for a in ours[1:]], [b.grad for b in theirs[1:]], 1e-12)
        optim.clip_grad_value_(ours, 0.1)
        torch.nn.utils.clip_grad_value_(theirs, 0.1)
        close([a.grad for a in ours[1:]], [b.grad for b in theirs[1:]], 1e-12)


MUON = [
    {},
    {"lr": 0.05, "weight_decay": 0.5, "momentum": 0.5, "nesterov": False},
    {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "eps": 1e-3},
    {"adjust_lr_fn": "original", "ns_coefficients": (2.0, -1.5, 0.5)},
]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has it since 2.9")
@pytest.mark.parametrize("options", MUON, ids=str)
def test_muon(options, monkeypatch):
    """Which takes matrices alone. To rounding where PyTorch's iteration, of 8 bits, is kept in float64 too."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((5, 7), (9, 4), (6, 6))]
    ours = [nn.Parameter(array.copy()) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    first, second = optim.Muon(ours, **options), torch.optim.Muon(theirs, **options)
    for step in range(5):
        give_gradients(ours, theirs, step)
        first.step(), second.step()
    close(ours, theirs, 1e-12)
    close_states(first, second, 1e-12)
    mine, its = (inspect.signature(library.Muon).parameters.values() for library in (optim, torch.optim))
    assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in its]
