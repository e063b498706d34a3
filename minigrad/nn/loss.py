"""Losses: what they compute stands with the op of the same purpose in minigrad.ops.loss.

reduction   'mean', 'sum' or 'none'
weight      of losses of classes: a factor for each class, (C,); of losses of yes and no: one that broadcasts
The ops refuse options that are out of range, when they are called.
"""

from dataclasses import KW_ONLY

from ..core.tensor import Tensor
from . import functional as F
from .layer import Layer


class _Loss(Layer):
    """What gives its op options by their names, and shows none of them, as in PyTorch."""

    def forward(self, *inputs):
        return self.op(*inputs, **{name: getattr(self, name) for name in self.takes})

    def extra_repr(self):
        return ""


class _Reduced(_Loss):
    _: KW_ONLY
    reduction: str = "mean"


# ---- of numbers ------------------------------------------------------------------------------------------------------


class MSELoss(_Reduced, op=F.mse_loss):
    """Mean squared error: the mean of (input - target)^2."""


class L1Loss(_Reduced, op=F.l1_loss):
    """Mean absolute error: the mean of |input - target|."""


class SmoothL1Loss(_Reduced, op=F.smooth_l1_loss):
    """A square below beta, the absolute error beyond it."""

    _: KW_ONLY
    beta: float = 1.0


class HuberLoss(_Loss, op=F.huber_loss):
    """A square below delta, its tangent beyond it."""

    reduction: str = "mean"
    delta: float = 1.0


# ---- of probabilities ------------------------------------------------------------------------------------------------


class BCELoss(_Reduced, op=F.binary_cross_entropy):
    """Binary cross entropy of probabilities."""

    weight: Tensor | None = None


class BCEWithLogitsLoss(BCELoss, op=F.binary_cross_entropy_with_logits):
    """Binary cross entropy of sigmoid(input); pos_weight is the weight of yes."""

    _: KW_ONLY
    pos_weight: Tensor | None = None


class KLDivLoss(_Reduced, op=F.kl_div):
    """Kullback-Leibler divergence of e^input from target; reduction also 'batchmean', the mathematical mean."""

    _: KW_ONLY
    log_target: bool = False


# ---- of classes ------------------------------------------------------------------------------------------------------


class NLLLoss(_Loss, op=F.nll_loss):
    """Negative log likelihood of the target classes; input holds log probabilities (N, C) or (N, C, ...)."""

    weight: Tensor | None = None
    _: KW_ONLY
    ignore_index: int = -100
    reduction: str = "mean"


class CrossEntropyLoss(NLLLoss, op=F.cross_entropy):
    """Cross entropy between softmax(input) and the target, class numbers or class probabilities."""

    _: KW_ONLY
    label_smoothing: float = 0.0


# ---- of vectors ------------------------------------------------------------------------------------------------------


class CosineSimilarity(_Loss, op=F.cosine_similarity):
    """The cosine of the angle between the vectors along dim; lengths count as at least eps."""

    dim: int = 1
    eps: float = 1e-8


class PairwiseDistance(_Loss, op=F.pairwise_distance):
    """The p-norm of the differences of vectors, eps added to each number."""

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False


class TripletMarginLoss(_Reduced, op=F.triplet_margin_loss):
    """How much the positive fails to be nearer to the anchor than the negative, by a margin; see PairwiseDistance."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
