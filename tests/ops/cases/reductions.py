"""Rows of reductions, extremes, scans, orders and softmax."""

import math

import numpy as np

from . import Op, away, classes, flags, positive, real, refusal, sample, ties

SHAPE = (2, 3, 4)
INF = math.inf

# ---- sums and what is made of them -----------------------------------------------------------------------------------


def _axes(x, dim):
    """dim as NumPy takes it: all where none is named; a scalar has one dimension to name."""
    if dim is None or isinstance(dim, tuple | list) and not dim:
        return None
    return () if not x.ndim else tuple(dim) if isinstance(dim, list) else dim


def _over(function):
    def reference(x, dim=None, keepdim=False, dtype=None):
        return function(x if dtype is None else x.astype(dtype), axis=_axes(x, dim), keepdims=keepdim)

    return reference


def _dims(name, several=True):
    """Refusals of dimensions."""
    yield refusal(IndexError, f"{name}: dim is 2", real(2, 3), dim=2)
    yield refusal(IndexError, f"{name}: dim is 1, wanted -1 to 0", real(), dim=1)
    if several:
        yield refusal(ValueError, "names a dimension twice", real(2, 3), dim=(0, -2))
    else:
        yield refusal(TypeError, f"{name}: dim is (0, 1), wanted an integer", real(2, 3), dim=(0, 1))


def _reduction(name, reference, *samples, draw=real, refusals=(), **options):
    drawn = (
        sample(draw(*SHAPE), (0, -1), True),
        sample(draw(*SHAPE), dim=[0, 2]),
        sample(draw(*SHAPE), dim=-1, keepdim=True),
        sample(draw(), 0),
        sample(draw(0, 3), dim=1) if draw is not real else sample(draw(4, 1, 3), dim=(1, 2)),
    )
    if name != "logsumexp":
        drawn += (sample(draw(*SHAPE)), sample(draw(*SHAPE), ()))
    return Op(name, (*drawn, *samples), (*_dims(name), *refusals), reference, **options)


def _truth(function):
    """any and all, which over no dimensions keep every element, as in PyTorch."""
    return lambda x, dim=None, keepdim=False: x != 0 if dim == () else _over(function)(x, dim, keepdim)


def _spread(function):
    def reference(x, dim=None, unbiased=None, keepdim=False, correction=None):
        if isinstance(dim, bool):  # stands where unbiased may
            dim, unbiased = None, dim
        ddof = correction if correction is not None else 1 if unbiased is None else int(unbiased)
        return function(x, axis=_axes(x, dim), ddof=ddof, keepdims=keepdim)

    return reference


def _spreads(name):
    samples = (
        sample(real(*SHAPE), (0, 2), correction=0, keepdim=True),
        sample(real(*SHAPE)),
        sample(real(3, 4), 1, False),
        sample(real(3, 4), None, True, True),
        sample(real(6), correction=1.5),
        sample(real(), correction=0),
    )
    refusals = (
        *_dims(name),
        refusal(TypeError, f"{name}: unbiased is True and correction 0", real(3), unbiased=True, correction=0),
        refusal(TypeError, f"{name}: input has elements int64, wanted floating", classes(5, 2, 3)),
    )
    return Op(name, samples, refusals, _spread(getattr(np, name)))


def _logsumexp(x, axis, keepdims):
    top = x.max(axis, keepdims=True, initial=0)
    out = top + np.log(np.exp(x - top).sum(axis, keepdims=True))
    return out if keepdims else np.squeeze(out, axis)


def _normed(x, p="fro", dim=None, keepdim=False, dtype=None):
    size, over = np.abs(x), dict(axis=_axes(x, dim), keepdims=keepdim)
    p = 2 if p in ("fro", None) else p
    if abs(p) == INF:
        return (np.max if p > 0 else np.min)(size, **over)
    return np.sum(size != 0, **over).astype(float) if p == 0 else (size**p).sum(**over) ** (1 / p)


