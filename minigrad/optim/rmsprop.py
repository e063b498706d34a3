"""RMSprop."""

from minigrad_kernels import optimizer as kernels

from .optimizer import Optimizer

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """Steps scaled by a running average of the squared gradient.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            v = alpha v + (1 - alpha) g^2;  a = alpha a + (1 - alpha) g if centered, else 0
            d = g / (sqrt(v - a^2) + eps);  b = momentum b + d;  p = p - lr b, or p - lr d without momentum
    lr              the rate, at least 0
    alpha           what the averages keep of themselves, at least 0
    eps             keeps the denominator from 0
    weight_decay    what shrinks the parameters: the gradient of weight_decay |p|^2 / 2 is added to that of the loss
    momentum        what the step keeps of those before; 0 for none
    centered        divide by the root of the variance of the gradient, not of its mean square
    maximize        climb instead
    foreach         PyTorch's way to be faster, accepted without effect
    Source  Hinton 2012, lecture 6e; Graves 2013, "Generating sequences with recurrent neural
            networks", equations 38-45
    """

    kept = {"step": True, "square_avg": True, "grad_avg": False, "momentum_buffer": False}

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        *,
        maximize=False,
        foreach=None,
    ):
        defaults = dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        super().__init__(params, {**defaults, "centered": centered, "maximize": maximize})

    def check(self, options):
        for name in ("lr", "alpha", "eps", "weight_decay", "momentum"):
            self.check_number(options, name)

    def age(self, state):
        return state.get("step", 0)

    def numbers(self, group, age):
        return self.hyper(kernels.RMSprop, group, rate=group["lr"], step=age + 1)

    def update(self, group, age, parameters, plan, **numbers):
        hyper = self.numbers(group, age)
        squares = self.arrays("square_avg", parameters)
        means = self.arrays("grad_avg", parameters) if group["centered"] else None
        buffers = self.arrays("momentum_buffer", parameters) if group["momentum"] else None
        kernels.rmsprop(*self.written(parameters), squares, means, buffers, hyper, plan, **numbers)
        for parameter in parameters:
            self.state[parameter]["step"] = age + 1
