"""What the tests of optimisers and schedules share: parameters, gradients, training without a model."""

import numpy as np
import pytest

from minigrad import Tensor, device, nn, optim
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
EVERY = RULES | {"Adadelta": optim.Adadelta}
EVERY |= {"Muon": lambda params: optim.Muon(params[:2], lr=0.05)}  # which takes the filter and the matrix
every_rule = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


def drawn(shape, rng, dtype, order, place):
    """Normally distributed numbers at a place; filters lie in this order."""
    array = device.empty(shape, dtype, order if len(shape) == 4 else None)
    array[...] = rng.standard_normal(shape)
    return device.move(array, place)


def parameters(dtype="float32", order=FILTER, place="cpu"):
    """A filter that lies in this order, a matrix, a vector, a scalar."""
    rng = np.random.default_rng(0)
    return [nn.Parameter(drawn(shape, rng, dtype, order, place)) for shape in ((4, 3, 3, 2), (5, 7), (7,), ())]


def give_gradients(params, step, order=None):
    """The gradients of a step, where the parameters are."""
    rng = np.random.default_rng(100 + step)
    for parameter in params:
        parameter.grad = Tensor(drawn(parameter.shape, rng, parameter.dtype, order, parameter.device))


def arrays(params):
    """Copies on the host, in C order."""
    return [np.array(device.host(parameter.array), order="C") for parameter in params]


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def close(params, others, tolerance=1e-5):
    for one, two in zip(arrays(params), arrays(others), strict=True):
        np.testing.assert_allclose(one.astype(float), two, rtol=tolerance, atol=tolerance)


def same_states(one, two):
    """Two optimisers hold the same numbers; what has had no step yet may be missing in the second."""
    one, two = one.state_dict()["state"], two.state_dict()["state"]
    assert {k for k, v in one.items() if v.keys() - {"step"} or v.get("step")} >= two.keys()
    for index, values in two.items():
        assert one[index].keys() == values.keys()
        for name, value in values.items():
            np.testing.assert_array_equal(one[index][name], value, name)


SCHEDULES = {  # of the module with the schedules, and an optimiser of two groups
    "step": lambda s, o: s.StepLR(o, 7, 0.5),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 20, 0.001),
    "cosine again": lambda s, o: s.CosineAnnealingWarmRestarts(o, 9, eta_min=0.001),
    "cosine longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, 2),
    "polynomial": lambda s, o: s.PolynomialLR(o),
    "polynomial bent": lambda s, o: s.PolynomialLR(o, 40, 2.5),
    "linear": lambda s, o: s.LinearLR(o),
    "milestones": lambda s, o: s.MultiStepLR(o, [3, 10, 11, 40], 0.5),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "constant": lambda s, o: s.ConstantLR(o),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda epoch: 1 / (1 + epoch), lambda epoch: 0.5]),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.5, 51),
    "one cycle linear": lambda s, o: s.OneCycleLR(o, [0.5, 0.1], 60, anneal_strategy="linear"),
    "three": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.StepLR(o, 3, 0.5), s.CosineAnnealingLR(o, 45)], [6, 30]
    ),
    "nested": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.2), SCHEDULES["three"](s, o)], [4]),
}
