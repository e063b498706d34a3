"""Update rules: SGD, Adam, AdamW, RMSprop and Adagrad, one launch for all parameters of a group.

g is the gradient, p the parameter, t = 1, 2, ... the step. These options mean the same everywhere:
lr              the rate, at least 0
eps             keeps the denominator from 0
weight_decay    what shrinks the parameters: the gradient of weight_decay |p|^2 / 2 is added to that of the loss
maximize        climb instead: the sign of g is turned first
foreach, fused  PyTorch's ways to be faster, accepted without effect
"""

import numpy as np

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..core.check import flag_of, number_of
from ..core.interceptors import interceptors
from ..core.tape import write
from .optimizer import Optimizer, plain

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Rule"]

OWN = {"adjust_lr_fn", "betas", "dampening", "ns_coefficients"}  # options that a rule checks itself
FLAGS = {"amsgrad", "centered", "decoupled_weight_decay", "maximize", "nesterov"}
SPEED = {"foreach", "fused"}
NUMBERS = frozenset({float, int, bool})


def members(enumeration):
    """The members of an enumeration in minigrad_kernels.optimizer as options are called."""
    return [name.lower() for name in enumeration.__members__]


class Rule(Optimizer):
    """Base of the rules that a kernel computes.

    kernel  its name in minigrad_kernels.optimizer
    hyper   the names of its numbers, in its order
    kept    as in Optimizer, arrays in the order of the kernel
    """

    kernel = ""
    hyper: tuple | list = ()

    def __init__(self, params, defaults, speed):
        if unknown := speed.keys() - SPEED:
            raise KindError(f"{self.name}() got an unexpected keyword argument {min(unknown)!r}")
        super().__init__(params, defaults)

    def check(self, options):
        for name in self.defaults.keys() - OWN:
            if name in FLAGS:
                flag_of(self.name, name, options[name])
            else:
                number_of(self.name, name, options[name], 0)

    def age(self, state):
        return state.get("step", 0)

    def options(self, group, age):
        """The numbers of the kernel by their names, and others."""
        return {**group, "rate": group["lr"], "step": age + 1}

    def numbers(self, group, age):
        options = self.options(group, age)
        numbers = [options[name] for name in self.hyper]
        if not NUMBERS.issuperset(map(type, numbers)):
            names = ["lr" if name == "rate" else name for name in self.hyper]
            pairs = zip(names, map(plain, numbers), strict=True)
            numbers = [number_of(self.name, name, value) for name, value in pairs]
        return np.fromiter(numbers, np.float64, len(numbers))  # in half the time of np.array

    def update(self, group, age, parameters, plan, **numbers):
        hyper, start = self.numbers(group, age), group.get("initial_accumulator_value", 0)
        arrays = [
            self.arrays(name, parameters, start) if option is True or group[option] else None
            for name, option in self.kept.items()
            if name != "step"
        ]
        getattr(kernels, self.kernel)(*self.written(parameters), *arrays, hyper, plan, **numbers)
        if "step" in self.kept:
            for parameter in parameters:
                self.state[parameter]["step"] = age + 1

    @staticmethod
    def written(parameters):
        """The arrays of the parameters, to be changed, and those of their gradients.

        Gradients may lie in another layout than their parameters: the plan of an update gives them the same.
        """
        arrays, gradients = [], []
        told = interceptors()
        for parameter in parameters:
            if told or parameter.node is not None:
                write(parameter)
            else:  # the same where nobody has to be told
                parameter.version[0] += 1
            arrays.append(parameter._data)
            gradients.append(parameter.grad._data)
        return arrays, gradients

    def arrays(self, name, parameters, start=0):
        """The arrays of this name in the state of the parameters, full of `start` where there were none."""
        states = self.state
        try:
            return [states[parameter][name] for parameter in parameters]  # as nearly always
        except KeyError:
            for parameter in parameters:
                if name not in states[parameter]:
                    like = parameter.array
                    states[parameter][name] = device.full(like.shape, start, like.dtype, device.order_of(like), like)
        return [states[parameter][name] for parameter in parameters]


