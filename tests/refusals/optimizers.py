"""What optimisers, clipping and loss scaling refuse."""

import math
from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.amp import GradScaler
from minigrad.optim import clip_grad_norm_, clip_grad_value_

KINDS = optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad


def weights(count=2, **options):
    minigrad.manual_seed(0)
    found = [nn.Parameter(minigrad.randn(3)) for _ in range(count)]
    for parameter in found:
        parameter.grad = minigrad.ones(3)
    return found


def stepped(kind=optim.Adam, **options):
    """An optimiser that has state."""
    optimizer = kind(weights(), lr=0.1, **options)
    optimizer.step()
    return optimizer


def saved(change):
    """The state of an Adam with a change made to it."""
    state = stepped().state_dict()
    change(state)
    return state


def wrong_gradient(gradient):
    optimizer = stepped()
    optimizer.param_groups[0]["params"][1].grad = gradient
    return optimizer


def checked_scaler():
    scaler, optimizer = GradScaler(init_scale=4.0), stepped()
    scaler.unscale_(optimizer)
    return scaler, optimizer


def scaler_state(**changes):
    return GradScaler().state_dict() | changes


NUMBERS = [  # (option, value, error, pattern) of all that have it
    ("lr", -0.1, ValueError, r"lr is -0.1, wanted at least 0"),
    ("lr", math.nan, ValueError, r"lr is nan, wanted at least 0"),
    ("lr", "0.1", TypeError, r"lr is '0.1', wanted a number"),
    ("lr", Tensor([0.1, 0.2]), TypeError, r"lr is 'Tensor', wanted a number"),
    ("lr", Tensor(-0.5), ValueError, r"lr is -0.5, wanted at least 0"),
    ("lr", None, TypeError, r"lr is 'NoneType', wanted a number"),
    ("weight_decay", -1, ValueError, r"weight_decay is -1, wanted at least 0"),
    ("weight_decay", "no", TypeError, r"weight_decay is 'no', wanted a number"),
    ("maximize", 2, TypeError, r"maximize is 2, wanted True or False"),
]

OWN = [
    (optim.SGD, {"momentum": -0.9}, ValueError, r"momentum is -0.9, wanted at least 0"),
    (optim.SGD, {"momentum": math.nan}, ValueError, r"momentum is nan, wanted at least 0"),
    (optim.SGD, {"dampening": "x"}, TypeError, r"dampening is 'x', wanted a number"),
    (optim.SGD, {"nesterov": True}, ValueError, r"momentum is 0, dampening 0; nesterov wants above 0 and 0"),
    (optim.SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, ValueError, r"dampening 0.1; nesterov wants"),
    (optim.SGD, {"nesterov": "yes", "momentum": 0.9}, TypeError, r"nesterov is 'yes', wanted True or False"),
    (optim.Adam, {"betas": 0.9}, TypeError, r"betas is 0.9, wanted a pair of numbers"),
    (optim.Adam, {"betas": (0.9,)}, TypeError, r"betas is \(0.9,\), wanted a pair"),
    (optim.Adam, {"betas": (1.0, 0.999)}, ValueError, r"betas\[0\] is 1.0, wanted at least 0 and below 1"),
    (optim.Adam, {"betas": (0.9, -0.1)}, ValueError, r"betas\[1\] is -0.1, wanted at least 0 and below 1"),
    (optim.Adam, {"betas": (0.9, math.nan)}, ValueError, r"betas\[1\] is nan, wanted at least 0 and below 1"),
    (optim.Adam, {"betas": ("0.9", 0.1)}, TypeError, r"betas\[0\] is '0.9', wanted a number"),
    (optim.Adam, {"eps": -1e-8}, ValueError, r"eps is -1e-08, wanted at least 0"),
    (optim.Adam, {"amsgrad": None}, TypeError, r"amsgrad is None, wanted True or False"),
    (optim.Adam, {"decoupled_weight_decay": 2}, TypeError, r"decoupled_weight_decay is 2, wanted True or False"),
    (optim.RMSprop, {"alpha": -1}, ValueError, r"alpha is -1, wanted at least 0"),
    (optim.RMSprop, {"momentum": []}, TypeError, r"momentum is 'tuple', wanted a number"),
    (optim.RMSprop, {"centered": "False"}, TypeError, r"centered is 'False', wanted True or False"),
    (optim.Adagrad, {"lr_decay": -1}, ValueError, r"lr_decay is -1, wanted at least 0"),
    (optim.Adagrad, {"initial_accumulator_value": -1}, ValueError, r"initial_accumulator_value is -1, wanted at"),
    (optim.Adagrad, {"eps": "tiny"}, TypeError, r"eps is 'tiny', wanted a number"),
]

MATRIX = [  # of Muon
    ({"lr": -1}, ValueError, r"lr is -1, wanted at least 0"),
    ({"nesterov": "yes"}, TypeError, r"nesterov is 'yes', wanted True or False"),
    ({"ns_steps": 2.5}, TypeError, r"ns_steps is 2.5, wanted an integer"),
    ({"adjust_lr_fn": "adam"}, ValueError, r"adjust_lr_fn is 'adam', wanted 'original' or 'match_rms_adamw'"),
]

