"""Rows of softmax and losses."""

import numpy as np

from . import Draw, Op, classes, given, probabilities, real, refusal, sample


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


OPS = [
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
]
