"""What schedules of the learning rate refuse."""

import math
from functools import partial

import minigrad
from minigrad import nn, optim
from minigrad.optim import lr_scheduler as schedules


def optimizer():
    return optim.SGD([nn.Parameter(minigrad.ones(2))], lr=0.1)


def two_groups():
    groups = [{"params": [nn.Parameter(minigrad.ones(2))]} for _ in range(2)]
    return optim.SGD(groups, lr=0.1)


MADE = [  # (schedule, arguments after the optimiser, error, pattern)
    ("StepLR", (0,), ValueError, r"step_size is 0, wanted at least 1"),
    ("StepLR", (2.5,), TypeError, r"step_size is 2.5, wanted an integer"),
    ("MultiStepLR", ([1, -1],), ValueError, r"milestones is -1, wanted at least 0"),
    ("MultiStepLR", ([1.5],), TypeError, r"milestones is 1.5, wanted an integer"),
    ("LinearLR", (0.5, 1.0, 0), ValueError, r"total_iters is 0, wanted at least 1"),
    ("PolynomialLR", (0,), ValueError, r"total_iters is 0, wanted at least 1"),
    ("CosineAnnealingWarmRestarts", (0,), ValueError, r"T_0 is 0, wanted at least 1"),
    ("CosineAnnealingWarmRestarts", (5, 0), ValueError, r"T_mult is 0, wanted at least 1"),
    ("CosineAnnealingLR", (0,), ValueError, r"T_max is 0, wanted at least 1"),
    ("CosineAnnealingLR", (10.0,), TypeError, r"T_max is 10.0, wanted an integer"),
    ("LambdaLR", ([abs, abs],), ValueError, r"lr_lambda has 2 values, wanted one for each of 1 groups"),
    ("OneCycleLR", (0.1,), TypeError, r"total_steps is None, wanted an integer"),
    ("OneCycleLR", (0.1, 0), ValueError, r"total_steps is 0, wanted at least 1"),
    ("OneCycleLR", (0.1, 10, None, None, 1.5), ValueError, r"pct_start is 1.5, wanted a number from 0 to 1"),
    ("OneCycleLR", (0.1, 10, None, None, 0.3, "sine"), ValueError, r"anneal_strategy is 'sine', wanted 'cos' or"),
    ("OneCycleLR", ("high", 10), TypeError, r"max_lr is 'high', wanted a number"),
    ("OneCycleLR", ([0.1, 0.2], 10), ValueError, r"max_lr has 2 values, wanted one for each of 1 groups"),
    ("OneCycleLR", (math.nan, 10), ValueError, r"max_lr is nan, wanted at least 0"),
    ("ReduceLROnPlateau", ("least",), ValueError, r"mode is 'least', wanted 'min' or 'max'"),
    ("ReduceLROnPlateau", ("min", 1.0), ValueError, r"factor is 1.0, wanted at least 0 and below 1"),
    ("ReduceLROnPlateau", ("min", 0.1, 10, 1e-4, "rel", 0, [0, 0]), ValueError, r"min_lr has 2 values, wanted one for"),
    ("SequentialLR", ([3], []), TypeError, r"schedulers\[0\] is a int, wanted a schedule of this optimiser"),
]  # fmt: skip

LOADED = [
    ({"schedule": "LinearLR"}, ValueError, r"StepLR.load_state_dict: got .*LinearLR.*, wanted such as .*StepLR"),
    ({"base_lrs": [0.1, 0.2]}, ValueError, r"StepLR.load_state_dict: got .*0.2.*, wanted such as .*StepLR"),
    ({}, ValueError, r"StepLR.load_state_dict: got \{\}, wanted such as"),
    (None, ValueError, r"StepLR.load_state_dict: got None, wanted such as"),
]


def rows():
    for name in ("StepLR", "ExponentialLR", "CosineAnnealingLR"):
        kind = getattr(schedules, name)
        wanted = f"{name}: optimizer is a Linear, wanted an Optimizer"
        yield f"{name}: optimizer", partial(kind, nn.Linear(2, 2), 3), TypeError, wanted
    for i, (name, args, error, pattern) in enumerate(MADE):
        call = partial(getattr(schedules, name), optimizer(), *args)
        yield f"{name}: {i}", call, error, f"{name}: .*{pattern}"
    for i, (changes, error, pattern) in enumerate(LOADED):
        schedule = schedules.StepLR(optimizer(), 3)
        given = schedule.state_dict() | changes if changes else changes
        yield f"StepLR: load_state_dict, {i}", partial(schedule.load_state_dict, given), error, pattern
    ended = schedules.OneCycleLR(optimizer(), 0.1, 2)
    ended.step()
    ended.step()
    yield "OneCycleLR: past its end", partial(ended.step), RuntimeError, r"step 3 of 2; make it with more total_steps"
    plateau = schedules.ReduceLROnPlateau(optimizer())
    yield "ReduceLROnPlateau: metrics", partial(plateau.step, "low"), TypeError, "metrics is 'low', wanted a number"
    own, other = optimizer(), optimizer()
    parts = [schedules.StepLR(own, 2), schedules.StepLR(other, 2)]
    foreign = r"SequentialLR: schedulers\[1\] is a StepLR, wanted a schedule of this optimiser"
    yield "SequentialLR: foreign", partial(schedules.SequentialLR, own, parts, [3]), TypeError, foreign
    few = partial(schedules.SequentialLR, own, parts[:1], [3])
    yield "SequentialLR: milestones", few, ValueError, r"SequentialLR: .*milestones"
    watching = schedules.ReduceLROnPlateau(own)
    metric = r"schedulers\[0\] is a ReduceLROnPlateau, wanted a schedule of this optimiser"
    yield "SequentialLR: a metric", partial(schedules.SequentialLR, own, [watching], []), TypeError, metric
    rates = partial(schedules.OneCycleLR, two_groups(), [0.1], 10)
    yield "OneCycleLR: groups", rates, ValueError, r"max_lr has 1 values, wanted one for each of 2 groups"


REFUSALS = list(rows())