NOTHING = "and nothing along dim (0,) has no extreme"
SUMS = [
    _reduction(
        "sum",
        _over(np.sum),
        sample(real(5000, 3), dim=0),
        sample(real(3, 0), 1),
        sample(classes(5, 2, 3), 0),
        sample(flags(2, 3), dim=1, keepdim=True),
        sample(classes(5, 2, 3), dim=1, dtype="float32"),
    ),
    _reduction(
        "mean",
        _over(np.mean),
        sample(real(5000, 3), dim=0),
        sample(classes(5, 2, 3), dtype="float32"),
        refusals=(refusal(TypeError, "mean: input has elements int64, wanted floating", classes(5, 2, 3)),),
    ),
    _spreads("var"),
    _spreads("std"),
    _reduction(
        "logsumexp",
        lambda x, dim, keepdim=False: _logsumexp(x, _axes(x, dim), keepdim),
        sample(away(2000), dim=0),
        sample(real(0, 3), dim=1),
        sample(classes(5, 2, 3), 0),
    ),
    Op(
        "norm",
        (
            sample(away(*SHAPE), 3, (0, 1), True),
            sample(away(*SHAPE)),
            sample(away(), 2, 0),
            *(sample(positive(*SHAPE), p, 1) for p in (1, 2, 3, INF, -INF, 0.5, -1, "fro")),
            sample(away(3, 4), 0, 1, smooth=False),
            sample(real(2, 3), dim=1, dtype="float64"),
            sample(real(0, 3), 3, 0),
            *(sample(ties(2, 1), p, 1, smooth=False) for p in (1, 2, 3)),
        ),
        (*_dims("norm"), refusal(ValueError, "nothing along dim (0,) has no norm with p=inf", real(0, 3), INF, 0)),
        _normed,
    ),
]

# ---- extremes --------------------------------------------------------------------------------------------------------


def _selected(name):
    """max and min, with the places where a dimension is named, or of two Tensors."""
    function, places = getattr(np, name), getattr(np, f"arg{name}")
    of_two = {"max": np.maximum, "min": np.minimum}[name]

    def reference(x, dim=None, keepdim=False, other=None):
        if other is not None or isinstance(dim, np.ndarray):
            return of_two(x, dim if other is None else other)
        if dim is None:
            return function(x)
        return (function(x, dim, keepdims=keepdim), places(x, dim, keepdims=keepdim)) if x.ndim else (x, np.array(0))

    return reference


def _place(name):
    function = getattr(np, name)
    return lambda x, dim=None, keepdim=False: function(x, dim if x.ndim else None, keepdims=keepdim and x.ndim > 0)


def _extreme(name):
    samples = (sample(ties(3, 8), 1, smooth=False), sample(classes(5, 2, 3), dim=1))
    refusals = (refusal(ValueError, f"{name}: input has shape (0, 3), {NOTHING}", real(0, 3), 0),)
    return _reduction(name, _over(getattr(np, name)), *samples, draw=away, refusals=refusals)


def _one_dim(name, *samples, **options):
    drawn = (
        sample(away(*SHAPE), 1, True),
        sample(away(*SHAPE), dim=-1),
        sample(away(3, 4)),
        sample(away(), 0),
        sample(classes(5, 2, 3), 0),
    )
    refusals = (*_dims(name, False), refusal(ValueError, "no extreme", real(0, 3), dim=0))
    return Op(name, (*drawn, *samples), refusals, **options)


EXTREMES = [
    *map(_extreme, ("amax", "amin")),
    *(
        _one_dim(
            name,
            sample(away(2, 3), other=away(3)),
            sample(ties(3, 8), 1, smooth=False),
            sample(ties(9), smooth=False),
            reference=_selected(name),
        )
        for name in ("max", "min")
    ),
    *(
        _one_dim(name, sample(away(3, 4), keepdim=True), reference=_place(name), differentiable=False)
        for name in ("argmax", "argmin")
    ),
    *(
        Op(
            name,
            (
                *(sample(flags(*SHAPE), dim=dim) for dim in ((0, 2), -1, (), None)),
                sample(flags(2, 3), 1, True),
                sample(ties(2, 3), 0),
                sample(flags(0, 3), 0),
            ),
            tuple(_dims(name)),
            _truth(getattr(np, name)),
            differentiable=False,
        )
        for name in ("any", "all")
    ),
]

