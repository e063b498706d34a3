"""Rows of the reductions."""

import numpy as np

from . import Op, away, classes, real, refusal, sample, ties

SHAPE = (2, 3, 4, 5)
DIMS = (None, 0, -1, (0, 2, 3), (1, -1), ())


def _torch(name, default=(), pass_none=False):
    """torch's function; a dim of None is not passed, because not every one takes it."""

    def choose(torch):
        function = getattr(torch, name)

        def call(x, dim=None, **kwargs):
            return function(x, **kwargs) if dim is None and not pass_none else function(x, dim=dim, **kwargs)

        return call

    return choose


def _refusals(name):
    return (
        refusal(IndexError, f"{name}: dim is 2", real(2, 3), dim=2),
        refusal(IndexError, f"{name}: dim is -3", real(2, 3), dim=-3),
        refusal(TypeError, f"{name}: dim is '0'", real(2, 3), dim="0"),
        refusal(TypeError, f"{name}: dim is 0.5", real(2, 3), dim=0.5),
        refusal(TypeError, f"{name}: x is a ndarray, wanted a Tensor; wrap it in Tensor(...)", np.ones(3), dim=0),
    )


_TWICE = lambda name: (refusal(ValueError, "names a dimension twice", real(2, 3), dim=(0, -2)),)


def _sums(name):
    samples = [sample(real(*SHAPE), dim=dim) for dim in DIMS]
    samples += [
        sample(real(*SHAPE), dim=(0, 2, 3), keepdim=True),
        sample(real(), dim=None),
        sample(real(3, 0), dim=0),
        sample(real(5000, 3), dim=0),
    ]
    return tuple(samples)


def _extremes(name):
    samples = [
        sample(away(*SHAPE), dim=dim, keepdim=keep) for dim in (0, -1, (0, 2), (1, -1), ()) for keep in (False, True)
    ]
    samples += [sample(ties(3, 8), dim=1, smooth=False), sample(away(3, 0), dim=0), sample(away(4))]
    refusals = (*_refusals(name), *_TWICE(name), refusal(ValueError, "no extreme", real(0, 3), dim=0))
    return Op(
        name,
        tuple(samples),
        refusals,
        torch=lambda torch: lambda x, dim=(), **k: getattr(torch, name)(x, dim, **k),
    )


def _selects(name):
    samples = [sample(away(*SHAPE), dim=dim, keepdim=keep) for dim in (0, 2, -1) for keep in (False, True)]
    samples += [sample(ties(3, 8), dim=1, smooth=False), sample(away(7)), sample(ties(9), smooth=False)]
    refusals = (
        *_refusals(name),
        refusal(ValueError, "no extreme", real(0, 3), dim=0),
        refusal(ValueError, "no extreme", real(0)),
    )
    return Op(name, tuple(samples), refusals, torch=_torch(name))


def _args(name):
    samples = [sample(away(*SHAPE), dim=dim, keepdim=keep) for dim in (0, 2, -1) for keep in (False, True)]
    samples += [sample(away(3, 4)), sample(away(7), dim=0), sample(away())]
    refusals = (*_refusals(name), refusal(ValueError, "no extreme", real(0, 3), dim=0))
    return Op(name, tuple(samples), refusals, torch=_torch(name), differentiable=False)


OPS = [
    Op("sum", _sums("sum"), _refusals("sum") + _TWICE("sum"), torch=_torch("sum"), linear=(0,)),
    Op(
        "mean",
        (*(s for s in _sums("mean") if s.args[0].shape != (3, 0)), sample(real(3, 0), dim=0)),
        (*_refusals("mean"), *_TWICE("mean")),
        torch=_torch("mean"),
        linear=(0,),
    ),
    Op(
        "var",
        (
            *(sample(real(*SHAPE), dim=dim) for dim in (None, 0, -1, (0, 2, 3))),
            sample(real(*SHAPE), dim=(0, 2, 3), correction=0, keepdim=True),
            sample(real(6), correction=2),
        ),
        (
            *_refusals("var"),
            refusal(TypeError, "var: correction is 'a', wanted a number", real(3), correction="a"),
            refusal(TypeError, "var: correction is 'NoneType', wanted a number", real(3), correction=None),
        ),
        torch=_torch("var"),
    ),
    _extremes("amax"),
    _extremes("amin"),
    _selects("max"),
    _selects("min"),
    _args("argmax"),
    _args("argmin"),
    Op(
        "logsumexp",
        (
            *(sample(real(*SHAPE), dim=dim) for dim in (0, -1, (0, 2))),
            sample(real(*SHAPE), dim=1, keepdim=True),
            sample(real(4), dim=0),
            sample(away(2000), dim=0),
            sample(real(0, 3), dim=1),
        ),
        (*_refusals("logsumexp"), refusal(TypeError, "wanted floating", classes(5, 2, 3), dim=0)),
        torch=_torch("logsumexp"),
    ),
]
