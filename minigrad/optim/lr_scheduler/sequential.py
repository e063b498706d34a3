"""Schedules one after the other."""

import bisect
from collections.abc import Iterable

from minigrad_kernels.errors import KindError, ShapeError

from .base import LRScheduler, check_count, check_optimizer, replayed
from .metric import MetricLR

__all__ = ["SequentialLR"]


class SequentialLR(LRScheduler):
    """One schedule after the other, such as a warm-up and then a cosine.

    schedulers  schedules of this optimiser
    milestones  the epochs at which the next one begins, one fewer than schedules, in rising order
    """

    volatile = ("optimizer", "schedulers")

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        name = "SequentialLR"
        for argument, value in (("schedulers", schedulers), ("milestones", milestones)):
            if not isinstance(value, Iterable):
                raise KindError(f"{name}: {argument} is a {type(value).__name__}, wanted a list")
        self.optimizer, self.schedulers = check_optimizer(name, optimizer), list(schedulers)
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
        self.last_epoch = check_count(name, "last_epoch", last_epoch, -1) + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self.rewind()
        self.begin()

    def rewind(self):
        """Take back the step that each schedule took when it was made."""
        for scheduler in self.schedulers:
            if isinstance(scheduler, SequentialLR):
                scheduler.rewind()
            else:
                scheduler.last_epoch -= 1

    def begin(self):
        self._at(0).begin()

    def restart(self):
        self.last_epoch = 0
        self._at(0).restart()

    def _at(self, epoch):
        return self.schedulers[bisect.bisect_right(self.milestones, epoch)]

    @replayed
    def step(self):
        self.last_epoch += 1
        scheduler = self._at(self.last_epoch)
        if self.last_epoch in self.milestones:
            scheduler.restart()
        else:
            scheduler.step()

    def state_dict(self):
        return {
            **super().state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
        }

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
