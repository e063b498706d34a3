"""Rows of pooling, normalisation, softmax, losses and dropout."""

import numpy as np

from . import Draw, Op, away, classes, given, positive, probabilities, real, refusal, sample, ties


def _classified(name):
    smooth = {"label_smoothing": 0.1} if name == "cross_entropy" else {}
    more = (
        sample(real(4, 3), classes(3, 4), label_smoothing=0.2),
        sample(real(4, 3), classes(3, 4), Draw((3,), "positive", False), label_smoothing=0.2, ignore_index=1),
        sample(real(4, 3), probabilities(4, 3)),
        sample(real(4, 3), probabilities(4, 3), reduction="none"),
        sample(
            real(4, 3),
            probabilities(4, 3),
            Draw((3,), "positive", False),
            reduction="sum",
            label_smoothing=0.1,
        ),
        sample(real(2, 3, 2), probabilities(2, 3, 2)),
        sample(real(3), probabilities(3)),
        sample(real(4, 3), given(1, 1, 0, 2), label_smoothing=0.2, ignore_index=1, reduction="none"),
    )
    samples = (
        sample(real(4, 3), classes(3, 4)),
        sample(real(4, 3), classes(3, 4), reduction="sum"),
        sample(real(4, 3), classes(3, 4), reduction="none"),
        sample(real(4, 3), classes(3, 4), Draw((3,), "positive", False)),
        sample(real(4, 3), classes(3, 4), ignore_index=1),
        sample(real(4, 3), classes(3, 4), ignore_index=1, reduction="none"),
        sample(real(2, 3, 2, 2), classes(3, 2, 2, 2)),
        sample(real(3), classes(3)),
        sample(real(65, 10), classes(10, 65)),
        *(more if smooth else ()),
    )
    refusals = (
        refusal(ValueError, "target[0] = 3, but there are 3 classes (0..2)", real(2, 3), given(3, 0)),
        refusal(ValueError, f"{name}: target has shape (3,), wanted (2,)", real(2, 3), classes(3, 3)),
        refusal(TypeError, f"{name}: target has elements", real(2, 3), real(2)),
        refusal(ValueError, f"{name}: reduction is 'median'", real(2, 3), classes(3, 2), reduction="median"),
        refusal(ValueError, f"{name}: weight has shape", real(2, 3), classes(3, 2), real(2)),
        refusal(TypeError, f"{name}: input has shape", classes(3, 2, 3), classes(3, 2)),
        refusal(TypeError, f"{name}: input has shape", classes(3, 2, 3), real(2, 3)),
        refusal(ValueError, f"{name}: input has shape (2, 0)", real(2, 0), classes(1, 2)),
        refusal(TypeError, f"{name}: weight has elements int64", real(2, 3), classes(3, 2), given(1, 2, 3)),
        refusal(TypeError, f"{name}: weight requires a gradient", real(2, 3), classes(3, 2), real(3)),
        refusal(TypeError, f"{name}: weight is a ndarray", real(2, 3), classes(3, 2), np.ones(3)),
        refusal(TypeError, f"{name}: ignore_index is 1.5", real(2, 3), classes(3, 2), ignore_index=1.5),
        refusal(TypeError, f"{name}: ignore_index is None", real(2, 3), classes(3, 2), ignore_index=None),
    )
    if smooth:
        wrong = ((TypeError, "a"), (TypeError, None), (ValueError, float("nan")), (ValueError, 1.5))
        refusals += tuple(
            refusal(error, f"{name}: label_smoothing is", real(2, 3), classes(3, 2), label_smoothing=value)
            for error, value in wrong
        )
    return Op(name, samples, refusals)


