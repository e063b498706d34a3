"""The schedule that waits for a metric to improve."""

import math

from minigrad_kernels.errors import ShapeError

from .base import check_count, check_numbers
from .metric import MetricLR

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(MetricLR):
    """The rate times factor when a metric has not improved for more than patience epochs.

    mode            'min' or 'max': what an improvement is
    threshold       how much better counts: by this share ('rel') or by this much ('abs'), see threshold_mode
    cooldown        epochs after a reduction that do not count as bad
    min_lr          the least rate, or a list with one for each group
    eps             a smaller change of the rate is not made
    Errors  TypeError for a metric that is no number; ValueError and TypeError for options out of range
    """

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
        name = "ReduceLROnPlateau"
        super().__init__(optimizer, factor, patience, threshold, min_lr)
        for argument, value, choices in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            if value not in choices:
                raise ShapeError(f"{name}: {argument} is {value!r}, wanted {' or '.join(map(repr, choices))}")
        check_numbers(name, eps=eps)
        self.mode, self.threshold_mode, self.eps = mode, threshold_mode, eps
        self.cooldown = check_count(name, "cooldown", cooldown, 0)
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0

    def step(self, metrics):
        """Take note of the metric of one more epoch, a number or a Tensor with one element."""
        value = self.read(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self.cut(self.eps)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, value):
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "abs":
            return sign * value > sign * self.best + self.threshold
        return sign * value > sign * self.best * (1 + sign * self.threshold)
