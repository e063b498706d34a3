"""Rows of normalisation and dropout."""

import numpy as np

from . import Draw, Op, classes, positive, real, refusal, sample
from .convolution import quietly

NORMS = dict(training=True)


def running(channels):
    """Running statistics, which need no gradient."""
    return real(channels, grad=False), Draw((channels,), "positive", False)


def _group_norm(torch):
    """PyTorch's, which stumbles over a bias without a weight."""

    def function(x, groups, weight=None, bias=None, eps=1e-5):
        if weight is None and bias is not None:
            weight = torch.ones_like(bias)
        return torch.nn.functional.group_norm(x, groups, weight, bias, eps)

    return function


def refused_vectors(op, *before, channels=3, names=("weight", "bias"), **settings):
    """What is no vector of channels; before are the arguments up to these."""
    return [
        refusal(error, f"{op}: {name} {words}", *before, **{name: wrong}, **settings)
        for name in names
        for error, words, wrong in (
            (ValueError, "has shape (5,)", real(5)),
            (ValueError, "has shape ()", real()),
            (ValueError, f"has shape (1, {channels})", real(1, channels)),
            (TypeError, "is a ndarray", np.ones(channels)),
            (TypeError, "is a float", 1.0),
        )
    ]


OPS = [
    Op(
        "batch_norm",
        (
            sample(real(4, 3, 5, 5), None, None, positive(3), real(3), **NORMS),
            sample(real(4, 3, 5, 5), None, None, **NORMS),
            sample(real(6, 3), None, None, positive(3), real(3), eps=0.1, **NORMS),
            sample(real(4, 3, 5, 5), *running(3), positive(3), real(3)),
            sample(real(6, 3), *running(3)),
            sample(real(6, 3), *running(3), bias=real(3)),
            sample(real(6, 3), *running(3), weight=real(3), eps=0.0),
            sample(real(4, 3, 5), None, None, real(3), real(3), True),
            sample(real(4, 3, 5), *running(3), real(3), real(3), False),
            sample(real(2, 3, 2, 3, 2), None, None, real(3), real(3), True),
            sample(real(2, 3, 2, 3, 2), *running(3), real(3)),
            sample(real(2, 3, 1, 2, 1, 2), None, None, bias=real(3), **NORMS),
            sample(real(1, 3, 2), None, None, weight=real(3), **NORMS),
            sample(real(2, 1), None, None, momentum=0.3, **NORMS),
            sample(real(1, 3, 1, 4), None, None, real(3), **NORMS),
            sample(real(2, 20, 3, 3), None, None, real(20), real(20), **NORMS),
            sample(real(0, 3), None, None, real(3), real(3), True),
            sample(real(0, 3, 4, 4), None, None, real(3), **NORMS),
            sample(real(4, 3, 0), None, None, real(3), **NORMS),
            sample(real(4, 0), None, None, **NORMS),
            sample(real(0, 3), *running(3), real(3), real(3)),
        ),
        (
            refusal(ValueError, "batch_norm: input has shape (3,)", real(3), None, None, **NORMS),
            refusal(ValueError, "batch_norm: input has shape (3,)", real(3), *running(3)),
            refusal(ValueError, "batch_norm: input has shape ()", real(), None, None, **NORMS),
            refusal(ValueError, "one element a channel", real(1, 3), None, None, **NORMS),
            refusal(ValueError, "one element a channel", real(1, 3, 1, 1), None, None, **NORMS),
            refusal(ValueError, "running_mean is None", real(4, 3), None, None),
            refusal(ValueError, "running_var is None", real(4, 3), real(3, grad=False), None),
            refusal(ValueError, "running_var is None", real(4, 3), real(3, grad=False), None, **NORMS),
            refusal(ValueError, "running_mean is None", real(4, 3), None, real(3, grad=False), **NORMS),
            *refused_vectors("batch_norm", real(4, 3), None, None, **NORMS),
            *refused_vectors("batch_norm", real(4, 3, 2), *running(3)),
            refusal(TypeError, "batch_norm: input has elements int64", classes(9, 4, 3), None, None, **NORMS),
            refusal(TypeError, "batch_norm: running_mean is a ndarray", real(4, 3), np.ones(3), None, **NORMS),
            refusal(TypeError, "batch_norm: running_var is a ndarray", real(4, 3), real(3), np.ones(3), **NORMS),
        ),
    ),
    Op(
        "layer_norm",
        (
            sample(real(4, 5), (5,), real(5), real(5)),
            sample(real(4, 5), [5]),
            sample(real(2, 3, 4), (3, 4), real(3, 4), real(3, 4), 0.1),
            sample(real(2, 3, 4), (4,), real(4)),
            sample(real(2, 3, 4), (2, 3, 4), bias=real(2, 3, 4)),
            sample(real(2, 3, 4, 2), (np.int64(2),), eps=1e-3),
            sample(real(5), (5,), real(5), real(5)),
            sample(real(3, 1), (1,), real(1), real(1)),
            sample(real(2, 70), (70,), real(70)),
            sample(real(0, 3), (3,), real(3), real(3)),
            sample(real(2, 0), (0,), real(0)),
        ),
        (
            refusal(ValueError, "layer_norm: normalized_shape is ()", real(4, 5), ()),
            refusal(ValueError, "layer_norm: normalized_shape is (4,)", real(4, 5), (4,)),
            refusal(ValueError, "layer_norm: normalized_shape is (1, 4, 5)", real(4, 5), (1, 4, 5)),
            refusal(ValueError, "layer_norm: normalized_shape is (1,)", real(), (1,)),
            refusal(ValueError, "layer_norm: normalized_shape is (-5,)", real(4, 5), (-5,)),
            refusal(ValueError, "layer_norm: normalized_shape is (4,)", real(4, 5), 4),
            refusal(TypeError, "layer_norm: normalized_shape is 5.0", real(4, 5), (5.0,)),
            refusal(TypeError, "layer_norm: normalized_shape is None", real(4, 5), None),
            refusal(TypeError, "layer_norm: input has elements int64", classes(9, 4, 5), (5,)),
            refusal(ValueError, "layer_norm: weight has shape (4,)", real(2, 3, 4), (3, 4), real(4)),
            *refused_vectors("layer_norm", real(4, 3), (3,)),
        ),
    ),
    Op(
        "group_norm",
        (
            sample(real(2, 6, 3, 4), 3, real(6), real(6)),
            sample(real(2, 6, 3, 4), 1),
            sample(real(2, 6, 3, 4), 6, real(6), None, 0.1),
            sample(real(2, 6, 5), 2, bias=real(6)),
            sample(real(3, 4), 2, real(4), real(4)),
            sample(real(2, 4, 2, 3, 2), np.int64(2), real(4)),
            sample(real(1, 2), 1),
            sample(real(2, 2), 2, real(2)),
            sample(real(0, 4, 3), 2, real(4), real(4)),
            sample(real(2, 4, 0), 2),
            sample(real(2, 0, 3), 2, eps=1e-3),
        ),
        (
            refusal(ValueError, "group_norm: num_groups is 3", real(2, 4, 3), 3),
            refusal(ValueError, "group_norm: num_groups is 0", real(2, 4, 3), 0),
            refusal(ValueError, "group_norm: num_groups is -2", real(2, 4, 3), -2),
            refusal(ValueError, "group_norm: input has shape (4,)", real(4), 2),
            refusal(ValueError, "one element a group", real(1, 2), 2),
            refusal(ValueError, "one element a group", real(1, 2, 1, 1), 2),
            refusal(TypeError, "group_norm: num_groups is 2.0", real(2, 4, 3), 2.0),
            refusal(TypeError, "group_norm: num_groups is None", real(2, 4, 3), None),
            refusal(TypeError, "group_norm: input has elements int64", classes(9, 2, 4), 2),
            *refused_vectors("group_norm", real(4, 3, 2), 3),
        ),
        torch=_group_norm,
    ),
    Op(
        "instance_norm",
        (
            sample(real(2, 3, 4, 4), weight=real(3), bias=real(3)),
            sample(real(2, 3, 4, 4)),
            sample(real(2, 3, 5), weight=real(3), eps=0.1),
            sample(real(2, 3, 2, 2, 2), bias=real(3)),
            sample(real(1, 1, 2)),
            sample(real(2, 20, 9), weight=real(20)),
            sample(real(0, 3, 4)),
            sample(real(2, 3, 0), weight=real(3)),
        ),
        (
            refusal(ValueError, "instance_norm: input has shape (3,)", real(3)),
            refusal(ValueError, "one element a channel", real(2, 3)),
            refusal(ValueError, "one element a channel", real(2, 3, 1)),
            refusal(TypeError, "instance_norm: input has elements int64", classes(9, 2, 3, 4)),
            *refused_vectors("instance_norm", real(2, 3, 4)),
        ),
    ),
    Op(
        "dropout",
        (
            sample(real(3, 4), 0.0),
            sample(real(3, 4), 0.5, False),
            sample(real(3, 4), 1.0),
            sample(real(7, 9), 0.5, random=True),
            sample(real(7, 9), 0.2, True, True, random=True),
            sample(real(2, 3, 4, 5), random=True),
            sample(real(), 1),
            sample(real(), 0.3, random=True),
            sample(real(0, 3), 0.5),
        ),
        (
            refusal(ValueError, "dropout: p is 1.5", real(3), 1.5),
            refusal(ValueError, "dropout: p is 1.5", real(3), 1.5, False),
            refusal(ValueError, "dropout: p is -0.1", real(3), -0.1),
            refusal(ValueError, "dropout: p is nan", real(3), float("nan")),
            refusal(TypeError, "dropout: p is 'NoneType', wanted a number", real(3), None),
            refusal(TypeError, "dropout: p is 'a', wanted a number", real(3), "a"),
            refusal(TypeError, "dropout: input has elements int64", classes(3, 4), 0.5),
            refusal(TypeError, "dropout: training is 'a'", real(3), 0.5, "a"),
            refusal(TypeError, "dropout: training is None", real(3), 0.5, None),
            refusal(TypeError, "dropout: training is array", real(3), 0.5, np.ones(2)),
        ),
        linear=(0,),
    ),
    *(
        Op(
            name,
            (
                *(sample(real(*shape), 0.5, random=True) for shape in shapes),
                *(sample(real(*shape), 1.0) for shape in shapes),
                *(sample(real(*shape), 0.5, False) for shape in shapes),
                sample(real(*shapes[0]), 0.0),
                sample(real(*shapes[0]), 0.2, True, True, random=True),
                sample(real(0, *shapes[0][1:])),
            ),
            (
                *(refusal(ValueError, f"{name}: input has shape {shape}", real(*shape)) for shape in others),
                refusal(ValueError, f"{name}: p is 1.5", real(*shapes[0]), 1.5),
                refusal(ValueError, f"{name}: p is -0.1", real(*shapes[0]), -0.1, False),
                refusal(TypeError, f"{name}: p is 'NoneType'", real(*shapes[0]), None),
                refusal(TypeError, f"{name}: training is 'a'", real(*shapes[0]), 0.5, "a"),
                refusal(TypeError, f"{name}: input has elements int64", classes(3, *shapes[0])),
            ),
            torch=quietly(name),
            linear=(0,),
        )
        for name, shapes, others in (
            ("dropout1d", ((4, 3, 5), (6, 4)), ((), (4,), (2, 3, 4, 5))),
            ("dropout2d", ((4, 3, 5, 2), (6, 4, 2)), ((), (4,), (4, 3), (2, 3, 1, 2, 2))),
        )
    ),
    Op(
        "normalize",
        (
            sample(real(3, 4)),
            sample(real(3, 4), 1.0, 0),
            sample(real(2, 3, 4), 3, -1),
            sample(real(2, 3), float("inf"), 0),
            sample(real(2, 3), dim=(0, 1)),
            sample(real(3), dim=0),
            sample(real(2, 3), eps=5.0),
            sample(Draw((2, 3), "ties"), 2, 0, smooth=False),
            sample(real(0, 3)),
        ),
        (
            refusal(IndexError, "normalize: dim is 1", real(3)),
            refusal(ValueError, "normalize: eps is -1", real(2, 3), eps=-1),
            refusal(TypeError, "normalize: eps is 'a'", real(2, 3), eps="a"),
            refusal(TypeError, "normalize: input is a ndarray", np.ones(3)),
        ),
    ),
]
