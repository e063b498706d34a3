"""Rules of reductions, scans, orders and softmax."""

import numpy as np

from .draws import Rule, call


def _axes(x, dim):
    """dim as NumPy takes it: all where none is named; a scalar has one dimension to name."""
    if dim is None or dim == ():
        return None
    if not x.ndim:
        return ()
    return tuple(dim) if isinstance(dim, list) else dim


def _over(function):
    return lambda x, dim=None, keepdim=False: function(x, axis=_axes(x, dim), keepdims=keepdim)


def _truth(function):
    """any and all, which over no dimensions keep every element, as in PyTorch."""

    def reference(x, dim=None, keepdim=False):
        return x != 0 if dim == () else function(x, axis=_axes(x, dim), keepdims=keepdim)

    return reference


def _reduced(name, function, kinds=(), kind="normal", several=True, least=0, out="same", repeats=True, bound=64):
    def drawn(draws):
        shape = draws.shape(least, empty=False)
        x = draws.whole(shape, 0, 2 if kinds == ("bool",) else 5, kinds) if kinds and draws.chance(25) else None
        x = x or draws.real(shape, kind)
        if draws.chance(25):
            return call(x)
        dim = draws.dims(shape) if several and draws.flag() else draws.dim(shape)
        return call(x, dim, keepdim=draws.flag())

    reference = _truth(function) if out == "bool" else _over(function)
    return Rule(name, drawn, reference, out, repeats=repeats, bound=bound)


def _spread(function):
    """var and std."""

    def reference(x, dim=None, keepdim=False, correction=1):
        return function(x, axis=_axes(x, dim), ddof=correction, keepdims=keepdim)

    def drawn(draws):
        shape = (*draws.shape(0, 2, empty=False), draws.integer(3, 6))
        dim = draws.choice(None, -1, len(shape) - 1)
        return call(draws.real(shape), dim, keepdim=draws.flag() and dim is not None, correction=draws.integer(0, 2))

    return drawn, reference


def _logsumexp(x, axis, keepdims):
    top = x.max(axis, keepdims=True)
    out = top + np.log(np.exp(x - top).sum(axis, keepdims=True))
    return out if keepdims else np.squeeze(out, axis)


def _named(draws):
    """An input and a dimension that must be named."""
    shape = draws.shape(empty=False)
    return call(draws.real(shape), draws.dim(shape))


def _scan(function):
    return lambda x, dim: function(x, dim) if x.ndim else x


def _softmax(x, dim):
    if not x.ndim:
        return np.ones(())
    powers = np.exp(x - x.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


def _extreme(name):
    """max and min, with the places where a dimension is named."""
    function, places = getattr(np, name), getattr(np, "arg" + name)

    def reference(x, dim=None, keepdim=False):
        if dim is None:
            return function(x)
        if not x.ndim:
            return x, np.zeros((), np.int64)
        return function(x, dim, keepdims=keepdim), places(x, dim, keepdims=keepdim)

    def drawn(draws):
        shape = draws.shape(empty=False)
        x = draws.real(shape, "away")
        return call(x) if draws.chance(25) else call(x, draws.dim(shape), draws.flag())

    return Rule(name, drawn, reference, "int64", repeats=False)


def _place(name):
    def reference(x, dim=None, keepdim=False):
        return getattr(np, name)(x, dim if x.ndim else None, keepdims=keepdim and bool(x.ndim))

    def drawn(draws):
        shape = draws.shape(empty=False)
        x = draws.real(shape, "ties") if draws.flag() else draws.whole(shape)
        return call(x) if draws.chance(25) else call(x, draws.dim(shape), draws.flag())

    return Rule(name, drawn, reference, "int64")


def _norm(draws):
    shape = draws.shape(1, 3, empty=False)
    p = draws.choice(1, 2, 3, float("inf"), 2.5)
    return call(draws.real(shape, "away"), p, draws.choice(draws.dim(shape), None), keepdim=draws.flag())


def _normed(x, p, dim=None, keepdim=False):
    size, axis = np.abs(x), _axes(x, dim)
    if p == float("inf"):
        return size.max(axis, keepdims=keepdim)
    return (size**p).sum(axis, keepdims=keepdim) ** (1 / p)


def _normalized(x, p=2.0, dim=1, eps=1e-12):
    return x / np.maximum(_normed(x, p, dim, True), eps)


def _normalize(draws):
    shape = draws.shape(1, 3, empty=False)
    return call(draws.real(shape, "away"), draws.choice(1, 2, 3.0), draws.dim(shape))


def _order(name):
    def drawn(draws):
        shape = draws.shape(empty=False)
        x = draws.real(shape, "away") if draws.flag() else draws.whole(shape, 0, 100)
        return call(x, draws.dim(shape), draws.flag(), stable=True)

    def reference(x, dim=-1, descending=False, stable=True):
        if not x.ndim:
            return (x, np.zeros((), np.int64)) if name == "sort" else np.zeros((), np.int64)
        x = np.moveaxis(x, dim, -1)
        if descending:  # equal ones stay in their order
            places = x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]
        else:
            places = np.argsort(x, -1, kind="stable")
        values = np.take_along_axis(x, places, -1)
        moved = [np.moveaxis(one, -1, dim) for one in (values, places)]
        return tuple(moved) if name == "sort" else moved[1]

    return Rule(name, drawn, reference, repeats=False)


def _topk(draws):
    shape = draws.shape(1, empty=False)
    dim = draws.dim(shape)
    return call(draws.real(shape, "away"), draws.integer(0, shape[dim]), dim, largest=draws.flag())


def _top(x, k, dim, largest):
    """The places of equal elements are anyone's, so there are none."""
    order = np.argsort(-x if largest else x, dim, kind="stable")
    places = np.take(order, range(k), dim)
    return np.take_along_axis(x, places, dim), places


WHOLE = "int64", "int32", "uint8", "bool"
RULES = [
    _reduced("sum", np.sum, WHOLE, out="sum"),
    _reduced("mean", np.mean, least=1),
    _reduced("prod", np.prod, ("int64",), several=False, out="sum"),
    _reduced("amax", np.amax, kind="away", repeats=False),
    _reduced("amin", np.amin, kind="away", repeats=False),
    _reduced("any", np.any, ("bool",), kind="ties", out="bool"),
    _reduced("all", np.all, ("bool",), kind="ties", out="bool"),
    *(Rule(name, *_spread(getattr(np, name)), repeats=name == "var") for name in ("var", "std")),
    Rule(
        "logsumexp",
        lambda draws: call(*_named(draws).args, keepdim=draws.flag()),
        lambda x, dim, keepdim: _logsumexp(x, _axes(x, dim), keepdim),
    ),
    Rule("cumsum", _named, _scan(np.cumsum)),
    Rule("cumprod", _named, _scan(np.cumprod)),
    Rule("softmax", _named, _softmax),
    Rule("log_softmax", _named, lambda x, dim: np.log(_softmax(x, dim))),
    Rule("norm", _norm, _normed, repeats=False, floats=("float64", "float32")),
    Rule("normalize", _normalize, _normalized, repeats=False, floats=("float64", "float32")),
    *map(_extreme, ("max", "min")),
    *map(_place, ("argmax", "argmin")),
    *map(_order, ("sort", "argsort")),
    Rule("topk", _topk, _top, "int64", repeats=False),
]
