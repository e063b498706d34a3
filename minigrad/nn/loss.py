"""Losses as layers: what they compute stands with the function of the same purpose in minigrad.ops.loss.

reduction   'mean', 'sum' or 'none'
weight      of losses of classes: a factor for each class, (C,); of losses of yes and no: one that broadcasts
The functions refuse options that are out of range, when they are called.
"""

from .. import ops
from ..core.check import one_of
from .module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "PairwiseDistance",
    "SmoothL1Loss",
    "TripletMarginLoss",
]


class _Loss(Module):
    """A loss that is reduced."""

    reductions: tuple[str, ...] = ("mean", "sum", "none")

    def __init__(self, *, reduction="mean"):
        self.reduction = one_of(type(self).__name__, "reduction", reduction, self.reductions)


# ---- of numbers ------------------------------------------------------------------------------------------------------


class MSELoss(_Loss):
    """Mean squared error: the mean of (input - target)^2."""

    def forward(self, input, target):
        return ops.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Mean absolute error: the mean of |input - target|."""

    def forward(self, input, target):
        return ops.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """A square below beta, the absolute error beyond it."""

    def __init__(self, *, reduction="mean", beta=1.0):
        super().__init__(reduction=reduction)
        self.beta = beta

    def forward(self, input, target):
        return ops.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """A square below delta, its tangent beyond it."""

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input, target):
        return ops.huber_loss(input, target, self.reduction, self.delta)


# ---- of probabilities ------------------------------------------------------------------------------------------------


class BCELoss(_Loss):
    """Binary cross entropy of probabilities."""

    def __init__(self, weight=None, *, reduction="mean"):
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)

    def forward(self, input, target):
        return ops.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(BCELoss):
    """Binary cross entropy of sigmoid(input); pos_weight is the weight of yes."""

    def __init__(self, weight=None, *, reduction="mean", pos_weight=None):
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input, target):
        options = {"reduction": self.reduction, "pos_weight": self.pos_weight}
        return ops.binary_cross_entropy_with_logits(input, target, self.weight, **options)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of e^input from target; reduction also 'batchmean', the mathematical mean."""

    reductions = (*_Loss.reductions, "batchmean")

    def __init__(self, *, reduction="mean", log_target=False):
        super().__init__(reduction=reduction)
        self.log_target = log_target

    def forward(self, input, target):
        return ops.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


# ---- of classes ------------------------------------------------------------------------------------------------------


class NLLLoss(_Loss):
    """Negative log likelihood of the target classes; input holds log probabilities (N, C) or (N, C, ...)."""

    def __init__(self, weight=None, *, ignore_index=-100, reduction="mean"):
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def _options(self):
        return {"ignore_index": self.ignore_index, "reduction": self.reduction}

    def forward(self, input, target):
        return ops.nll_loss(input, target, self.weight, **self._options())


class CrossEntropyLoss(NLLLoss):
    """Cross entropy between softmax(input) and the target, class numbers or class probabilities."""

    def __init__(self, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input, target):
        options = self._options()
        return ops.cross_entropy(input, target, self.weight, **options, label_smoothing=self.label_smoothing)


# ---- of vectors ------------------------------------------------------------------------------------------------------


class CosineSimilarity(Module):
    """The cosine of the angle between the vectors along dim; lengths count as at least eps."""

    def __init__(self, dim=1, eps=1e-8):
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return ops.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the differences of vectors, eps added to each number."""

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return ops.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class TripletMarginLoss(_Loss):
    """How much the positive fails to be nearer to the anchor than the negative, by a margin; see PairwiseDistance."""

    def __init__(self, margin=1.0, p=2.0, eps=1e-6, swap=False, *, reduction="mean"):
        super().__init__(reduction=reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor, positive, negative):
        options = {"swap": self.swap, "reduction": self.reduction}
        return ops.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, **options)
