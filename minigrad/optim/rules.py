"""Update rules: SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta and Muon, one launch for all parameters of a group.

g is the gradient, p the parameter, t = 1, 2, ... the step. These options mean the same everywhere:
lr              the rate, at least 0
eps             keeps the denominator from 0
weight_decay    what shrinks the parameters: the gradient of weight_decay |p|^2 / 2 is added to that of the loss
maximize        climb instead: the sign of g is turned first; False
foreach, fused  PyTorch's ways to be faster, accepted without effect
The last three are given by name; every rule but Muon takes them, and no other option besides its own.
"""

import math

import numpy as np

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError

from .. import device, ops
from ..core.check import flag_of, integer_of, number_of, one_of
from ..core.modes import no_grad
from ..core.tape import write_all
from ..core.tensor import Tensor
from .optimizer import Optimizer, plain

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Muon", "RMSprop"]

OWN = {"adjust_lr_fn", "betas", "dampening", "ns_coefficients"}  # options that a rule checks itself
FLAGS = {"amsgrad", "centered", "maximize", "nesterov"}
NUMBERS = frozenset({float, int, bool})
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the fifth degree: the steepest at 0 that keeps singular values near 1


def members(enumeration):
    """The members of an enumeration in minigrad_kernels.optimizer as options are called."""
    return [name.lower().replace("rate", "lr") for name in enumeration.__members__]


class Rule(Optimizer):
    """Base of the rules that a kernel computes.

    kernel  its name in minigrad_kernels.optimizer
    hyper   the names of its numbers, in its order
    kept    as in Optimizer, arrays in the order of the kernel
    """

    kernel = ""
    hyper: tuple | list = ()

    def __init__(self, params, own, *, maximize=False, foreach=None, fused=None, **unknown):
        if unknown:
            raise KindError(f"{self.name}: got the options {sorted(unknown)}, wanted some of {sorted(own)}")
        super().__init__(params, {**own, "maximize": maximize})

    def check(self, options):
        for name in self.defaults.keys() - OWN:
            if name in FLAGS:
                flag_of(self.name, name, options[name])
            else:
                number_of(self.name, name, options[name], 0)

    def options(self, group, age):
        """The numbers of the kernel by their names, and others; what is missing is 0."""
        return {**group, "step": age + 1}

    def numbers(self, group, age):
        options = self.options(group, age)
        numbers = [options.get(name, 0) for name in self.hyper]
        if not NUMBERS.issuperset(map(type, numbers)):
            numbers = [number_of(self.name, *named) for named in zip(self.hyper, map(plain, numbers), strict=True)]
        return np.fromiter(numbers, np.float64, len(numbers))  # in half the time of np.array

    def update(self, group, age, parameters, plan, **numbers):
        hyper, states = self.numbers(group, age), list(map(self.state.__getitem__, parameters))
        arrays = [
            self.arrays(name, group, parameters, states) if option is True or group[option] else None
            for name, option in self.kept.items()
            if name != "step"
        ]
        gradients = [parameter.grad.array for parameter in parameters]  # where they lie otherwise the plan lays them
        self.launch(group, write_all(parameters), gradients, arrays, hyper, plan, **numbers)
        for state in states if "step" in self.kept else ():
            state["step"] = age + 1

    def launch(self, group, arrays, gradients, kept, hyper, plan, **numbers):
        """Change arrays of parameters, and those that are kept of them, by their gradients."""
        getattr(kernels, self.kernel)(arrays, gradients, *kept, hyper, plan, **numbers)

    @staticmethod
    def arrays(name, group, parameters, states):
        """The arrays of this name in the states of the parameters, made where there were none."""
        for parameter, state in zip(parameters, states, strict=True):
            if name not in state:
                like, start = parameter.array, group.get("initial_accumulator_value", 0)
                state[name] = device.full(like.shape, start, like.dtype, device.order_of(like), like)
        return [state[name] for state in states]


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

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, **common):
        own = dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)
        super().__init__(params, own, **common)

    def check(self, options):
        super().check(options)
        momentum, dampening = options["momentum"], number_of("SGD", "dampening", options["dampening"])
        if options["nesterov"] and not (momentum > 0 and dampening == 0):
            raise ShapeError(f"SGD: momentum is {momentum}, dampening {dampening}; nesterov wants above 0 and 0")

    def age(self, state):
        return "momentum_buffer" in state

    def options(self, group, age):
        return {**group, "first": bool(group["momentum"]) and not age}

    def recount(self, states, count):
        for state in states if count else ():  # the first step has not come yet: the buffer has no value
            state.pop("momentum_buffer", None)


