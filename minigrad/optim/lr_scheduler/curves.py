"""Schedules that follow a curve.

r(t) is the rate at epoch t where a schedule acts alone, r(0) the first rate.

Errors  TypeError for what is no number, no integer or no Optimizer; ValueError for an option out of range
"""

import bisect
import math

from minigrad_kernels.errors import KindError, ShapeError, StateError

from ..values import plain
from .base import LRScheduler, check_count, check_numbers, check_share, per_group
from .metric import MetricLR

__all__ = ["ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR"]
__all__ += ["SequentialLR", "StepLR"]


class _Scaled(LRScheduler):
    """A schedule that multiplies all first rates by one number: a subclass defines factor_at, of the epoch."""

    def rates_at(self, epoch):
        factor = self.factor_at(epoch)
        return [base * factor for base in self.base_lrs]


class StepLR(_Scaled):
    """The rate times gamma after every step_size epochs: r(t) = gamma^floor(t / step_size) r(0)."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        check_numbers("StepLR", gamma=gamma)
        self.step_size, self.gamma = check_count("StepLR", "step_size", step_size), gamma
        super().__init__(optimizer, last_epoch)

    def factor_at(self, epoch):
        return self.gamma ** (epoch // self.step_size)


class MultiStepLR(_Scaled):
    """The rate times gamma at each milestone; at one that is there n times, times gamma^n.

    Math    r(t) = gamma^(how many milestones are at most t) r(0)
    milestones  epochs, in any order
    """

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones = sorted(check_count("MultiStepLR", "milestones", epoch, 0) for epoch in milestones)
        check_numbers("MultiStepLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor_at(self, epoch):
        return self.gamma ** bisect.bisect_right(self.milestones, epoch)


class ExponentialLR(_Scaled):
    """The rate times gamma after every epoch: r(t) = gamma^t r(0)."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        check_numbers("ExponentialLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor_at(self, epoch):
        return self.gamma**epoch


