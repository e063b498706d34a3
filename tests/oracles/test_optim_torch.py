"""Every update rule and clip beside PyTorch's, with every combination of options."""

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
STEPS = 12


def product(**options):
    """Every combination of the options."""
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


OFF_ON = [False, True]
COMMON = dict(weight_decay=[0, 0.1], maximize=OFF_ON)
ADAM = dict(betas=[(0.9, 0.999), (0.5, 0.7)], eps=[1e-8, 1e-3], amsgrad=OFF_ON, **COMMON)
OPTIONS = {
    "SGD": product(momentum=[0, 0.9], dampening=[0, 0.2], **COMMON)
    + product(momentum=[0.8], nesterov=[True], **COMMON),
    "Adam": product(decoupled_weight_decay=OFF_ON, **ADAM) + [{"betas": (0.0, 0.0)}],
    "AdamW": product(**ADAM),
    "RMSprop": product(alpha=[0.99, 0.5], eps=[1e-8, 1e-3], momentum=[0, 0.9], centered=OFF_ON, **COMMON),
    "Adagrad": product(lr_decay=[0, 0.3], initial_accumulator_value=[0, 0.1], eps=[1e-10, 1e-3], **COMMON),
}
RULES = [(name, options) for name, choices in OPTIONS.items() for options in [{}, *choices]]
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
        scale = np.abs(b).max(initial=1.0, where=np.isfinite(b))
        np.testing.assert_allclose(np.asarray(a.detach()), b, rtol=precision, atol=precision * scale)


def both(name, ours, theirs, **options):
    """The two optimisers over two groups; the second, of the last two parameters, has a rate and a decay of its own."""
    for library, given in ((optim, ours), (torch.optim, theirs)):
        groups = [{"params": given[:2]}, {"params": given[2:], "lr": 0.03, "weight_decay": 0.2}]
        yield getattr(library, name)(groups, lr=0.01, **options)


def close_states(first, second, precision):
    """The same names, and numbers as close."""
    state, wanted = first.state_dict()["state"], second.state_dict()["state"]
    for index, values in wanted.items():
        kept = {key: value.numpy() for key, value in values.items() if value is not None}
        assert state[index].keys() == kept.keys()
        for key, value in kept.items():
            bound = precision * np.abs(value).max(initial=1.0, where=np.isfinite(value))
            np.testing.assert_allclose(state[index][key], value, rtol=precision, atol=bound)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("name, options", RULES, ids=IDS)
def test_rule(name, options, dtype):
    ours, theirs = parameters(dtype)
    first, second = both(name, ours, theirs, **options)
    for step in range(STEPS):
        give_gradients(ours, theirs, step, skipped={1: (0,), 2: (1, 2)}.get(step, ()))
        first.step(), second.step()
        close(ours, theirs, PRECISION[dtype])
    close_states(first, second, PRECISION[dtype])
    for group, other in zip(first.param_groups, second.param_groups, strict=True):
        assert all(other[name] == value for name, value in group.items() if name != "params")


SPEED, EXECUTION = {"foreach", "fused"}, {"capturable", "differentiable"}  # how PyTorch computes, not what


@pytest.mark.parametrize("name", OPTIONS)
def test_arguments(name):
    """PyTorch's names and defaults, without two options of execution; maximize and those after it by name."""
    mine, theirs = (inspect.signature(getattr(library, name)).parameters for library in (optim, torch.optim))
    wanted = [(p.name, p.default) for p in theirs.values() if p.name not in EXECUTION | SPEED]
    named = getattr(optim, name)(parameters("float32")[0]).defaults
    own = [(p.name, str(p.default)) for p in mine.values() if p.kind is not p.VAR_KEYWORD]
    own += [(n, str(named[n])) for n in ("maximize", "decoupled_weight_decay") if n in theirs]
    assert sorted(own) == sorted((n, str(d)) for n, d in wanted)
    assert getattr(optim, name)(parameters("float32")[0], **dict.fromkeys(SPEED, True))
    for option in EXECUTION:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            getattr(optim, name)(parameters("float32")[0], **{option: True})


