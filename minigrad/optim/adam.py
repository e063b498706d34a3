"""Adam and AdamW."""

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError

from .optimizer import Optimizer

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Steps scaled by running averages of the gradient and of its square.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
            u = v, or the largest v so far with amsgrad
            p = p - lr m / (1 - beta1^t) / (sqrt(u / (1 - beta2^t)) + eps), t = 1, 2, ... the step
    lr              the rate, at least 0
    betas           (beta1, beta2): what the averages keep of themselves, each at least 0 and below 1
    eps             keeps the denominator from 0
    weight_decay    what shrinks the parameters: the gradient of weight_decay |p|^2 / 2 is added to that of the loss
    amsgrad         divide by the largest average of the square, so that steps never grow again
    maximize        climb instead
    foreach, fused  PyTorch's ways to be faster, accepted without effect
    decoupled_weight_decay  shrink the parameters apart from the gradient, as AdamW does
    Source  Kingma and Ba 2015, "Adam", algorithm 1; Reddi and others 2018, "On the convergence of Adam and
            beyond", algorithm 2
    """

    kept = {"step": True, "exp_avg": True, "exp_avg_sq": True, "max_exp_avg_sq": False}

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
        foreach=None,
        fused=None,
        decoupled_weight_decay=False,
    ):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
        flags = dict(maximize=maximize, decoupled_weight_decay=decoupled_weight_decay)
        super().__init__(params, {**defaults, **flags})

    def check(self, options):
        for name in ("lr", "eps", "weight_decay"):
            self.check_number(options, name)
        betas = options["betas"]
        if not isinstance(betas, tuple) or len(betas) != 2:
            raise KindError(f"{self.name}: betas is {betas!r}, wanted a pair of numbers")
        for index, beta in enumerate(betas):
            self.check_value(f"betas[{index}]", beta, 0.0, 1.0)

    def age(self, state):
        return state.get("step", 0)

    def numbers(self, group, age):
        beta1, beta2 = group["betas"]
        others = dict(beta1=beta1, beta2=beta2, step=age + 1, decoupled=group["decoupled_weight_decay"])
        return self.hyper(kernels.Adam, group, rate=group["lr"], **others)

    def update(self, group, age, parameters, plan, **numbers):
        hyper = self.numbers(group, age)
        averages = [self.arrays(name, parameters) for name in ("exp_avg", "exp_avg_sq")]
        greatest = self.arrays("max_exp_avg_sq", parameters) if group["amsgrad"] else None
        kernels.adam(*self.written(parameters), *averages, greatest, hyper, plan, **numbers)
        for parameter in parameters:
            self.state[parameter]["step"] = age + 1


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself and not by way of the gradient.

    Math    p = (1 - lr weight_decay) p, then as Adam without weight decay
    weight_decay    what shrinks the parameters; the other options are those of Adam
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
        foreach=None,
        fused=None,
    ):
        flags = dict(maximize=maximize, decoupled_weight_decay=True)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **flags)

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for group in self.param_groups:  # also where Adam without it saved the state
            group["decoupled_weight_decay"] = True
