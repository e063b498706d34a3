"""Rows of normalisation and dropout."""

import numpy as np

from . import Draw, Op, classes, positive, real, refusal, sample

NORMS = dict(training=True)
OPS = [
    Op(
        "batch_norm",
        (
            sample(real(4, 3, 5, 5), None, None, positive(3), real(3), **NORMS),
            sample(real(4, 3, 5, 5), None, None, **NORMS),
            sample(real(6, 3), None, None, positive(3), real(3), eps=0.1, **NORMS),
            sample(real(4, 3, 5, 5), real(3, grad=False), Draw((3,), "positive", False), positive(3), real(3)),
            sample(real(6, 3), real(3, grad=False), Draw((3,), "positive", False)),
            sample(real(6, 3), real(3, grad=False), Draw((3,), "positive", False), bias=real(3)),
        ),
        (
            refusal(ValueError, "batch_norm: input has shape", real(3), None, None, **NORMS),
            refusal(ValueError, "one element a channel", real(1, 3), None, None, **NORMS),
            refusal(ValueError, "running_mean is None", real(4, 3), None, None),
            refusal(ValueError, "weight has shape", real(4, 3), None, None, real(4), **NORMS),
            refusal(TypeError, "weight has elements int64", real(4, 3), None, None, classes(2, 3), **NORMS),
            refusal(TypeError, "batch_norm: input has elements int64", classes(9, 4, 3), None, None, **NORMS),
            refusal(TypeError, "batch_norm: running_mean is a ndarray", real(4, 3), np.ones(3), None, **NORMS),
            refusal(TypeError, "batch_norm: momentum is 'a'", real(4, 3), None, None, momentum="a", **NORMS),
            refusal(TypeError, "batch_norm: momentum is 'NoneType'", real(4, 3), None, None, momentum=None, **NORMS),
            refusal(TypeError, "batch_norm: eps is 'a'", real(4, 3), None, None, eps="a", **NORMS),
        ),
    ),
    Op(
        "dropout",
        (
            sample(real(3, 4), 0.0),
            sample(real(3, 4), 0.5, False),
            sample(real(3, 4), 1.0),
            sample(real(7, 9), 0.5, random=True),
        ),
        (
            refusal(ValueError, "dropout: p is 1.5", real(3), 1.5),
            refusal(ValueError, "dropout: p is -0.1", real(3), -0.1),
            refusal(ValueError, "dropout: p is nan", real(3), float("nan")),
            refusal(TypeError, "dropout: p is 'NoneType', wanted a number", real(3), None),
            refusal(TypeError, "dropout: p is 'a', wanted a number", real(3), "a"),
            refusal(TypeError, "dropout: input has elements int64", classes(3, 4), 0.5),
        ),
        linear=(0,),
    ),
]
