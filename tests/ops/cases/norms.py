"""Rows of normalisation and dropout."""

import numpy as np

from . import Op, constant, positive, real, refusal, sample, ties


def _shifted(out, weight, bias):
    shape = [-1 if d == 1 else 1 for d in range(out.ndim)]
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def _standard(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _batch(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    axes = tuple(d for d in range(x.ndim) if d != 1)
    if training:
        return _shifted(_standard(x, axes, eps), weight, bias)
    shape = [-1 if d == 1 else 1 for d in range(x.ndim)]
    return _shifted((x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps), weight, bias)


def _layer(x, inner, weight=None, bias=None, eps=1e-5):
    out = _standard(x, tuple(range(-len(inner), 0)), eps)
    return out * (1 if weight is None else weight) + (0 if bias is None else bias)


def _group(x, groups, weight=None, bias=None, eps=1e-5):
    return _shifted(_standard(x.reshape(len(x), groups, -1), -1, eps).reshape(x.shape), weight, bias)


def _instance(x, weight=None, bias=None, eps=1e-5):
    return _shifted(_standard(x, tuple(range(2, x.ndim)), eps), weight, bias)


def _dropped(x, p=0.5, training=True, inplace=False):
    return x * (1 - p) if training else x


def _normalized(x, p=2.0, dim=1, eps=1e-12):
    size = np.abs(x)
    length = size.max(dim, keepdims=True) if p == np.inf else (size**p).sum(dim, keepdims=True) ** (1 / p)
    return x / np.maximum(length, eps)


NORMS = dict(training=True)
RUNNING = real(3, grad=False), constant(3)


def _dropout(name, shape, wrong=()):
    samples = (
        sample(real(*shape), 0.2, True, True, random=True),
        sample(real(*shape), 0.5, False),
        sample(real(*shape), 1.0),
        sample(real(*shape), 0.0),
    )
    refusals = (
        *(refusal(ValueError, f"{name}: input has shape {one}", real(*one)) for one in wrong),
        refusal(ValueError, f"{name}: p is 1.5", real(*shape), 1.5),
    )
    return Op(name, samples, refusals, _dropped)


def _vectors(name, *before, **settings):
    """Refusals of what is no vector of 3 channels."""
    for vector in ("weight", "bias"):
        yield refusal(ValueError, f"{name}: {vector} has shape (5,)", *before, **{vector: real(5)}, **settings)


OPS = [
    Op(
        "batch_norm",
        (
            sample(real(4, 3, 5, 5), None, None, positive(3), real(3), **NORMS),
            sample(real(6, 3), None, None, real(3), real(3), True, 0.3, 0.1),
            sample(real(2, 3, 2, 3, 2), None, None, bias=real(3), **NORMS),
            sample(real(4, 3, 5, 5), *RUNNING, positive(3), real(3)),
            sample(real(6, 3), *RUNNING, weight=real(3), eps=0.1),
        ),
        (
            refusal(ValueError, "batch_norm: input has shape (3,)", real(3), None, None, **NORMS),
            refusal(ValueError, "one element a channel", real(1, 3), None, None, **NORMS),
            refusal(ValueError, "running_mean is None", real(4, 3), None, None),
            *_vectors("batch_norm", real(4, 3), None, None, **NORMS),
        ),
        _batch,
    ),
    Op(
        "layer_norm",
        (
            sample(real(2, 3, 4), (3, 4), real(3, 4), real(3, 4), 0.1),
            sample(real(4, 5), [5]),
            sample(real(2, 3, 4), (2, 3, 4), bias=real(2, 3, 4)),
            sample(real(2, 70), (70,), real(70), real(70)),
        ),
        (
            refusal(ValueError, "layer_norm: normalized_shape is (4,)", real(4, 5), (4,)),
            *_vectors("layer_norm", real(4, 3), (3,)),
        ),
        _layer,
    ),
    Op(
        "group_norm",
        (
            sample(real(2, 6, 3, 4), 3, real(6), real(6), 0.1),
            sample(real(2, 6, 5), 2, bias=real(6)),
            sample(real(3, 4), 2, real(4)),
        ),
        (
            refusal(ValueError, "group_norm: num_groups is 3", real(2, 4, 3), 3),
            refusal(ValueError, "one element a group", real(1, 2), 2),
            *_vectors("group_norm", real(4, 3, 2), 3),
        ),
        _group,
    ),
    Op(
        "instance_norm",
        (
            sample(real(2, 3, 4, 4), weight=real(3), bias=real(3)),
            sample(real(2, 20, 9), weight=real(20), eps=0.1),
        ),
        (
            refusal(ValueError, "one element a channel", real(2, 3, 1)),
            *_vectors("instance_norm", real(2, 3, 4)),
        ),
        _instance,
    ),
    _dropout("dropout", (7, 9)),
    _dropout("dropout1d", (4, 3, 5), ((4,),)),
    _dropout("dropout2d", (4, 3, 5, 2), ((4, 3),)),
    Op(
        "normalize",
        (
            sample(real(2, 3, 4), 3, -1),
            sample(real(3, 4)),
            sample(real(2, 3), float("inf"), 0),
            sample(real(2, 3), dim=(0, 1), eps=5.0),
            sample(ties(2, 3), 2, 0, smooth=False),
        ),
        (refusal(IndexError, "normalize: dim is 1", real(3)),),
        _normalized,
    ),
]
