"""Schedules that follow a curve.

r(t) is the rate at epoch t where a schedule acts alone, r(0) the first rate.

Errors  TypeError for what is no number, no integer or no Optimizer; ValueError for an option out of range
"""

import bisect
import math
from collections.abc import Iterable

from minigrad_kernels.errors import KindError, ShapeError

from ..values import plain
from .base import LRScheduler, check_count, check_numbers, check_optimizer, per_group

__all__ = ["ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "StepLR"]


class StepLR(LRScheduler):
    """The rate times gamma after every step_size epochs: r(t) = gamma^floor(t / step_size) r(0)."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        check_numbers("StepLR", gamma=gamma)
        self.step_size, self.gamma = check_count("StepLR", "step_size", step_size), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self.rates()
        return [rate * self.gamma for rate in self.rates()]

    def closed_form(self):
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times gamma at each milestone; at one that is there n times, times gamma^n.

    Math    r(t) = gamma^(how many milestones are at most t) r(0)
    milestones  epochs, in any order
    """

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        if not isinstance(milestones, Iterable):
            raise KindError(f"MultiStepLR: milestones is a {type(milestones).__name__}, wanted several epochs")
        self.milestones = sorted(check_count("MultiStepLR", "milestones", epoch, 0) for epoch in milestones)
        check_numbers("MultiStepLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [rate * self.gamma ** self.milestones.count(self.last_epoch) for rate in self.rates()]

    def closed_form(self):
        passed = bisect.bisect_right(self.milestones, self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times gamma after every epoch: r(t) = gamma^t r(0)."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        check_numbers("ExponentialLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [rate * (1 if self.beginning else self.gamma) for rate in self.rates()]

    def closed_form(self):
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times factor for total_iters epochs, then as it was: r(t) = factor r(0) for t < total_iters."""

    def __init__(self, optimizer, factor=1 / 3, total_iters=5, last_epoch=-1):
        check_numbers("ConstantLR", factor=factor)
        if not 0 < factor <= 1:
            raise ShapeError(f"ConstantLR: factor is {factor}, wanted above 0 and at most 1")
        self.factor, self.total_iters = factor, check_count("ConstantLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        change = {0: self.factor, self.total_iters: 1 / self.factor}.get(self.last_epoch, 1)
        return [rate * change for rate in self.rates()]

    def closed_form(self):
        return [base * (self.factor if self.last_epoch < self.total_iters else 1) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A straight line, such as a warm-up, for total_iters epochs; then the rate stays.

    Math    r(t) = (start_factor + (end_factor - start_factor) min(t, total_iters) / total_iters) r(0)
    """

    def __init__(self, optimizer, start_factor=1 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        check_numbers("LinearLR", start_factor=start_factor, end_factor=end_factor)
        if not 0 < start_factor <= 1:
            raise ShapeError(f"LinearLR: start_factor is {start_factor}, wanted above 0 and at most 1")
        if not 0 <= end_factor <= 1:
            raise ShapeError(f"LinearLR: end_factor is {end_factor}, wanted 0 to 1")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = check_count("LinearLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self.rates()]
        if self.beginning or self.last_epoch > self.total_iters:
            return self.rates()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return [rate * (1 + rise / before) for rate in self.rates()]

    def closed_form(self):
        rise = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + rise) for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate down to eta_min in T_max epochs, and back again.

    Math    r(t) = eta_min + (r(0) - eta_min) (1 + cos(pi t / T_max)) / 2
    Source  Loshchilov and Hutter 2017, "SGDR", eq. 5
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        check_numbers("CosineAnnealingLR", eta_min=eta_min)
        self.T_max, self.eta_min = check_count("CosineAnnealingLR", "T_max", T_max), eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.beginning:
            return self.rates()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up from eta_min, where a ratio would be 0 / 0
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * rise for rate, base in zip(self.rates(), self.base_lrs, strict=True)]
        now, before = (1 + math.cos(math.pi * t / self.T_max) for t in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self.rates()]

    def closed_form(self):
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class LambdaLR(LRScheduler):
    """r(t) = f(t) r(0), for a function f or a list with one for each group. The state holds no functions."""

    volatile = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        self.lr_lambdas = per_group("LambdaLR", "lr_lambda", lr_lambda, check_optimizer("LambdaLR", optimizer))
        if not all(map(callable, self.lr_lambdas)):
            raise KindError(f"LambdaLR: lr_lambda is {lr_lambda!r}, wanted a function or a list of them")
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        factors = [plain(factor(self.last_epoch)) for factor in self.lr_lambdas]
        for number in factors:
            check_numbers("LambdaLR", **{f"what lr_lambda({self.last_epoch}) gives": number})
        return [base * number for base, number in zip(self.base_lrs, factors, strict=True)]
