"""Schedules: the rate of an optimiser from step to step, or from epoch to epoch.

A schedule is a function r(t, first): the rate after t calls of schedule.step(), which come after those of
optimizer.step(), where the first rate is `first`. It is written to param_groups[i]["lr"]. Several schedules may act on
one optimiser; their factors multiply. One after the other, such as a warm-up and a cosine, is SequentialLR. What
watches a metric, once an epoch, is no function of t: ReduceLROnPlateau.

A state says how far a schedule is, not what it is: to resume, make it with the same options and load the states of the
optimiser and of the schedule. It is a dictionary of JSON values.

Errors  TypeError for what is no number, no integer or no Optimizer; ValueError for an option out of range
"""

import bisect
import functools
import math

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.modes import capturing

from ..core.check import integer_of, number_of, one_of
from .optimizer import Optimizer, plain

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


class LRScheduler:
    """A schedule from its function: LRScheduler(optimizer, lambda t, first: first / (1 + t)).

    rate        r(t, first), or a list with one for each group
    base_lrs    the first rates of all groups
    own_lrs     the rates that it set last
    last_epoch  the number of steps so far, t
    """

    kept: tuple[str, ...] = ("last_epoch", "base_lrs", "own_lrs")  # what state_dict holds

    def __init__(self, optimizer, rate):
        self.optimizer, self.rates = optimizer, self.for_groups("rate", rate, optimizer)
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = self.own_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._go(0)

    name = property(lambda self: type(self).__name__)

    def rates_at(self, t):
        """The rates of all groups after t steps, where this schedule acts alone."""
        return [rate(t, first) for rate, first in zip(self.rates, self.base_lrs, strict=True)]

    def step(self):
        """Go on to the next epoch and set its rates."""
        if (recorder := capturing.get()) is not None:
            recorder.note(lambda: self._go(self.last_epoch + 1), self.mark())
        self._go(self.last_epoch + 1)

    def _go(self, t):
        """Set the rates of t; one that somebody else has changed since is multiplied as r(t) has been."""
        rates = self.rates_at(t)
        both = zip(self.get_last_lr(), self.own_lrs, rates, strict=True)
        _set(self.optimizer, [rate if lr == own or not own else lr * (rate / own) for lr, own, rate in both])
        self.last_epoch, self.own_lrs = t, rates

    def mark(self):
        """A function that takes the schedule, and the rates, back to where they are now."""
        before, rates = dict(self.__dict__), self.get_last_lr()

        def back():
            self.__dict__.update(before)
            _set(self.optimizer, rates)

        return back

    def get_last_lr(self):
        """The rates of all groups as they are now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        """How far the schedule is."""
        return {"schedule": self.name, **{name: getattr(self, name) for name in self.kept}}

    def load_state_dict(self, state_dict):
        """Take over a state that state_dict gave; the optimiser's own state holds the rates.

        Errors  ValueError for the state of another schedule; nothing is changed then
        """
        own = self.state_dict()
        fits = isinstance(state_dict, dict) and state_dict.keys() == own.keys() and state_dict["schedule"] == self.name
        if not fits or len(state_dict.get("base_lrs", ())) != len(own.get("base_lrs", ())):
            raise ShapeError(f"{self.name}.load_state_dict: got {state_dict!r:.200}, wanted such as {own!r:.200}")
        self.__dict__.update({name: state_dict[name] for name in self.kept})

    def for_groups(self, argument, value, optimizer):
        """A list with one value for each group, from one value or such a list."""
        if not isinstance(optimizer, Optimizer):
            raise KindError(f"{self.name}: optimizer is a {type(optimizer).__name__}, wanted an Optimizer")
        count = len(optimizer.param_groups)
        values = list(value) if isinstance(value, list | tuple) else [value] * count
        if len(values) != count:
            raise ShapeError(f"{self.name}: {argument} has {len(values)} values, wanted one for each of {count} groups")
        return values


def _set(optimizer, rates):
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


class StepLR(LRScheduler):
    """The rate times gamma after every step_size epochs.

    Math    r(t) = gamma^floor(t / step_size) r(0)
    """

    def __init__(self, optimizer, step_size, gamma=0.1):
        integer_of("StepLR", "step_size", step_size, 1)
        super().__init__(optimizer, lambda t, first: first * gamma ** (t // step_size))


class MultiStepLR(LRScheduler):
    """The rate times gamma at each milestone; at one that is there n times, times gamma^n.

    Math    r(t) = gamma^(how many milestones are at most t) r(0)
    milestones  epochs, in any order
    """

    def __init__(self, optimizer, milestones, gamma=0.1):
        milestones = sorted(integer_of("MultiStepLR", "milestones", epoch, 0) for epoch in milestones)
        super().__init__(optimizer, lambda t, first: first * gamma ** bisect.bisect_right(milestones, t))


class ExponentialLR(LRScheduler):
    """The rate times gamma after every epoch.

    Math    r(t) = gamma^t r(0)
    """

    def __init__(self, optimizer, gamma):
        super().__init__(optimizer, lambda t, first: first * gamma**t)


class ConstantLR(LRScheduler):
    """The rate times factor for total_iters epochs, then as it was.

    Math    r(t) = factor r(0) for t < total_iters, else r(0)
    """

    def __init__(self, optimizer, factor=1 / 3, total_iters=5):
        super().__init__(optimizer, lambda t, first: first * (factor if t < total_iters else 1))


class LinearLR(LRScheduler):
    """A straight line, such as a warm-up, for total_iters epochs; then the rate stays.

    Math    r(t) = (start_factor + (end_factor - start_factor) min(1, t / total_iters)) r(0)
    """

    def __init__(self, optimizer, start_factor=1 / 3, end_factor=1.0, total_iters=5):
        integer_of("LinearLR", "total_iters", total_iters, 1)
        change = end_factor - start_factor
        super().__init__(optimizer, lambda t, first: first * (start_factor + change * min(1, t / total_iters)))


class PolynomialLR(LRScheduler):
    """Down to 0 in total_iters epochs, as a power of the share of them that is left.

    Math    r(t) = (1 - min(1, t / total_iters))^power r(0)
    """

    def __init__(self, optimizer, total_iters=5, power=1.0):
        integer_of("PolynomialLR", "total_iters", total_iters, 1)
        super().__init__(optimizer, lambda t, first: first * (1 - min(1, t / total_iters)) ** power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate down to eta_min in T_max epochs, and back again.

    Math    r(t) = eta_min + (r(0) - eta_min) (1 + cos(pi t / T_max)) / 2
    Source  Loshchilov and Hutter 2017, "SGDR", eq. 5
    """

    def __init__(self, optimizer, T_max, eta_min=0.0):
        integer_of("CosineAnnealingLR", "T_max", T_max, 1)
        super().__init__(optimizer, lambda t, first: _half_cosine(first, eta_min, math.pi * t / T_max))


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to eta_min in T_0 epochs, then again from the first rate in T_mult times as many, and so on.

    Math    r(t) = eta_min + (r(0) - eta_min) (1 + cos(pi u / T)) / 2, u of T epochs of the present cosine being over
    Source  Loshchilov and Hutter 2017, "SGDR", eq. 5
    """

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0):
        integer_of("CosineAnnealingWarmRestarts", "T_0", T_0, 1)
        integer_of("CosineAnnealingWarmRestarts", "T_mult", T_mult, 1)

        def rate(t, first):
            length = T_0
            while t >= length:
                t, length = t - length, length * T_mult
            return _half_cosine(first, eta_min, math.pi * t / length)

        super().__init__(optimizer, rate)


def _half_cosine(begin, end, angle):
    return end + (begin - end) * ((1 + math.cos(angle)) / 2)


class LambdaLR(LRScheduler):
    """The first rate times what a function gives, or a list of functions with one for each group.

    Math    r(t) = lr_lambda(t) r(0)
    """

    def __init__(self, optimizer, lr_lambda):
        functions = self.for_groups("lr_lambda", lr_lambda, optimizer)
        super().__init__(optimizer, [lambda t, first, factor=one: first * plain(factor(t)) for one in functions])


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to the first rate / final_div_factor; step after each batch.

    The momentum stays as it is.

    Math    r(t) = a + (b - a) (1 - cos(pi s)) / 2, or a + (b - a) s, where s of the way from a to b is over
    total_steps         or epochs and steps_per_epoch, whose product it is
    pct_start           the share of steps that go up
    anneal_strategy     'cos' or 'linear'
    cycle_momentum      False: what PyTorch does to the momentum by default is not done here
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
    ):
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            total_steps = epochs * steps_per_epoch
        if cycle_momentum:
            raise ShapeError("OneCycleLR: cycle_momentum is True, wanted False: only the rate is changed here")
        integer_of("OneCycleLR", "total_steps", total_steps, 1)
        one_of("OneCycleLR", "anneal_strategy", anneal_strategy, ("cos", "linear"))
        top = number_of("OneCycleLR", "pct_start", pct_start, 0, 1) * total_steps - 1

        def rate(greatest, t, first):
            if t > total_steps:
                raise StateError(f"OneCycleLR: step {t} of {total_steps}; make it with more total_steps")
            way = (0, top, first, greatest) if t <= top else (top, total_steps - 1, greatest, first / final_div_factor)
            start, stop, begin, end = way
            share = (t - start) / (stop - start) if stop > start else 1.0
            if anneal_strategy == "linear":
                return (end - begin) * share + begin
            return _half_cosine(begin, end, math.pi * share)

        rates = [number_of("OneCycleLR", "max_lr", plain(r), 0) for r in self.for_groups("max_lr", max_lr, optimizer)]
        for group, greatest in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = group["initial_lr"] = greatest / div_factor
        super().__init__(optimizer, [functools.partial(rate, greatest) for greatest in rates])


class SequentialLR(LRScheduler):
    """One schedule after the other, such as a warm-up and then a cosine.

    Math    r(t) = r_k(t - m_k), where m_k is the last milestone that is at most t, and 0 before the first one
    schedulers  schedules of this optimiser that are functions of t
    milestones  the epochs at which the next one begins, one fewer than schedules, in rising order
    """

    def __init__(self, optimizer, schedulers, milestones):
        schedulers, starts = list(schedulers), [0, *milestones]
        if len(schedulers) != len(starts) or starts != sorted(starts):
            raise ShapeError(f"SequentialLR: milestones {starts[1:]}, wanted {len(schedulers) - 1} in rising order")
        for index, scheduler in enumerate(schedulers):
            if getattr(scheduler, "optimizer", None) is not optimizer or isinstance(scheduler, ReduceLROnPlateau):
                kind = type(scheduler).__name__
                raise KindError(f"SequentialLR: schedulers[{index}] is a {kind}, wanted a schedule of this optimiser")
        self.schedulers, self.starts = schedulers, starts
        _set(optimizer, [group["initial_lr"] for group in optimizer.param_groups])
        super().__init__(optimizer, rate=None)

    def rates_at(self, t):
        index = bisect.bisect_right(self.starts, t) - 1
        return self.schedulers[index].rates_at(t - self.starts[index])


class ReduceLROnPlateau(LRScheduler):
    """The rate times factor when a metric has not improved for more than patience epochs.

    mode            'min' or 'max': what an improvement is
    factor          what a cut multiplies the rates by, at least 0 and below 1
    threshold       how much better than the best counts: by this share ('rel') or by this much ('abs'), see
                    threshold_mode
    cooldown        epochs after a reduction that do not count as bad
    min_lr          the least rate, or a list with one for each group
    eps             a smaller change of the rate is not made
    best            the best metric so far
    """

    kept: tuple[str, ...] = ("last_epoch", "best", "num_bad_epochs", "cooldown_counter")

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        self.optimizer, self.min_lrs = optimizer, self.for_groups("min_lr", min_lr, optimizer)
        if not number_of(self.name, "factor", factor, 0) < 1:
            raise ShapeError(f"{self.name}: factor is {factor}, wanted at least 0 and below 1")
        self.mode = one_of(self.name, "mode", mode, ("min", "max"))
        self.threshold_mode = one_of(self.name, "threshold_mode", threshold_mode, ("rel", "abs"))
        self.factor, self.patience, self.threshold, self.cooldown, self.eps = factor, patience, threshold, cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.last_epoch = self.num_bad_epochs = self.cooldown_counter = 0

    def step(self, metrics):
        """Take note of the metric of one more epoch, a number or one in a Tensor."""
        value = float(number_of(self.name, "metrics", plain(metrics)))
        self.last_epoch += 1
        sign = -1 if self.mode == "min" else 1
        relative = self.best * (1 + sign * self.threshold)
        bound = relative if self.threshold_mode == "rel" else self.best + sign * self.threshold
        if sign * value > sign * bound:
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                cut = max(group["lr"] * self.factor, least)
                group["lr"] = cut if group["lr"] - cut > self.eps else group["lr"]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
