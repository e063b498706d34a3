"""Activations, and dropout."""

from functools import partial
from typing import Annotated

from .. import ops
from ..core.check import fraction, one_of
from .layer import Layer

__all__ = [
    "ELU",
    "GELU",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


class ReLU(Layer, op=ops.relu):
    """max(x, 0)."""

    inplace: bool = False


class ReLU6(ReLU, op=ops.relu6):
    """max(x, 0), but 6 at most."""


class SiLU(ReLU, op=ops.silu):
    """x sigmoid(x)."""


class LeakyReLU(Layer, op=ops.leaky_relu):
    """x above 0, negative_slope x below."""

    negative_slope: float = 0.01
    inplace: bool = False


class Hardtanh(Layer, op=ops.hardtanh):
    """x between min_val and max_val, these beyond them."""

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False


class ELU(Layer, op=ops.elu):
    """x above 0, alpha (e^x - 1) below."""

    alpha: float = 1.0
    inplace: bool = False


class GELU(Layer, op=ops.gelu):
    """x times the probability that a normal number is below x; approximate 'none', or 'tanh' for a formula near it."""

    approximate: Annotated[str, partial(one_of, choices=("none", "tanh"))] = "none"


class Softplus(Layer, op=ops.softplus):
    """ln(1 + e^(beta x)) / beta; x itself where beta x is above the threshold."""

    beta: float = 1.0
    threshold: float = 20.0


class LogSigmoid(Layer, op=ops.logsigmoid):
    """The logarithm of Sigmoid."""


class Sigmoid(Layer, op=ops.sigmoid):
    """1 / (1 + e^{-x})."""


class Tanh(Layer, op=ops.tanh):
    """The hyperbolic tangent."""


class Softmax(Layer, op=ops.softmax):
    """Exponentials along dimension dim, which must be given, scaled so that they sum to 1."""

    dim: int


class LogSoftmax(Softmax, op=ops.log_softmax):
    """The logarithm of Softmax."""


# ---- noise in training that keeps units from relying on each other ---------------------------------------------------


class Dropout(Layer, op=ops.dropout):
    """In training, each element set to 0 with probability p and the others scaled by 1 / (1 - p)."""

    p: Annotated[float, fraction] = 0.5
    inplace: bool = False

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout, op=ops.dropout1d):
    """In training, whole channels of (N, C, L) set to 0 with probability p and the others scaled by 1 / (1 - p)."""


class Dropout2d(Dropout, op=ops.dropout2d):
    """In training, whole channels of (N, C, H, W) set to 0 with probability p and the others scaled by 1 / (1 - p)."""