class SGD(Rule):
    """Gradient descent, with momentum and weight decay where they are not 0.

    Math    d = g + weight_decay p;  b = momentum b + (1 - dampening) d, at the first step b = d
            p = p - lr b, or p - lr (d + momentum b) with nesterov; maximize turns the sign of g
    momentum        what the step keeps of those before; 0 for none
    dampening       what a new gradient lacks in the step, any number
    nesterov        look ahead: the gradient enters the step at once and by way of the momentum
    Errors  ValueError also for nesterov without momentum or with dampening
    Source  Sutskever and others 2013, "On the importance of initialization and momentum in deep learning", in
            the form of torch.optim.SGD
    """

    kernel, hyper, kept = "sgd", members(kernels.SGD), {"momentum_buffer": "momentum"}

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, **speed
    ):
        flags = dict(nesterov=nesterov, maximize=maximize)
        defaults = dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, **flags)
        super().__init__(params, defaults, speed)

    def check(self, options):
        super().check(options)
        momentum, dampening = options["momentum"], number_of("SGD", "dampening", options["dampening"])
        if options["nesterov"] and not (momentum > 0 and dampening == 0):
            raise ShapeError(
                f"SGD: nesterov is True with momentum {momentum} and dampening {dampening}, "
                "wanted momentum above 0 and dampening 0"
            )

    def age(self, state):
        return "momentum_buffer" in state

    def options(self, group, age):
        return {**group, "rate": group["lr"], "first": bool(group["momentum"]) and not age}

    def recount(self, parameter, count):
        if count:  # the first step has not come yet: the buffer has no value
            self.state[parameter].pop("momentum_buffer", None)


class Adam(Rule):
    """Steps scaled by running averages of the gradient and of its square.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
            u = v, or the largest v so far with amsgrad
            p = p - lr m / (1 - beta1^t) / (sqrt(u / (1 - beta2^t)) + eps), t = 1, 2, ... the step
    betas           (beta1, beta2): what the averages keep of themselves, each at least 0 and below 1
    amsgrad         divide by the largest average of the square, so that steps never grow again
    decoupled_weight_decay  shrink the parameters apart from the gradient, as AdamW does
    Source  Kingma and Ba 2015, "Adam", algorithm 1; Reddi and others 2018, "On the convergence of Adam and
            beyond", algorithm 2
    """

    kernel, hyper = "adam", members(kernels.Adam)
    kept = {"step": True, "exp_avg": True, "exp_avg_sq": True, "max_exp_avg_sq": "amsgrad"}

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        maximize=False,
        decoupled_weight_decay=False,
        **speed,
    ):
        flags = dict(amsgrad=amsgrad, maximize=maximize, decoupled_weight_decay=decoupled_weight_decay)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **flags), speed)

    def check(self, options):
        super().check(options)
        betas = options["betas"]
        if not isinstance(betas, tuple) or len(betas) != 2:
            raise KindError(f"{self.name}: betas is {betas!r}, wanted a pair of numbers")
        for index, beta in enumerate(betas):
            if not 0 <= number_of(self.name, f"betas[{index}]", beta) < 1:
                raise ShapeError(f"{self.name}: betas[{index}] is {beta}, wanted at least 0 and below 1")

    def options(self, group, age):
        beta1, beta2 = group["betas"]
        own = {"beta1": beta1, "beta2": beta2, "decoupled": group["decoupled_weight_decay"]}
        return {**group, "rate": group["lr"], "step": age + 1, **own}


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself and not by way of the gradient.

    Math    p = (1 - lr weight_decay) p, then as Adam without weight decay
    Source  Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        **speed,
    ):
        flags = dict(maximize=maximize, decoupled_weight_decay=True)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **flags, **speed)

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for group in self.param_groups:  # also where Adam without it saved the state
            group["decoupled_weight_decay"] = True


class RMSprop(Rule):
    """Steps scaled by a running average of the squared gradient.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            v = alpha v + (1 - alpha) g^2;  a = alpha a + (1 - alpha) g if centered, else 0
            d = g / (sqrt(v - a^2) + eps);  b = momentum b + d;  p = p - lr b, or p - lr d without momentum
    alpha           what the averages keep of themselves, at least 0
    momentum        what the step keeps of those before; 0 for none
    centered        divide by the root of the variance of the gradient, not of its mean square
    Source  Hinton 2012, lecture 6e; Graves 2013, "Generating sequences with recurrent neural
            networks", equations 38-45
    """

    kernel, hyper = "rmsprop", members(kernels.RMSprop)
    kept = {"step": True, "square_avg": True, "grad_avg": "centered", "momentum_buffer": "momentum"}

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
        **speed,
    ):
        defaults = dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        super().__init__(params, defaults | dict(centered=centered, maximize=maximize), speed)


class Adagrad(Rule):
    """Steps divided by the root of the sum of all squared gradients so far: rare features keep long steps.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            s = s + g^2, s = initial_accumulator_value before the first step
            p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps), t = 1, 2, ... the step
    lr_decay        how fast the rate falls from step to step, beyond what the sum does
    Source  Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and stochastic
            optimization", figure 1 with diagonal matrices, in the form of torch.optim.Adagrad
    """

    kernel, hyper, kept = "adagrad", members(kernels.Adagrad), {"step": True, "sum": True}

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        *,
        maximize=False,
        **speed,
    ):
        defaults = dict(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps, maximize=maximize)
        super().__init__(params, defaults | dict(initial_accumulator_value=initial_accumulator_value), speed)
