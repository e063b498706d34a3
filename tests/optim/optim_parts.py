"""What the tests of optimisers and schedules share: parameters, gradients, training without a model."""

import json

import numpy as np
import pytest

from minigrad import Tensor, nn, optim
from minigrad.device import empty
from minigrad_kernels.layout import FILTER

RULES = {
    "SGD": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "SGD plain": lambda params: optim.SGD(params, lr=0.05),
    "SGD nesterov": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda params: optim.Adam(params, lr=0.05),
    "AdamW": lambda params: optim.AdamW(params, lr=0.05, amsgrad=True),
    "RMSprop": lambda params: optim.RMSprop(params, momentum=0.5, centered=True),
    "Adagrad": lambda params: optim.Adagrad(params, lr=0.5, lr_decay=0.01, initial_accumulator_value=0.1),
}
every_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def parameters(dtype="float32", order=FILTER):
    """A filter that lies in this order, a matrix, a vector, a scalar."""
    rng = np.random.default_rng(0)
    made = []
    for shape in ((4, 3, 3, 2), (5, 7), (7,), ()):
        array = empty(shape, dtype, order if len(shape) == 4 else None)
        array[...] = rng.standard_normal(shape)
        made.append(nn.Parameter(array))
    return made


def give_gradients(params, step, order=None):
    rng = np.random.default_rng(100 + step)
    for parameter in params:
        array = empty(parameter.shape, parameter.dtype, order if parameter.ndim == 4 else None)
        array[...] = rng.standard_normal(parameter.shape)
        parameter.grad = Tensor(array)


def train(optimizer, params, steps, schedule=None):
    for step in steps:
        give_gradients(params, step)
        optimizer.step()
        if schedule is not None:
            schedule.step()


def arrays(params):
    return [np.array(parameter.detach(), order="C") for parameter in params]


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def through_json(state):
    """The state as a checkpoint keeps it: arrays apart, the rest as JSON text."""
    kept = {(i, name): value for i, values in state["state"].items() for name, value in values.items()}
    groups = json.loads(json.dumps(state["param_groups"]))
    loaded = {}
    for (index, name), value in kept.items():
        loaded.setdefault(str(index), {})[name] = value if isinstance(value, int) else np.array(value)
    return {"state": loaded, "param_groups": groups}


def rates(schedule, steps):
    """The rates from now on, over so many steps of the schedule."""
    found = [schedule.get_last_lr()]
    for _ in range(steps):
        schedule.step()
        found.append(schedule.get_last_lr())
    return found