POOLS = (
    sample(away(2, 3, 6, 6), 2),
    sample(away(2, 3, 7, 5), 3, 2, 1),
    sample(away(1, 2, 7, 7), (3, 2), (2, 1), (1, 0)),
    sample(away(2, 3, 7, 7), 3, 2, 1, ceil_mode=True),
    sample(away(2, 20, 5, 5), 3, 1),
    sample(away(0, 3, 4, 4), 2),
)
POOL_REFUSALS = lambda name: (
    refusal(ValueError, f"{name}: x has shape", away(6, 6), 2),
    refusal(ValueError, f"{name}:", away(1, 1, 3, 3), 4),
    refusal(ValueError, f"{name}:", away(1, 1, 6, 6), 2, 2, 2),
    refusal(ValueError, f"{name}:", away(1, 1, 6, 6), 0),
    refusal(TypeError, f"{name}:", away(1, 1, 6, 6), 2.5),
)

NORMS = dict(training=True)
OPS = [
    Op(
        "max_pool2d",
        (
            *POOLS,
            sample(away(2, 3, 9, 9), 3, 2, 1, 2),
            sample(ties(2, 3, 6, 6), 2, smooth=False),
        ),
        POOL_REFUSALS("max_pool2d"),
    ),
    Op(
        "avg_pool2d",
        (
            *POOLS,
            sample(real(2, 3, 7, 7), 3, 2, 1, count_include_pad=False),
            sample(real(2, 3, 7, 7), 3, 2, 1, True, False),
            sample(real(2, 3, 6, 6), 2, divisor_override=3),
        ),
        (
            *POOL_REFUSALS("avg_pool2d"),
            refusal(ValueError, "divisor_override is 0", away(1, 1, 4, 4), 2, divisor_override=0),
            refusal(TypeError, "divisor_override is 2.0", away(1, 1, 4, 4), 2, divisor_override=2.0),
            refusal(TypeError, "divisor_override is 'a'", away(1, 1, 4, 4), 2, divisor_override="a"),
        ),
        linear=(0,),
    ),
    Op(
        "adaptive_avg_pool2d",
        (
            sample(real(2, 3, 6, 6), 1),
            sample(real(2, 3, 7, 5), (3, 2)),
            sample(real(2, 3, 4, 5), (None, 2)),
            sample(real(2, 3, 3, 3), 5),
        ),
        (
            refusal(ValueError, "adaptive_avg_pool2d: input has shape", real(3, 3), 1),
            refusal(ValueError, "adaptive_avg_pool2d: output_size", real(1, 1, 3, 3), 0),
            refusal(ValueError, "no empty dimension", real(1, 1, 0, 3), 1),
            refusal(TypeError, "adaptive_avg_pool2d: output_size is (1, 2, 3)", real(1, 1, 3, 3), (1, 2, 3)),
            refusal(TypeError, "adaptive_avg_pool2d: output_size", real(1, 1, 3, 3), 1.5),
        ),
        linear=(0,),
    ),
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
    *(
        Op(
            name,
            tuple(
                sample(real(*shape), dim)
                for shape, dim in (
                    ((3, 4), 1),
                    ((3, 4), 0),
                    ((2, 3, 4), -2),
                    ((5,), 0),
                    ((), 0),
                    ((2, 0), 1),
                    ((65, 10), 1),
                )
            ),
            (
                refusal(IndexError, f"{name}: dim is 2", real(2, 3), 2),
                refusal(IndexError, f"{name}: dim is 1, wanted -1 to 0", real(), 1),
                refusal(TypeError, f"{name}: dim is None", real(2, 3), None),
                refusal(TypeError, f"{name}: input has elements int64", classes(3, 2, 3), 1),
            ),
        )
        for name in ("softmax", "log_softmax")
    ),
    _classified("cross_entropy"),
    _classified("nll_loss"),
    Op(
        "mse_loss",
        (
            sample(real(3, 4), real(3, 4)),
            sample(real(3, 4), real(3, 4), reduction="sum"),
            sample(real(3, 4), real(3, 4), reduction="none"),
        ),
        (
            refusal(ValueError, "mse_loss: input has shape", real(3, 4), real(3)),
            refusal(ValueError, "mse_loss: reduction", real(3), real(3), reduction="median"),
            refusal(TypeError, "mse_loss: input has elements int64", classes(3, 4), classes(3, 4)),
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
