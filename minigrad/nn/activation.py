"""Activations, and dropout."""

from . import functional as F
from .layer import Layer


class ReLU(Layer, op=F.relu):
    """max(x, 0)."""

    inplace: bool = False


class ReLU6(ReLU, op=F.relu6):
    """max(x, 0), but 6 at most."""


class SiLU(ReLU, op=F.silu):
    """x sigmoid(x)."""


class LeakyReLU(Layer, op=F.leaky_relu):
    """x above 0, negative_slope x below."""

    negative_slope: float = 0.01
    inplace: bool = False


class Hardtanh(Layer, op=F.hardtanh):
    """x between min_val and max_val, these beyond them."""

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False


class ELU(Layer, op=F.elu):
    """x above 0, alpha (e^x - 1) below."""

    alpha: float = 1.0
    inplace: bool = False


class GELU(Layer, op=F.gelu):
    """x times the probability that a normal number is below x; approximate 'none', or 'tanh' for a formula near it."""

    approximate: str = "none"


class Softplus(Layer, op=F.softplus):
    """ln(1 + e^(beta x)) / beta; x itself where beta x is above the threshold."""

    beta: float = 1.0
    threshold: float = 20.0


class LogSigmoid(Layer, op=F.logsigmoid):
    """The logarithm of Sigmoid."""


class Sigmoid(Layer, op=F.sigmoid):
    """1 / (1 + e^{-x})."""


class Tanh(Layer, op=F.tanh):
    """The hyperbolic tangent."""


class Softmax(Layer, op=F.softmax):
    """Exponentials along dimension dim, which must be given, scaled so that they sum to 1."""

    dim: int


class LogSoftmax(Softmax, op=F.log_softmax):
    """The logarithm of Softmax."""


# ---- noise in training that keeps units from relying on each other ---------------------------------------------------


class Dropout(Layer, op=F.dropout, usual=()):
    """In training, each element set to 0 with probability p and the others scaled by 1 / (1 - p)."""

    p: float = 0.5
    inplace: bool = False


class Dropout1d(Dropout, op=F.dropout1d):
    """In training, whole channels of (N, C, L) set to 0 with probability p and the others scaled by 1 / (1 - p)."""


class Dropout2d(Dropout, op=F.dropout2d):
    """In training, whole channels of (N, C, H, W) set to 0 with probability p and the others scaled by 1 / (1 - p)."""
