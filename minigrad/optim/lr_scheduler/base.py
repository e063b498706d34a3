"""LRScheduler: what all schedules share, and the checks of their options."""

import math
import sys
from numbers import Real

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.capture import capturing

from ..optimizer import Optimizer
from ..values import plain

__all__ = ["LRScheduler", "check_count", "check_numbers", "check_optimizer", "check_share", "per_group"]


class LRScheduler:
    """Base of the schedules: a subclass defines rates_at, the rates of all groups as a function of the epoch.

    last_epoch  the number of steps so far; -1 begins, any other number goes on with an optimiser whose groups
                still hold "initial_lr"

    A step moves each rate from rates_at(t) to rates_at(t + 1). A rate that somebody else has changed since, such as a
    second schedule, is multiplied by the quotient of the two.
    """

    volatile: tuple[str, ...] = ("optimizer",)  # what state_dict leaves out

    def __init__(self, optimizer, last_epoch=-1):
        name = type(self).__name__
        self.optimizer = check_optimizer(name, optimizer)
        check_count(name, "last_epoch", last_epoch, -1)
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise StateError(
                    f"{name}: last_epoch is {last_epoch}, but param_groups[{index}] has no 'initial_lr'; "
                    "load the state of the optimiser first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.own_lrs = list(self.base_lrs) if last_epoch == -1 else self.get_last_lr()  # the rates it set last
        self._go(last_epoch + 1)

    def rates_at(self, epoch):
        """The rates of all groups at an epoch, where this schedule acts alone: a function of epoch and base_lrs."""
        raise NotImplementedError(f"{type(self).__name__}: rates_at is not defined")

    def step(self):
        """Go on to the next epoch and set its rates."""
        if (recorder := capturing.get()) is not None:
            recorder.note(lambda: self._go(self.last_epoch + 1), self.mark())
        self._go(self.last_epoch + 1)

    def _go(self, epoch):
        rates, now = self.rates_at(epoch), self.get_last_lr()
        for group, lr, own, rate in zip(self.optimizer.param_groups, now, self.own_lrs, rates, strict=True):
            group["lr"] = rate if lr == own or not own else lr * (rate / own)
        self.last_epoch, self.own_lrs = epoch, rates

    def mark(self):
        """A function that takes the schedule, and the rates, back to where they are now."""
        before, rates = dict(self.__dict__), self.get_last_lr()

        def back():
            self.__dict__.update(before)
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

        return back

    def get_last_lr(self):
        """The rates of all groups as they are now. Errors: TypeError if one was set to what is no number"""
        for group in self.optimizer.param_groups:
            check_numbers(type(self).__name__, lr=plain(group["lr"]))
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        """The state as JSON values."""
        return {name: value for name, value in self.__dict__.items() if name not in self.volatile}

    def check_state(self, state_dict):
        """Refuse the state of another schedule."""
        own, op = self.state_dict(), f"{type(self).__name__}.load_state_dict"
        if not isinstance(state_dict, dict) or state_dict.keys() != own.keys():
            names = sorted(state_dict) if isinstance(state_dict, dict) else type(state_dict).__name__
            raise ShapeError(f"{op}: got {names}, wanted {sorted(own)}")
        for name, value in own.items():
            if (wanted := _unlike(value, state_dict[name])) is not None:
                raise KindError(f"{op}: {name} is {state_dict[name]!r:.60}, wanted {wanted}")
        if len(state_dict.get("base_lrs", ())) != (groups := len(own.get("base_lrs", ()))):
            raise ShapeError(f"{op}: base_lrs are not of {groups} groups")
        if type(state_dict["last_epoch"]) is not int or abs(state_dict["last_epoch"]) > 1 << 53:
            raise KindError(f"{op}: last_epoch is {state_dict['last_epoch']!r}, wanted an integer")

    def load_state_dict(self, state_dict):
        """Take over a state that state_dict gave; the optimiser's own state holds the rates.

        Errors  ValueError for the state of another schedule; nothing is changed then
        """
        self.check_state(state_dict)
        self.__dict__.update({name: value for name, value in state_dict.items() if name not in self.volatile})


def _unlike(value, given):
    """What the given value of a state lacks to take the place of another, in words; None if it can."""
    if isinstance(value, bool | str):
        return None if type(given) is type(value) else f"a {type(value).__name__}"
    if isinstance(value, int | float):
        return None if _is_number(given) else "a number"
    if isinstance(value, list) and all(map(_is_number, value)):
        return None if isinstance(given, list) and all(map(_is_number, given)) else "a list of numbers"
    return None


def _is_number(value):
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max or value in (math.inf, -math.inf)


# ---- checks of options -----------------------------------------------------------------------------------------------


def check_optimizer(name, optimizer):
    """The optimiser itself."""
    if not isinstance(optimizer, Optimizer):
        raise KindError(f"{name}: optimizer is a {type(optimizer).__name__}, wanted an Optimizer")
    return optimizer


def check_count(name, argument, value, least=1):
    """The integer itself."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise KindError(f"{name}: {argument} is {value!r}, wanted an integer")
    if value < least:
        raise ShapeError(f"{name}: {argument} is {value}, wanted at least {least}")
    return value


def check_numbers(name, finite=True, **values):
    """Refuse what is no number, or not finite where it must be."""
    for argument, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise KindError(f"{name}: {argument} is {value!r}, wanted a number")
        if finite and not math.isfinite(value):
            raise ShapeError(f"{name}: {argument} is {value}, wanted a finite number")


def check_share(name, zero=True, **values):
    """Refuse what is no number from 0 to 1; zero: whether 0 will do."""
    check_numbers(name, **values)
    for argument, value in values.items():
        if not 0 <= value <= 1 or not (value or zero):
            raise ShapeError(f"{name}: {argument} is {value}, wanted {'0 to 1' if zero else 'above 0 and at most 1'}")


def per_group(name, argument, value, optimizer):
    """A list with one value for each group, from one value or such a list."""
    count = len(check_optimizer(name, optimizer).param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ShapeError(f"{name}: {argument} has {len(values)} values, wanted one for each of the {count} groups")
    return values