# ---- scans, products, orders, softmax --------------------------------------------------------------------------------


def _scan(function):
    return lambda x, dim, dtype=None: function(x if dtype is None else x.astype(dtype), dim) if x.ndim else x


def _running(name, *samples):
    drawn = (
        *(sample(real(*SHAPE), dim) for dim in (1, 0)),
        *(sample(real(), 0), sample(real(0, 3), dim=1), sample(classes(5, 2, 3), 1, dtype="float32")),
    )
    return Op(name, (*drawn, *samples), tuple(_dims(name, False)), _scan(getattr(np, name)))


def _ordered(name):
    def reference(x, dim=-1, descending=False, stable=False):
        places = np.argsort(-x if descending else x, dim if x.ndim else None, kind="stable").reshape(x.shape)
        return places if name == "argsort" else (np.take_along_axis(x, places, dim) if x.ndim else x, places)

    return reference


def _top(x, k, dim=-1, largest=True, sorted=True):
    places = np.take(np.argsort(-x if largest else x, dim, kind="stable"), range(k), dim)
    return np.take_along_axis(x, places, dim), places


def _softmax(x, dim, dtype=None):
    powers = np.exp(x - (x.max(dim, keepdims=True, initial=0) if x.ndim else x))
    return powers / (powers.sum(dim, keepdims=True) if x.ndim else 1)


SOFTMAX = (
    *(sample(real(2, 3, 4), dim) for dim in (1, -1, 0)),
    sample(real(65, 10), 1),
    sample(real(2, 3, 4, 5), 1),
    sample(real(), 0),
    sample(real(2, 0, 3), 2),
    sample(classes(5, 3, 4), 1, dtype="float64"),
)
OTHERS = [
    _running("cumsum"),
    _running("cumprod", sample(ties(4, 5), 0), sample(ties(3, 1, 12), -1)),
    Op(
        "prod",
        (
            sample(real(*SHAPE), 1, True),
            sample(real(), 0),
            sample(real(0, 3), 1),
            sample(ties(4, 5), 0),
            sample(classes(5, 2, 3), 1, dtype="float32"),
        ),
        (*_dims("prod", False), refusal(TypeError, "prod: keepdim is True, which wants", real(2, 3), keepdim=True)),
        _over(np.prod),
    ),
    *(
        Op(
            name,
            (
                sample(away(2, 3, 4), -2, True),
                sample(away(3, 4), dim=0, descending=True),
                sample(ties(4, 5), stable=True, smooth=False),
                sample(ties(4, 5), dim=0, descending=True, stable=True, smooth=False),
                sample(away(), 0),
                sample(away(0, 3)),
            ),
            (refusal(IndexError, f"{name}: dim is 2", away(3, 4), 2),),
            _ordered(name),
            differentiable=name == "sort",
        )
        for name in ("sort", "argsort")
    ),
    Op(
        "topk",
        (
            sample(away(2, 3, 4), 2, 1, largest=False, sorted=True),
            sample(away(3, 4), k=2, dim=0),
            sample(away(4), 0),
        ),
        (refusal(ValueError, "topk: k is 4, wanted 0 to 3", away(3), 4),),
        _top,
    ),
    *(
        Op(
            name,
            SOFTMAX,
            (
                refusal(IndexError, f"{name}: dim is 2", real(2, 3), 2),
                refusal(TypeError, f"{name}: x has type int64", classes(3, 2, 3), 1),
            ),
            reference,
        )
        for name, reference in (("softmax", _softmax), ("log_softmax", lambda *a, **k: np.log(_softmax(*a, **k))))
    ),
]

OPS = [*SUMS, *EXTREMES, *OTHERS]
