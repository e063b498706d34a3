"""Losses as layers. reduction: 'mean', 'sum' or 'none'; weight: a factor for each class, (C,)."""

from minigrad_kernels.errors import KindError

from .. import ops
from .module import Module
from .options import at_least, fraction, one_of

__all__ = ["CrossEntropyLoss", "MSELoss", "NLLLoss"]

REDUCTIONS = ("mean", "sum", "none")


class _Loss(Module):
    def __init__(self, reduction):
        self.reduction = one_of(type(self).__name__, "reduction", reduction, REDUCTIONS)


class MSELoss(_Loss):
    """Mean squared error: the mean of (input - target)^2."""

    def __init__(self, *, reduction="mean"):
        super().__init__(reduction)

    def forward(self, input, target):
        return ops.mse_loss(input, target, self.reduction)


class NLLLoss(_Loss):
    """Negative log likelihood of the target classes; input holds log probabilities (N, C) or (N, C, ...)."""

    def __init__(self, weight=None, *, ignore_index=-100, reduction="mean"):
        super().__init__(reduction)
        layer = type(self).__name__
        try:
            self.register_buffer("weight", weight)
        except KindError as error:
            raise KindError(f"{layer}: weight is a {type(weight).__name__}, wanted a Tensor or None") from error
        self.ignore_index = at_least(layer, "ignore_index", ignore_index, -(1 << 63))

    def forward(self, input, target):
        return ops.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(NLLLoss):
    """Cross entropy between softmax(input) and the target, class numbers or class probabilities."""

    def __init__(self, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = fraction("CrossEntropyLoss", "label_smoothing", label_smoothing)

    def forward(self, input, target):
        options = (self.weight, self.ignore_index, self.reduction, self.label_smoothing)
        return ops.cross_entropy(input, target, *options)