PARAMS = [
    ("none", lambda: [], ValueError, r"params is empty, wanted at least one parameter"),
    ("a Tensor", lambda: weights()[0], TypeError, r"params is a Parameter, wanted a list of Tensors"),
    ("a set", lambda: {*weights()}, TypeError, r"params is a set, wanted a list of Tensors"),
    ("arrays", lambda: [np.ones(3)], TypeError, r"params\[0\] is a ndarray, wanted a Tensor"),
    ("a result", lambda: [weights()[0] * 2], RuntimeError, r"params\[0\] was made by mul, wanted a leaf; use .detach"),
    ("integers", lambda: [minigrad.arange(3)], TypeError, r"params\[0\] has elements int64, wanted floating ones"),
    ("one twice", lambda: weights(1) * 2, ValueError, r"params\[1\] \(shape \(3,\)\) is there twice"),
    ("unknown option", lambda: [{"params": weights(), "learning_rate": 1}], ValueError, r"options \['learning_rate'\]"),
    ("no params", lambda: [{"lr": 1}], TypeError, r"a group is \{'lr': 1\}, wanted a dictionary with 'params'"),
    ("a text among groups", lambda: [{"params": weights()}, "lr"], TypeError, r"a group is 'lr', wanted a dictionary"),
    ("a group's rate", lambda: [{"params": weights(), "lr": -1}], ValueError, r"lr is -1, wanted at least 0"),
]

LOADED = [
    ("nothing", lambda: {}, r"wanted what state_dict gives, got KeyError\('param_groups'\)"),
    ("a list", lambda: [], r"wanted what state_dict gives"),
    (
        "another model",
        lambda: optim.Adam(weights(3)).state_dict(),
        r"groups of \[3\] parameters, wanted groups of \[2\]",
    ),
    ("a shape", lambda: saved(lambda s: s["state"][0].update(exp_avg=np.ones(4))), r"has shape \(4,\), wanted \(3,\)"),
    ("a text", lambda: saved(lambda s: s["state"][0].update(exp_avg="x")), r"has shape \(\), wanted \(3,\)"),
    (
        "no parameter",
        lambda: saved(lambda s: s["state"].update({7: {}})),
        r"state of parameter 7, which is in no group",
    ),
    ("a rate", lambda: saved(lambda s: s["param_groups"][0].update(lr=math.nan)), r"lr is nan, wanted at least 0"),
    (
        "betas",
        lambda: saved(lambda s: s["param_groups"][0].update(betas=[2, 0])),
        r"betas\[0\] is 2, wanted at least 0",
    ),
]

STEPS = [
    (
        "an array as gradient",
        lambda: wrong_gradient(np.ones(3)),
        TypeError,
        r"a gradient is a ndarray, wanted a Tensor",
    ),
    (
        "a gradient's shape",
        lambda: wrong_gradient(minigrad.ones(4)),
        ValueError,
        r"shape \(4,\), wanted its parameter's",
    ),
    ("a gradient's type", lambda: wrong_gradient(minigrad.ones(3).double()), TypeError, r"elements float64, its param"),
]

CLIPPED = [
    (clip_grad_norm_, (weights(), "1.0 m"), {}, TypeError, r"max_norm is '1.0 m', wanted a number"),
    (clip_grad_norm_, (weights(), None), {}, TypeError, r"max_norm is 'NoneType', wanted a number"),
    (clip_grad_norm_, (weights(), math.nan), {}, ValueError, r"max_norm is nan, wanted at least 0"),
    (clip_grad_norm_, (weights(), -1.0), {}, ValueError, r"max_norm is -1.0, wanted at least 0"),
    (clip_grad_norm_, (weights(), 1.0, -1), {}, ValueError, r"norm_type is -1, wanted at least 0"),
    (clip_grad_norm_, (weights(), 1.0, "two"), {}, TypeError, r"norm_type is 'two', wanted a number"),
    (clip_grad_norm_, (wrong_gradient(minigrad.full((3,), math.nan)).param_groups[0]["params"], 1.0),
     {"error_if_nonfinite": True}, RuntimeError, r"the 2.0-norm of the gradients is nan; error_if_nonfinite=False"),
    (clip_grad_value_, (weights(), -1), {}, ValueError, r"clip_value is -1, wanted at least 0"),
    (clip_grad_value_, (weights(), math.nan), {}, ValueError, r"clip_value is nan, wanted at least 0"),
    (clip_grad_value_, (weights(), "x"), {}, TypeError, r"clip_value is 'x', wanted a number"),
]  # fmt: skip

