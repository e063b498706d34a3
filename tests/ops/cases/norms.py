"""Rows of normalisation and dropout, defined as in PyTorch."""

from . import constant, op, positive, real, refusal, sample, ties

BATCH = dict(training=True)
RUNNING = constant(3), constant(3)


def _dropout(name, shape, wrong=()):
    return op(
        name,
        sample(real(*shape), 0.2, True, True, random=True),
        *(sample(real(*shape), *settings) for settings in ((0.5, False), (1.0,), (0.0,))),
        *(refusal(ValueError, f"{name}: input has shape {one}", real(*one)) for one in wrong),
        refusal(ValueError, f"{name}: p is 1.5", real(*shape), 1.5),
    )


OPS = [
    op(
        "batch_norm",
        sample(real(4, 3, 5, 5), None, None, positive(3), real(3), **BATCH),
        sample(real(6, 3), None, None, real(3), real(3), True, 0.3, 0.1),
        sample(real(2, 3, 2, 3, 2), None, None, bias=real(3), **BATCH),
        sample(real(4, 3, 5, 5), *RUNNING, positive(3), real(3)),
        sample(real(6, 3), *RUNNING, weight=real(3), eps=0.1),
        refusal(ValueError, "batch_norm: input has shape (3,)", real(3), None, None, **BATCH),
        refusal(ValueError, "one element a channel", real(1, 3), None, None, **BATCH),
        refusal(ValueError, "running_mean is None", real(4, 3), None, None),
    ),
    op(
        "layer_norm",
        sample(real(2, 3, 4), (3, 4), real(3, 4), real(3, 4), 0.1),
        sample(real(4, 5), [5]),
        sample(real(2, 70), (70,), real(70), real(70)),
        refusal(ValueError, "layer_norm: normalized_shape is (4,)", real(4, 5), (4,)),
    ),
    op(
        "group_norm",
        sample(real(2, 6, 3, 4), 3, real(6), real(6), 0.1),
        sample(real(2, 6, 5), 2, bias=real(6)),
        sample(real(3, 4), 2, real(4)),
        refusal(ValueError, "group_norm: num_groups is 3", real(2, 4, 3), 3),
        refusal(ValueError, "one element a group", real(1, 2), 2),
    ),
    op(
        "instance_norm",
        sample(real(2, 3, 4, 4), weight=real(3), bias=real(3), eps=0.1),
        refusal(ValueError, "one element a channel", real(2, 3, 1)),
    ),
    _dropout("dropout", (7, 9)),
    _dropout("dropout1d", (4, 3, 5), ((4,),)),
    _dropout("dropout2d", (4, 3, 5, 2), ((4, 3),)),
    op(
        "normalize",
        sample(real(2, 3, 4), 3, -1),
        sample(real(2, 3), float("inf"), 0),
        sample(real(2, 3), dim=(0, 1), eps=5.0),
        sample(ties(2, 3), 2, 0, smooth=False),
    ),
]