REFUSED = [
    ("SGD", {"lr": -0.1}),
    ("SGD", {"momentum": -0.1}),
    ("SGD", {"weight_decay": -0.1}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
    *[(name, {option: -0.1}) for name in ("Adam", "AdamW") for option in ("lr", "eps", "weight_decay")],
    *[(name, {"betas": betas}) for name in ("Adam", "AdamW") for betas in ((-0.1, 0.9), (1.0, 0.9), (0.9, 1.0))],
    *[("RMSprop", {option: -0.1}) for option in ("lr", "alpha", "eps", "weight_decay", "momentum")],
    *[("Adagrad", {option: -0.1}) for option in ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")],
    *[(name, {"lr": [0.1, 0.2]}) for name in OPTIONS],
]


@pytest.mark.parametrize("name, options", REFUSED, ids=map(str, REFUSED))
def test_options_that_both_refuse(name, options):
    ours, theirs = parameters("float32")
    for library, given, make in ((optim, ours, Tensor), (torch.optim, theirs, torch.tensor)):
        values = {key: make(value) if isinstance(value, list) else value for key, value in options.items()}
        with pytest.raises((ValueError, TypeError)):
            getattr(library, name)(given, **values)


@pytest.mark.parametrize("name", OPTIONS)
def test_rate_in_a_tensor(name):
    ours, theirs = parameters("float64")
    first = getattr(optim, name)(ours, lr=Tensor(np.array([0.02])))
    second = getattr(torch.optim, name)(theirs, lr=torch.tensor([0.02], dtype=torch.float64))
    for step in range(3):
        give_gradients(ours, theirs, step)
        first.step(), second.step()
    close(ours, theirs, 1e-12)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("name, options", [rule for rule in RULES if not rule[1].get("weight_decay", 1)])
def test_infinite_and_huge_values(name, options, dtype):
    """Without weight decay an infinite parameter stays; what an infinite or huge gradient leaves is PyTorch's."""
    ours, theirs = parameters(dtype)
    for given in (ours, [Tensor(t.detach().numpy()) for t in theirs]):
        given[1].array[0, :2] = math.inf, -math.inf
    first, second = (
        getattr(library, name)(given, lr=0.01, **options) for library, given in ((optim, ours), (torch.optim, theirs))
    )
    for step in range(3):
        give_gradients(ours, theirs, step)
        if step == 1:
            for given in (ours[2].grad.array, theirs[2].grad.numpy()):
                given[:4] = math.inf, -math.inf, math.nan, 1e15
        with np.errstate(invalid="ignore"):
            first.step(), second.step()
        close(ours, theirs, PRECISION[dtype])
    close_states(first, second, PRECISION[dtype])


@pytest.mark.parametrize("name", OPTIONS)
def test_state_of_pytorch_goes_on_here(name):
    ours, theirs = parameters("float64")
    options = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.9}, "Adagrad": {"lr_decay": 0.1}}
    second = getattr(torch.optim, name)(theirs, lr=0.01, **options.get(name, {"amsgrad": True}))
    for step in range(3):
        give_gradients(ours, theirs, step)
        second.step()
    for a, b in zip(ours, theirs, strict=True):
        a.array[...] = b.detach().numpy()
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
    ours[1].grad.array[2, 3] = bad
    theirs[1].grad[2, 3] = bad
    norm1 = optim.clip_grad_norm_(ours, 1.0, norm_type)
    norm2 = torch.nn.utils.clip_grad_norm_(theirs, 1.0, norm_type)
    np.testing.assert_equal(norm1.item(), norm2.item())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a.grad), b.grad.numpy())


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
    again = optim.Muon(ours)
    again.load_state_dict(second.state_dict())
    assert again.state_dict()["param_groups"] == first.state_dict()["param_groups"]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has it since 2.9")
def test_muon_has_the_arguments_of_pytorch():
    mine, theirs = (inspect.signature(library.Muon).parameters.values() for library in (optim, torch.optim))
    assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in theirs]
    for library, made in ((optim, nn.Parameter(np.ones(3))), (torch.optim, torch.ones(3, requires_grad=True))):
        for wrong in ({}, {"lr": -1}, {"momentum": -1}, {"weight_decay": -1}, {"adjust_lr_fn": "x"}):
            with pytest.raises(ValueError):
                library.Muon([made], **wrong)
