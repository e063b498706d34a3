"""MetricLR: what schedules that watch a metric share."""

from minigrad_kernels.errors import ShapeError

from ..values import plain
from .base import LRScheduler, check_count, check_numbers, check_optimizer, per_group

__all__ = ["MetricLR"]


class MetricLR(LRScheduler):
    """Base of the schedules whose step takes the metric of one more epoch: a subclass defines step(metrics).

    factor      what a cut multiplies the rates by, at least 0 and below 1
    patience    how many epochs are let pass before
    threshold   how much better than the best counts
    min_lr      the least rate, or a list with one for each group
    best        the best metric so far
    """

    def __init__(self, optimizer, factor, patience, threshold, min_lr):
        name = type(self).__name__
        self.optimizer = check_optimizer(name, optimizer)
        check_numbers(name, factor=factor, threshold=threshold)
        if not 0 <= factor < 1:
            raise ShapeError(f"{name}: factor is {factor}, wanted at least 0 and below 1")
        self.patience = check_count(name, "patience", patience, 0)
        for least in per_group(name, "min_lr", min_lr, optimizer):
            check_numbers(name, min_lr=least)
        self.factor, self.threshold, self.min_lr = factor, threshold, min_lr
        self.last_epoch = self.num_bad_epochs = 0

    def step(self, metrics):
        """Take note of the metric of one more epoch, a number or a Tensor with one element."""
        raise NotImplementedError(f"{type(self).__name__}: step is not defined")

    def read(self, metrics):
        """The metric as a Python float. Errors: TypeError for what is no number, ValueError for one out of range."""
        number = plain(metrics)
        check_numbers(type(self).__name__, finite=False, metrics=number)
        try:
            return float(number)
        except OverflowError as error:
            raise ShapeError(f"{type(self).__name__}: metrics is an integer that no float can hold") from error

    def cut(self, eps=0):
        """Multiply the rates by factor, but not below min_lr; a change of at most eps is not made.

        Errors  ValueError if min_lr is a list and groups were added since
        """
        least = per_group(type(self).__name__, "min_lr", self.min_lr, self.optimizer)
        for group, bound in zip(self.optimizer.param_groups, least, strict=True):
            rate = max(group["lr"] * self.factor, bound)
            if group["lr"] - rate > eps:
                group["lr"] = rate
