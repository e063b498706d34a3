"""The operations on Tensors, a family a file: value, formula and gradients of each stand together."""

from .conv import conv2d, conv2d_input_grad, conv2d_weight_grad
from .elementwise import (
    abs,
    add,
    clamp,
    div,
    eq,
    exp,
    ge,
    gt,
    isfinite,
    isnan,
    le,
    log,
    logical_not,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    neg,
    pow,
    relu,
    sigmoid,
    sign,
    sqrt,
    square,
    sub,
    tanh,
    to,
    where,
)
from .loss import cross_entropy, mse_loss, nll_loss
from .matmul import linear, matmul
from .norm import batch_norm
from .pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from .random import dropout
from .reduce import amax, amin, argmax, argmin, logsumexp, max, mean, min, sum, var
from .shape import (
    cat,
    expand,
    flatten,
    getitem,
    pad,
    permute,
    put_along_dim,
    reshape,
    squeeze,
    stack,
    take_along_dim,
    transpose,
    unsqueeze,
)
from .softmax import log_softmax, softmax

__all__ = (
    "abs adaptive_avg_pool2d add amax amin argmax argmin avg_pool2d batch_norm cat clamp conv2d conv2d_input_grad "
    "conv2d_weight_grad cross_entropy div dropout eq exp expand flatten ge getitem gt isfinite isnan le linear log "
    "log_softmax logical_not logsumexp lt matmul max max_pool2d maximum mean min minimum mse_loss mul ne neg nll_loss "
    "pad permute pow put_along_dim relu reshape sigmoid sign softmax sqrt square squeeze stack sub sum take_along_dim "
    "tanh to transpose unsqueeze var where"
).split()
