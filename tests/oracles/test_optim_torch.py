"""Every update rule and clip beside PyTorch's; with --deep on every combination of options."""

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
PRECISION = {"float64": 1e-10, "float32": 1e-5}
STEPS = 6


def product(**options):
    """Every combination of the options."""
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


OFF_ON = [False, True]
COMMON = dict(weight_decay=[0, 0.1], maximize=OFF_ON)
ADAM = dict(betas=[(0.9, 0.999), (0.5, 0.7)], eps=[1e-8, 1e-3], amsgrad=OFF_ON, **COMMON)
NESTEROV = product(momentum=[0.8], nesterov=[True], **COMMON)
OPTIONS = {  # the defaults and the last combination are fast
    "SGD": product(momentum=[0, 0.9], dampening=[0, 0.2], **COMMON) + NESTEROV,
    "Adam": product(decoupled_weight_decay=OFF_ON, **ADAM),
    "AdamW": product(**ADAM),
    "RMSprop": product(alpha=[0.99, 0.5], eps=[1e-8, 1e-3], momentum=[0, 0.9], centered=OFF_ON, **COMMON),
    "Adagrad": product(lr_decay=[0, 0.3], initial_accumulator_value=[0, 0.1], eps=[1e-10, 1e-3], **COMMON),
}
RULES = [
    pytest.param(
        name,
        options,
        id=f"{name} {' '.join(f'{key}={value}' for key, value in options.items())}",
        marks=[pytest.mark.deep] * (options not in ({}, choices[-1], *NESTEROV[:1])),
    )
    for name, choices in OPTIONS.items()
    for options in [{}, *choices]
]


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
            np.testing.assert_allclose(
                state[index][key], value, rtol=precision, atol=precision * max(1, np.abs(value).max())
            )


@pytest.mark.parametrize("name, options", RULES)
def test_rule(name, options):
    """In both types; then PyTorch's state goes on here."""
    for dtype, precision in PRECISION.items():
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


# ---- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_clip_norm(max_norm, norm_type, bad):
    ours, theirs = parameters("float64")
    give_gradients(ours, theirs, 0, skipped=(0,))
    if bad is not None:
        ours[1].grad.array[2, 3] = theirs[1].grad[2, 3] = bad
    norm1 = optim.clip_grad_norm_(ours, max_norm, norm_type)
    norm2 = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    np.testing.assert_allclose(norm1.item(), norm2.item(), rtol=1e-12)
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), rtol=1e-12)


def test_clip_value():
    ours, theirs = parameters("float32")
    give_gradients(ours, theirs, 0)
    ours[0].grad.array[0, 0, 0, 0], theirs[0].grad[0, 0, 0, 0] = math.nan, math.nan
    optim.clip_grad_value_(ours, 0.3)
    torch.nn.utils.clip_grad_value_(theirs, 0.3)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a.grad), b.grad.numpy())


# ---- Muon, which takes matrices alone --------------------------------------------------------------------------------

MUON = [
    {},
    {"lr": 0.05, "weight_decay": 0.5, "momentum": 0.5, "nesterov": False},
    {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "eps": 1e-3},
    {"adjust_lr_fn": "original", "ns_coefficients": (2.0, -1.5, 0.5)},
]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has it since 2.9")
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("options", MUON, ids=str)
def test_muon(options, exact, monkeypatch):
    """To rounding where PyTorch's iteration is kept in float64 too; it computes in bfloat16, of 8 bits, by itself."""
    if exact:
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((5, 7), (9, 4), (6, 6))]
    ours = [nn.Parameter(array.copy()) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    first, second = optim.Muon(ours, **options), torch.optim.Muon(theirs, **options)
    for step in range(5):
        give_gradients(ours, theirs, step)
        first.step(), second.step()
    close(ours, theirs, 1e-12 if exact else 0.02)
    close_states(first, second, 1e-12)
    mine, its = (inspect.signature(library.Muon).parameters.values() for library in (optim, torch.optim))
    assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in its]
