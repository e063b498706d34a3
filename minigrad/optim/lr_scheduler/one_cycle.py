"""The one-cycle schedule."""

import math

from minigrad_kernels.errors import ShapeError, StateError

from .base import LRScheduler, check_count, check_numbers, check_optimizer, per_group

__all__ = ["OneCycleLR"]


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to the first rate / final_div_factor; step after each batch.

    total_steps         or epochs and steps_per_epoch, whose product it is
    pct_start           the share of steps that go up
    anneal_strategy     'cos' or 'linear'
    three_phase         come down to the first rate as fast as up, and only then to the last one
    PyTorch's schedule also moves the momentum unless cycle_momentum is false; this one leaves it alone.
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
        *,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        check_optimizer("OneCycleLR", optimizer)
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        numbers = dict(pct_start=pct_start, div_factor=div_factor, final_div_factor=final_div_factor)
        check_numbers("OneCycleLR", **numbers)
        for argument in ("div_factor", "final_div_factor"):
            if not numbers[argument]:
                raise ShapeError(f"OneCycleLR: {argument} is 0, wanted another number")
        if not 0 <= pct_start <= 1:
            raise ShapeError(f"OneCycleLR: pct_start is {pct_start}, wanted 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ShapeError(f"OneCycleLR: anneal_strategy is {anneal_strategy!r}, wanted 'cos' or 'linear'")
        self.anneal_strategy = anneal_strategy
        up, last = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        self.phases = [[up, "initial_lr", "max_lr"], [last, "max_lr", "min_lr"]]
        if three_phase:
            down = float(2 * pct_start * self.total_steps) - 2
            self.phases[1:] = [[down, "max_lr", "initial_lr"], [last, "initial_lr", "min_lr"]]
        greatest = per_group("OneCycleLR", "max_lr", max_lr, optimizer)
        for rate in greatest:
            check_numbers("OneCycleLR", max_lr=rate)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, greatest, strict=True):
                group["initial_lr"], group["max_lr"] = rate / div_factor, rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch > self.total_steps:
            raise StateError(f"OneCycleLR: step {self.last_epoch} of {self.total_steps}; make it with more total_steps")
        index = sum(self.last_epoch > end for end, *_ in self.phases[:-1])
        start = self.phases[index - 1][0] if index else 0.0
        end, source, target = self.phases[index]
        share = (self.last_epoch - start) / (end - start) if end > start else 1.0
        return [self._between(group[source], group[target], share) for group in self.optimizer.param_groups]

    def _between(self, start, end, share):
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2 * (math.cos(math.pi * share) + 1)


def _total(total_steps, epochs, steps_per_epoch):
    if total_steps is not None:
        return check_count("OneCycleLR", "total_steps", total_steps)
    if epochs is None or steps_per_epoch is None:
        raise ShapeError("OneCycleLR: total_steps is None, wanted it, or both epochs and steps_per_epoch")
    return check_count("OneCycleLR", "epochs", epochs) * check_count("OneCycleLR", "steps_per_epoch", steps_per_epoch)
