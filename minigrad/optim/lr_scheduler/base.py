"""LRScheduler: what all schedules share."""

import copy
import functools
import math
import sys
from numbers import Real

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.capture import capturing

from ..optimizer import Optimizer
from ..values import plain

LARGEST, MOST_STEPS = sys.float_info.max, 1 << 53

__all__ = ["LRScheduler", "replayed", "check_count", "check_numbers", "check_optimizer", "per_group"]


def replayed(step):
    """A method that goes on by one step, which the replays of a graph that it is captured in do too."""

    @functools.wraps(step)
    def taken(self):
        if (recorder := capturing.get()) is None:
            return step(self)
        undo = self.mark()
        token = capturing.set(None)  # of what it steps itself, nothing is noted
        try:
            step(self)
        finally:
            capturing.reset(token)
        recorder.note(lambda: step(self), undo)

    return taken


class LRScheduler:
    """Base of the schedules: a subclass defines get_lr, the rates at last_epoch from those at the epoch before.

    last_epoch  the number of steps so far; -1 begins, any other number goes on with an optimiser whose groups
                still hold "initial_lr"
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
        self.last_epoch = last_epoch
        self.begin()

    def begin(self):
        """The step that making a schedule takes: it sets the rates of the first epoch."""
        self.beginning = True
        self.step()
        self.beginning = False

    def get_lr(self):
        """The rates of all groups at last_epoch."""
        raise NotImplementedError(f"{type(self).__name__}: get_lr is not defined")

    def closed_form(self):
        """The rates at last_epoch from the first ones alone."""
        return self.get_lr()

    @replayed
    def step(self):
        """Go on to the next epoch and set its rates."""
        self.last_epoch += 1
        try:
            rates = self.get_lr()
        except BaseException:
            self.last_epoch -= 1
            raise
        self._set(rates)

    def mark(self):
        """A function that takes the schedule, and the rates, back to where they are now."""
        state, rates = copy.deepcopy(self.state_dict()), self.rates()

        def back():
            self.load_state_dict(state)
            self._set(rates)

        return back

    def restart(self):
        """Set the rates of epoch 0: another schedule has come to its end."""
        self.last_epoch = 0
        self._set(self.closed_form())

    def _set(self, rates):
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def rates(self):
        """The present rates of the optimiser. Errors: TypeError if one was set to what is no number"""
        for group in self.optimizer.param_groups:
            check_numbers(type(self).__name__, lr=plain(group["lr"]))
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self):
        """The rates of all groups as they are now."""
        return self.rates()

    def state_dict(self):
        """The state as JSON values."""
        return {name: value for name, value in self.__dict__.items() if name not in self.volatile}

    def check_state(self, state_dict):
        """Refuse the state of another schedule."""
        own = self.state_dict()
        if not isinstance(state_dict, dict) or state_dict.keys() != own.keys():
            names = sorted(state_dict) if isinstance(state_dict, dict) else type(state_dict).__name__
            raise ShapeError(f"{type(self).__name__}.load_state_dict: got {names}, wanted {sorted(own)}")
        for name, value in own.items():
            given, wanted = state_dict[name], _wanted(name, value)
            if wanted and not _KINDS[wanted](given):
                raise KindError(f"{type(self).__name__}.load_state_dict: {name} is {given!r:.60}, wanted {wanted}")
        if len(state_dict.get("base_lrs", ())) != (groups := len(own.get("base_lrs", ()))):
            raise ShapeError(f"{type(self).__name__}.load_state_dict: base_lrs are not of {groups} groups")

    def load_state_dict(self, state_dict):
        """Take over a state that state_dict gave; the optimiser's own state holds the rates.

        Errors  ValueError for the state of another schedule; nothing is changed then
        """
        self.check_state(state_dict)
        self.__dict__.update({name: value for name, value in state_dict.items() if name not in self.volatile})


def _wanted(name, value):
    """What kind of value, one of _KINDS, takes the place of this one in a state; None leaves it to the subclass."""
    if isinstance(value, bool) or isinstance(value, str):
        return "True or False" if isinstance(value, bool) else "a text"
    if name in ("last_epoch", "best"):
        return "an integer" if name == "last_epoch" else "a number or an infinite one"
    if isinstance(value, int | float):
        return "a number"
    return "a list of numbers" if isinstance(value, list) and all(map(_is_number, value)) else None


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


_KINDS = {
    "True or False": lambda value: isinstance(value, bool),
    "a text": lambda value: isinstance(value, str),
    "an integer": lambda value: type(value) is int and abs(value) <= MOST_STEPS,
    "a number": _is_number,
    "a number or an infinite one": lambda value: _is_number(value) or value in (math.inf, -math.inf),
    "a list of numbers": lambda value: isinstance(value, list) and all(map(_is_number, value)),
}


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


def per_group(name, argument, value, optimizer):
    """A list with one value for each group, from one value or such a list."""
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ShapeError(f"{name}: {argument} has {len(values)} values, wanted one for each of the {count} groups")
    return values