class ConstantLR(_Scaled):
    """The rate times factor for total_iters epochs, then as it was: r(t) = factor r(0) for t < total_iters."""

    def __init__(self, optimizer, factor=1 / 3, total_iters=5, last_epoch=-1):
        check_share("ConstantLR", zero=False, factor=factor)
        self.factor, self.total_iters = factor, check_count("ConstantLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, epoch):
        return self.factor if epoch < self.total_iters else 1


class LinearLR(_Scaled):
    """A straight line, such as a warm-up, for total_iters epochs; then the rate stays.

    Math    r(t) = (start_factor + (end_factor - start_factor) min(t, total_iters) / total_iters) r(0)
    """

    def __init__(self, optimizer, start_factor=1 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        check_share("LinearLR", zero=False, start_factor=start_factor)
        check_share("LinearLR", end_factor=end_factor)
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = check_count("LinearLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, epoch):
        share = min(self.total_iters, epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate down to eta_min in T_max epochs, and back again.

    Math    r(t) = eta_min + (r(0) - eta_min) (1 + cos(pi t / T_max)) / 2
    Source  Loshchilov and Hutter 2017, "SGDR", eq. 5
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        check_numbers("CosineAnnealingLR", eta_min=eta_min)
        self.T_max, self.eta_min = check_count("CosineAnnealingLR", "T_max", T_max), eta_min
        super().__init__(optimizer, last_epoch)

    def rates_at(self, epoch):
        share = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class LambdaLR(LRScheduler):
    """r(t) = f(t) r(0), for a function f or a list with one for each group. The state holds no functions."""

    volatile = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        self.lr_lambdas = per_group("LambdaLR", "lr_lambda", lr_lambda, optimizer)
        if not all(map(callable, self.lr_lambdas)):
            raise KindError(f"LambdaLR: lr_lambda is {lr_lambda!r}, wanted a function or a list of them")
        super().__init__(optimizer, last_epoch)

    def rates_at(self, epoch):
        factors = [plain(factor(epoch)) for factor in self.lr_lambdas]
        for number in factors:
            check_numbers("LambdaLR", **{f"what lr_lambda({epoch}) gives": number})
        return [base * number for base, number in zip(self.base_lrs, factors, strict=True)]


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to the first rate / final_div_factor; step after each batch.

    total_steps         or epochs and steps_per_epoch, whose product it is
    pct_start           the share of steps that go up
    anneal_strategy     'cos' or 'linear'
    cycle_momentum      False: the momentum is left alone
    three_phase         come down to the first rate as fast as up, and only then to the last one
    Errors  RuntimeError for more steps than total_steps
    Source  Smith and Topin 2018, "Super-convergence"
    """

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=False,
        *,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        name = "OneCycleLR"
        if cycle_momentum:
            raise ShapeError(f"{name}: cycle_momentum is {cycle_momentum}, wanted False: the momentum stays")
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ShapeError(f"{name}: total_steps is None, wanted it, or both epochs and steps_per_epoch")
            total_steps = check_count(name, "epochs", epochs) * check_count(name, "steps_per_epoch", steps_per_epoch)
        self.total_steps = check_count(name, "total_steps", total_steps)
        for argument, value in (("div_factor", div_factor), ("final_div_factor", final_div_factor)):
            check_numbers(name, **{argument: value})
            if not value:
                raise ShapeError(f"{name}: {argument} is 0, wanted another number")
        check_share(name, pct_start=pct_start)
        if anneal_strategy not in ("cos", "linear"):
            raise ShapeError(f"{name}: anneal_strategy is {anneal_strategy!r}, wanted 'cos' or 'linear'")
        self.pct_start, self.anneal_strategy, self.three_phase = float(pct_start), anneal_strategy, bool(three_phase)
        greatest = per_group(name, "max_lr", max_lr, optimizer)
        for rate in greatest:
            check_numbers(name, max_lr=rate)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, greatest, strict=True):
                group["lr"] = group["initial_lr"] = rate / div_factor
                group["max_lr"], group["min_lr"] = rate, rate / div_factor / final_div_factor
        super().__init__(optimizer, last_epoch)

    def rates_at(self, epoch):
        if epoch > self.total_steps:
            raise StateError(f"OneCycleLR: step {epoch} of {self.total_steps}; make it with more total_steps")
        ends, rates = [0.0, self.pct_start * self.total_steps - 1], ["initial_lr", "max_lr"]
        if self.three_phase:
            ends, rates = [*ends, 2 * self.pct_start * self.total_steps - 2], [*rates, "initial_lr"]
        ends, rates = [*ends, self.total_steps - 1], [*rates, "min_lr"]
        phase = sum(epoch > end for end in ends[1:-1])
        length = ends[phase + 1] - ends[phase]
        share = (epoch - ends[phase]) / length if length > 0 else 1.0
        pairs = [(group[rates[phase]], group[rates[phase + 1]]) for group in self.optimizer.param_groups]
        if self.anneal_strategy == "linear":
            return [(end - start) * share + start for start, end in pairs]
        return [end + (start - end) / 2 * (math.cos(math.pi * share) + 1) for start, end in pairs]


class SequentialLR(LRScheduler):
    """One schedule after the other, such as a warm-up and then a cosine.

    schedulers  schedules of this optimiser
    milestones  the epochs at which the next one begins, one fewer than schedules, in rising order
    """

    volatile = ("optimizer", "schedulers")

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        name = "SequentialLR"
        self.schedulers = list(schedulers)
        self.milestones = [check_count(name, "milestones", milestone, 0) for milestone in milestones]
        if len(self.schedulers) != len(self.milestones) + 1 or self.milestones != sorted(self.milestones):
            raise ShapeError(
                f"{name}: {len(self.schedulers)} schedulers and milestones {self.milestones}, "
                "wanted one milestone fewer than schedulers, in rising order"
            )
        for index, scheduler in enumerate(self.schedulers):
            if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, MetricLR):
                kind = type(scheduler).__name__
                raise KindError(f"{name}: schedulers[{index}] is a {kind}, wanted a schedule without a metric")
            if scheduler.optimizer is not optimizer:
                raise ShapeError(f"{name}: schedulers[{index}] belongs to another optimiser")
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def rates_at(self, epoch):
        index = bisect.bisect_right(self.milestones, epoch)
        return self.schedulers[index].rates_at(epoch - (self.milestones[index - 1] if index else 0))

    def state_dict(self):
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        return {**super().state_dict(), "schedulers": states}

    def check_state(self, state_dict):
        super().check_state(state_dict)
        states = state_dict["schedulers"]
        if not isinstance(states, list) or len(states) != len(self.schedulers):
            raise ShapeError(f"SequentialLR.load_state_dict: wanted the states of {len(self.schedulers)} schedulers")
        for scheduler, state in zip(self.schedulers, states, strict=True):
            scheduler.check_state(state)

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