class Adam(Rule):
    """Steps scaled by running averages of the gradient and of its square.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
            u = v, or the largest v so far with amsgrad
            p = p - lr m / (1 - beta1^t) / (sqrt(u / (1 - beta2^t)) + eps), t = 1, 2, ... the step
    betas           (beta1, beta2): what the averages keep of themselves, each at least 0 and below 1
    amsgrad         divide by the largest average of the square, so that steps never grow again
    Source  Kingma and Ba 2015, "Adam", algorithm 1; Reddi and others 2018, "On the convergence of Adam and
            beyond", algorithm 2
    """

    kernel, hyper, decoupled = "adam", members(kernels.Adam), False
    kept = {"step": True, "exp_avg": True, "exp_avg_sq": True, "max_exp_avg_sq": "amsgrad"}

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, **common):
        own = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
        super().__init__(params, own, **common)

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
        return {**group, "step": age + 1, "beta1": beta1, "beta2": beta2, "decoupled": self.decoupled}


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself and not by way of the gradient.

    Math    p = (1 - lr weight_decay) p, then as Adam without weight decay
    Source  Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2
    """

    decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, **common):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **common)


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

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, **common):
        own = dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered)
        super().__init__(params, own, **common)


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

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, **common):
        own = dict(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps)
        super().__init__(params, own | dict(initial_accumulator_value=initial_accumulator_value), **common)


class Composed(Rule):
    """Base of rules whose steps are composed of ops, a parameter after another; one launch then takes all of them."""

    hyper = members(kernels.SGD)

    def direction(self, group, p, g, *state):
        """(what the parameter goes along, of its shape, and the new values of its state)."""
        raise NotImplementedError

    def options(self, group, age):
        return {"lr": group["lr"], "weight_decay": group["weight_decay"]}

    @no_grad()
    def launch(self, group, arrays, gradients, kept, hyper, plan, scale=None, found_inf=None):
        steps = []
        for p, gradient, *state in zip(arrays, gradients, *kept, strict=True):
            g = Tensor(gradient)
            g = g if scale is None else g * Tensor(scale).to(g.dtype)
            along, *moved = self.direction(group, Tensor(p), g, *map(Tensor, state))
            for buffer, value in zip(state, moved, strict=True):
                value = value if found_inf is None else ops.where(Tensor(found_inf) == 0, value, Tensor(buffer))
                device.assign(buffer, value.array)
            steps.append(along.to(g.dtype).array)
        kernels.sgd(arrays, steps, None, hyper, plan, found_inf=found_inf)  # p - lr (step + weight_decay p)


class Adadelta(Composed):
    """Steps as long as those before, over gradients as large as those before: it needs no rate.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            v = rho v + (1 - rho) g^2;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = rho u + (1 - rho) d^2
            p = p - lr d
    rho             what the averages keep of themselves
    Source  Zeiler 2012, "ADADELTA: an adaptive learning rate method", algorithm 1
    """

    kept = {"step": True, "square_avg": True, "acc_delta": True}
    fixed = ("rho", "eps", "weight_decay", "maximize")

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, **common):
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay), **common)

    def options(self, group, age):
        return {"lr": group["lr"]}  # direction has the decay

    def direction(self, group, p, g, v, u):
        rho, eps = group["rho"], group["eps"]
        g = (-g if group["maximize"] else g) + group["weight_decay"] * p
        v = rho * v + (1 - rho) * g * g
        d = (u + eps).sqrt() / (v + eps).sqrt() * g
        return d, v, rho * u + (1 - rho) * d * d


class Muon(Composed):
    """Steps whose singular values are all about 1, so that no direction of a layer is learnt faster than the others.

    Math    b = momentum b + (1 - momentum) g;  d = (1 - momentum) g + momentum b with nesterov, else b
            o = orthogonalized(d), a filter O, I, H, W seen as a matrix O, I H W
            p = p - lr weight_decay p - lr sqrt(max(1, rows / columns)) o
    params          matrices and filters of the layers within. What has fewer dimensions is refused: train it, the first
                    layer of embeddings and the last layer by another optimiser, AdamW say, side by side
    momentum        what the step keeps of those before
    nesterov        look ahead: the gradient enters the step at once and by way of the momentum
    ns_coefficients, eps, ns_steps  of orthogonalized
    adjust_lr_fn    'match_rms_adamw': p = p - lr weight_decay p - 0.2 lr sqrt(max(rows, columns)) o, whose steps are as
                    large as those of AdamW; None or 'original': as above
    Source  Jordan and others 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu and others 2025,
            "Muon is scalable for LLM training", for adjust_lr_fn; names and defaults of torch.optim.Muon. That one
            computes o in bfloat16, this one in the type of the parameters, at least float32
    """

    kept = {"momentum_buffer": True}
    fixed = ("momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn")

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=COEFFICIENTS,
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        defaults = dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps)
        how = dict(ns_coefficients=ns_coefficients, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn)
        Optimizer.__init__(self, params, defaults | how)  # without the options that the other rules share

    def check(self, options):
        super().check(options)
        integer_of("Muon", "ns_steps", options["ns_steps"], 0)
        one_of("Muon", "adjust_lr_fn", options["adjust_lr_fn"] or "original", ("original", "match_rms_adamw"))

    def check_parameter(self, where, parameter):
        super().check_parameter(where, parameter)
        if parameter.ndim < 2:
            raise ShapeError(f"{where} has shape {parameter.shape}, wanted a matrix or filter; give others to AdamW")

    def direction(self, group, p, g, b):
        momentum = group["momentum"]
        moved = b + (1 - momentum) * (g - b)
        d = (g + momentum * (moved - g) if group["nesterov"] else moved).reshape(len(g), -1)
        rows, columns = d.shape
        factor = math.sqrt(max(1, rows / columns))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * math.sqrt(max(rows, columns))
        o = orthogonalized(d, group["ns_coefficients"], group["eps"], group["ns_steps"])
        return (factor * o).reshape(g.shape), moved


def orthogonalized(matrix, coefficients=COEFFICIENTS, eps=1e-7, steps=5):
    """The matrix U V^T nearly, of matrix = U S V^T: singular values are brought near 1, to about 0.7 to 1.2.

    Math    x = matrix / max(|matrix|, eps), transposed if it has more rows than columns
            steps times: a, b, c = coefficients;  A = x x^T;  x = a x + (b A + c A A) x
    Source  Jordan and others 2024: the iteration of Newton and Schulz, in the fifth degree
    """
    a, b, c = coefficients
    rows, columns = matrix.shape
    x = matrix.float() if device.is_half(matrix.dtype) else matrix
    x = x.T if rows > columns else x
    x = x / ops.sqrt((x * x).sum()).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if rows > columns else x
