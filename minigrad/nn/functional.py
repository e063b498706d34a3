"""The ops under PyTorch's functional names."""

from ..ops import (
    adaptive_avg_pool2d,
    avg_pool2d,
    batch_norm,
    conv2d,
    cross_entropy,
    dropout,
    linear,
    log_softmax,
    max_pool2d,
    mse_loss,
    nll_loss,
    pad,
    relu,
    sigmoid,
    softmax,
    tanh,
)

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "conv2d",
    "cross_entropy",
    "dropout",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "pad",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
]
