"""Rows of running sums and products, of the product of all elements, and of norms."""

import math

from . import Op, away, classes, flags, positive, real, refusal, sample, ties
from .reduce import SHAPE, bad_dims, bad_keepdim, by_torch, no_dtype, one_dim, several_dims


def _running(draw):
    """Samples of cumsum and cumprod."""
    return (
        *(sample(draw(*SHAPE), dim) for dim in (0, 1, -1)),
        sample(draw(3, 4), dim=-2),
        sample(draw(7), 0),
        sample(draw(1), 0),
        sample(draw(), 0),
        sample(draw(), -1),
        sample(draw(0, 3), 0),
        sample(draw(0, 3), 1),
        sample(draw(2, 1, 3), 1),
    )


def _integers(name):
    samples = (
        sample(classes(5, 2, 3), 0),
        sample(flags(2, 3), 1),
        sample(classes(5, 2, 3), 1, dtype="uint8"),
        sample(classes(5, 2, 3), 1, dtype="float32"),
        sample(classes(5, 0, 3), 0),
    )
    return Op(name, samples, no_dtype(), torch=by_torch(name), differentiable=False)


def _bad_scans(name):
    return (
        *bad_dims(name),
        *one_dim(name),
        refusal(TypeError, f"{name}: dim is None, wanted an integer", real(2, 3), None),
        refusal(TypeError, f"{name}: dtype is bool, wanted numbers", real(2, 3), 0, dtype="bool"),
    )


ORDERS = ("fro", None, 1, 2, 3, 0.5, 1.5, 2.5, 4, -1, -2.0, math.inf, -math.inf)

OPS = [
    Op("cumsum", _running(real), _bad_scans("cumsum"), torch=by_torch("cumsum"), linear=(0,)),
    _integers("cumsum"),
    Op(
        "cumprod",
        (
            *_running(real),
            *(sample(ties(4, 5), dim) for dim in (0, 1)),
            sample(ties(3, 1, 12), -1),
            sample(ties(30), 0),
        ),
        _bad_scans("cumprod"),
        torch=by_torch("cumprod"),
    ),
    _integers("cumprod"),
    Op(
        "prod",
        (
            sample(real(2, 3)),
            sample(real(*SHAPE), 1, True),
            *(sample(real(*SHAPE), dim=dim, keepdim=keep) for dim in (0, 2, -1) for keep in (False, True)),
            sample(ties(4, 5), 0),
            sample(ties(4, 5), 1),
            sample(ties(7)),
            sample(ties(2, 1)),
            sample(real()),
            sample(real(), 0),
            sample(real(), 0, True),
            sample(real(0, 3), 0),
            sample(real(0, 3), 1),
            sample(real(0)),
            sample(positive(1, 4), 0),
        ),
        (
            *bad_dims("prod"),
            *bad_keepdim("prod"),
            *one_dim("prod"),
            refusal(TypeError, "prod: keepdim is True, which wants a dim", real(2, 3), keepdim=True),
        ),
        torch=by_torch("prod"),
    ),
    _integers("prod"),
    Op(
        "norm",
        (
            sample(real(2, 3), dim=1, dtype="float64"),
            sample(away(2, 3, 4), 3, (0, 1), True),
            *(sample(positive(3, 4), p) for p in ORDERS),  # whose absolute values are distinct
            *(sample(away(3, 4, 2), p, dim) for p in (1, 2, 3) for dim in (0, (0, 2))),
            *(sample(real(3, 4, 2), p, (0, 2)) for p in (math.inf, -math.inf)),
            *(sample(ties(3, 6), p, 1, smooth=False) for p in ORDERS),
            *(sample(ties(2, 1), p, 1, smooth=False) for p in (0, 1, 2, 3, 0.5)),
            sample(away(3, 4), 0, smooth=False),
            sample(away(3, 4), 0, 1, smooth=False),
            sample(away(3, 4)),
            sample(away(3, 4), "fro", (0, 1), True),
            sample(away(2, 3, 4), "fro", ()),
            sample(away(2, 3, 4), dim=1, keepdim=True),
            sample(away(2, 3, 4), p=2, dim=(0, 1, 2)),
            sample(away(3, 4), keepdim=True),
            sample(away()),
            sample(away(), 2, 0),
            sample(real(0)),
            sample(real(0, 3), 3, 0),
            sample(real(0, 3), math.inf, 1),
        ),
        (
            *bad_dims("norm"),
            *bad_keepdim("norm"),
            *several_dims("norm"),
            *no_dtype(),
            refusal(TypeError, "norm: p is 'two', wanted a number", real(2, 3), "two"),
            refusal(TypeError, "norm: p is 'tuple', wanted a number", real(2, 3), (1, 2)),
            refusal(ValueError, "nothing along dim (0,) has no norm with p=inf", real(0, 3), math.inf, 0),
            refusal(ValueError, "has no norm with p=-1", real(0, 3), -1),
            refusal(TypeError, "norm: input has elements int64, wanted floating", classes(5, 2, 3)),
        ),
        torch=by_torch("norm"),
    ),
    Op(
        "logsumexp",
        (
            sample(real(*SHAPE), (1,), True),
            *(sample(real(*SHAPE), dim=dim) for dim in (0, -1, (0, 2))),
            sample(real(4), dim=0),
            sample(real(2, 3), (0, 1), keepdim=True),
            sample(real(), 0),
            sample(away(2000), dim=0),
            sample(real(0, 3), dim=1),
            sample(real(0, 3), dim=0, smooth=False),
            sample(classes(5, 2, 3), 0, smooth=False),
            sample(flags(2, 3), 1, smooth=False),
        ),
        (
            *bad_dims("logsumexp"),
            *bad_keepdim("logsumexp"),
            *several_dims("logsumexp"),
            refusal(TypeError, "logsumexp: dim is None, wanted dimensions", real(2, 3), None),
        ),
        torch=by_torch("logsumexp"),
    ),
]
