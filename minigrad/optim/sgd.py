"""Stochastic gradient descent."""

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import ShapeError

from .optimizer import SPARE, Optimizer

__all__ = ["SGD"]


class SGD(Optimizer):
    """Gradient descent, with momentum and weight decay where they are not 0.

    Math    d = g + weight_decay p;  b = momentum b + (1 - dampening) d, at the first step b = d
            p = p - lr b, or p - lr (d + momentum b) with nesterov; maximize turns the sign of g
    lr              the rate, at least 0
    momentum        what the step keeps of those before; 0 for none
    dampening       what a new gradient lacks in the step, any number
    weight_decay    what shrinks the parameters: the gradient of weight_decay |p|^2 / 2 is added to that of the loss
    nesterov        look ahead: the gradient enters the step at once and by way of the momentum
    maximize        climb instead
    foreach, fused  PyTorch's ways to be faster, accepted without effect
    Errors  ValueError also for nesterov without momentum or with dampening
    Source  Sutskever and others 2013, "On the importance of initialization and momentum in deep learning", in
            the form of torch.optim.SGD
    """

    kept = {"momentum_buffer": False}

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        fused=None,
    ):
        defaults = dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay)
        super().__init__(params, {**defaults, "nesterov": nesterov, "maximize": maximize})

    def check(self, options):
        for name in ("lr", "momentum", "weight_decay"):
            self.check_number(options, name)
        self.check_number(options, "dampening", float("-inf"))
        if options["nesterov"] and not (options["momentum"] > 0 and options["dampening"] == 0):
            raise ShapeError(
                f"SGD: nesterov is True with momentum {options['momentum']} and dampening "
                f"{options['dampening']}, wanted momentum above 0 and dampening 0"
            )

    def age(self, state):
        return "momentum_buffer" in state

    def numbers(self, group, age):
        return self.hyper(kernels.SGD, group, rate=group["lr"], first=bool(group["momentum"]) and not age)

    def recount(self, parameter, count):
        """Where the first step has not come yet, the buffer has no value yet; it keeps its place for the step."""
        names = ("momentum_buffer", SPARE) if count else (SPARE, "momentum_buffer")
        state = self.state[parameter]
        if names[0] in state:
            state[names[1]] = state.pop(names[0])

    def update(self, group, age, parameters, plan, **numbers):
        for parameter in () if age else parameters:
            if SPARE in (state := self.state[parameter]):
                state["momentum_buffer"] = state.pop(SPARE)
        buffers = self.arrays("momentum_buffer", parameters) if group["momentum"] else None
        hyper = self.numbers(group, age)
        kernels.sgd(*self.written(parameters), buffers, hyper, plan, **numbers)
