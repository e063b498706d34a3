"""Adagrad."""

from minigrad_kernels import optimizer as kernels

from .optimizer import Optimizer

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients so far: rare features keep long steps.

    Math    g = g + weight_decay p; maximize turns the sign of g first
            s = s + g^2, s = initial_accumulator_value before the first step
            p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps), t = 1, 2, ... the step
    lr              the first rate, at least 0
    lr_decay        how fast the rate falls from step to step, beyond what the sum does
    weight_decay    what shrinks the parameters: the gradient of weight_decay |p|^2 / 2 is added to that of the loss
    initial_accumulator_value  the sum that all begin with, when the optimiser is made; as in PyTorch, one for all
                    groups, even if a group states its own
    eps             keeps the denominator from 0
    maximize        climb instead
    foreach, fused  PyTorch's ways to be faster, accepted without effect
    Source  Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and stochastic
            optimization", figure 1 with diagonal matrices, in the form of torch.optim.Adagrad
    """

    kept = {"step": True, "sum": True}

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
        foreach=None,
        fused=None,
    ):
        defaults = dict(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps, maximize=maximize)
        super().__init__(params, {**defaults, "initial_accumulator_value": initial_accumulator_value})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {"step": 0}
            self.sums(group["params"])

    def check(self, options):
        for name in ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"):
            self.check_number(options, name)

    def age(self, state):
        return state.get("step", 0)

    def sums(self, parameters):
        """The sums in the state of the parameters, made where there were none."""
        return self.arrays("sum", parameters, self.defaults["initial_accumulator_value"])

    def numbers(self, group, age):
        return self.hyper(kernels.Adagrad, group, rate=group["lr"], step=age + 1)

    def update(self, group, age, parameters, plan, **numbers):
        hyper = self.numbers(group, age)
        kernels.adagrad(*self.written(parameters), self.sums(parameters), hyper, plan, **numbers)
        for parameter in parameters:
            self.state[parameter]["step"] = age + 1
