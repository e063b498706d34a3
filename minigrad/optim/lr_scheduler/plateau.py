"""The schedule that watches a metric."""

import math

from minigrad_kernels.errors import KindError, ShapeError

from .base import LRScheduler, check_count, check_numbers, check_optimizer, per_group

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """The rate times factor when a metric has not improved for more than patience epochs.

    mode            'min' or 'max': what an improvement is
    threshold       how much better counts: by this share ('rel') or by this much ('abs'), see threshold_mode
    cooldown        epochs after a reduction that do not count as bad
    min_lr          the least rate, or a list with one for each group
    eps             a smaller change of the rate is not made
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
        self.optimizer = check_optimizer(name, optimizer)
        for argument, value, choices in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            if value not in choices:
                raise ShapeError(f"{name}: {argument} is {value!r}, wanted {' or '.join(map(repr, choices))}")
        check_numbers(name, factor=factor, threshold=threshold, eps=eps)
        if not 0 <= factor < 1:
            raise ShapeError(f"{name}: factor is {factor}, wanted at least 0 and below 1")
        self.mode, self.factor, self.threshold, self.threshold_mode = mode, factor, threshold, threshold_mode
        self.patience = check_count(name, "patience", patience, 0)
        self.cooldown = check_count(name, "cooldown", cooldown, 0)
        for least in per_group(name, "min_lr", min_lr, optimizer):
            check_numbers(name, min_lr=least)
        self.min_lr, self.eps = min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.last_epoch = self.cooldown_counter = self.num_bad_epochs = 0

    def step(self, metrics):
        """Take note of the metric of one more epoch, a number or a Tensor with one element."""
        try:
            value = float(metrics)
        except (TypeError, ValueError) as error:
            raise KindError(f"ReduceLROnPlateau: metrics is {metrics!r}, wanted a number") from error
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, value):
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "abs":
            return sign * value > sign * self.best + self.threshold
        return sign * value > sign * self.best * (1 + sign * self.threshold)

    def _reduce(self):
        least = per_group("ReduceLROnPlateau", "min_lr", self.min_lr, self.optimizer)
        for group, bound in zip(self.optimizer.param_groups, least, strict=True):
            rate = max(group["lr"] * self.factor, bound)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