SCALERS = [
    ({"init_scale": 0}, ValueError, r"init_scale is 0.0, wanted more than 0"),
    ({"init_scale": math.inf}, ValueError, r"init_scale is inf, wanted more than 0"),
    ({"init_scale": math.nan}, ValueError, r"init_scale is nan, wanted more than 0"),
    ({"init_scale": "big"}, TypeError, r"init_scale"),
    ({"growth_factor": 1.0}, ValueError, r"growth_factor is 1.0, wanted more than 1"),
    ({"backoff_factor": 1.0}, ValueError, r"backoff_factor is 1.0, wanted more than 0 and below 1"),
    ({"growth_interval": 0}, ValueError, r"growth_interval is 0, wanted an integer of at least 1"),
    ({"growth_interval": 1.5}, TypeError, r"growth_interval"),
    ({"enabled": "no"}, TypeError, r"enabled is 'no'"),
]

SCALER_CALLS = [
    ("scale", (3,), TypeError, r"outputs is a int, wanted a Tensor or several"),
    ("unscale_", (nn.Linear(2, 2),), TypeError, r"unscale_: optimizer is a Linear, wanted an Optimizer"),
    ("step", (None,), TypeError, r"step: optimizer is a NoneType, wanted an Optimizer"),
    ("step", (optim.SGD([nn.Parameter(minigrad.ones(2))]),), RuntimeError, r"no parameter of SGD has a gradient; call"),
    ("update", (), RuntimeError, r"update: no gradients were checked since the last update\(\); call step"),
    ("update", (-1.0,), ValueError, r"new_scale is -1.0, wanted more than 0"),
    ("set_growth_factor", (0.5,), ValueError, r"new_factor is 0.5, wanted more than 1"),
    ("set_backoff_factor", (2,), ValueError, r"new_factor is 2.0, wanted more than 0 and below 1"),
    ("set_growth_interval", (-3,), ValueError, r"new_interval is -3, wanted an integer of at least 1"),
    ("load_state_dict", ({},), RuntimeError, r"the state is empty, as of a GradScaler that was not enabled"),
    ("load_state_dict", ({"scale": 1},), ValueError, r"got \['scale'\], wanted \['_growth_tracker'"),
    ("load_state_dict", (scaler_state(scale=math.nan),), ValueError, r"scale is nan, wanted more than 0"),
    ("load_state_dict", (scaler_state(_growth_tracker=-1),), ValueError, r"_growth_tracker is -1, wanted"),
]


def rows():
    for kind in KINDS:
        for i, (name, value, error, pattern) in enumerate(NUMBERS):
            yield f"{kind.__name__}: {i} {name}", partial(kind, weights(), **{name: value}), error, pattern
    for i, (kind, options, error, pattern) in enumerate(OWN):
        lr = {} if "lr" in options else {"lr": 0.1}
        yield f"{kind.__name__}: own {i}", partial(kind, weights(), **lr, **options), error, pattern
    for i, (options, error, pattern) in enumerate(MATRIX):
        matrix = [nn.Parameter(minigrad.ones(2, 3))]
        yield f"Muon: own {i}", partial(optim.Muon, matrix, **options), error, f"Muon: {pattern}"
    vector = r"Muon: params\[0\] has shape \(3,\), wanted a matrix or filter; give others to AdamW"
    yield "Muon: a vector", partial(optim.Muon, weights()), ValueError, vector
    for i, (name, make, error, pattern) in enumerate(PARAMS):
        kind = KINDS[i % len(KINDS)]
        yield f"{kind.__name__}: params, {name}", partial(kind, make(), lr=0.1), error, f"{kind.__name__}: .*{pattern}"
    for name, make, error, pattern in PARAMS[4:]:
        given = make()
        group = given[-1] if isinstance(given[-1], dict | str) else {"params": given}
        yield f"Adam: add_param_group, {name}", partial(stepped().add_param_group, group), error, pattern
    for name, make, pattern in LOADED:
        error = ValueError
        yield f"Adam: load_state_dict, {name}", partial(stepped().load_state_dict, make()), error, pattern
    for name, make, error, pattern in STEPS:
        yield f"Adam: step, {name}", partial(make().step), error, f"Adam: .*{pattern}"
    for i, (function, args, options, error, pattern) in enumerate(CLIPPED):
        name = function.__name__
        yield f"{name}: {i}", partial(function, *args, **options), error, f"{name}: {pattern}"
    for i, (options, error, pattern) in enumerate(SCALERS):
        yield f"GradScaler: {i}", partial(GradScaler, **options), error, f"GradScaler: {pattern}"
    for i, (name, args, error, pattern) in enumerate(SCALER_CALLS):
        yield f"GradScaler: {name}, {i}", partial(getattr(GradScaler(), name), *args), error, pattern
    scaler, optimizer = checked_scaler()
    again = r"GradScaler: unscale_\(\) has been called already since the last update"
    yield "GradScaler: unscale_ twice", partial(scaler.unscale_, optimizer), RuntimeError, again
    scaler, optimizer = checked_scaler()
    scaler.step(optimizer)
    twice = r"step: it has been called already since the last update"
    yield "GradScaler: step twice", partial(scaler.step, optimizer), RuntimeError, twice


REFUSALS = list(rows())
