"""Rules of the ops that pick elements, by index or by mask, and put them back."""

import numpy as np

from .draws import Rule, call


def _picked(draws, least=1):
    """(shape of the input, dim, shape of an index that is no larger elsewhere)"""
    shape = draws.shape(least, 3, empty=False)
    dim = draws.dim(shape)
    index = [draws.integer(0, n) for n in shape]
    index[dim] = draws.integer(0, 5)
    return shape, dim, tuple(index)


def _gather(draws):
    shape, dim, index = _picked(draws)
    return call(draws.real(shape), dim, draws.whole(index, 0, shape[dim], ("int64",)))


def _gathered(x, dim, index):
    places = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    return x[tuple(places)]


def _scatter_add(draws):
    shape, dim, index = _picked(draws)
    return call(draws.real(shape), dim, draws.whole(index, 0, shape[dim], ("int64",)), draws.real(index))


def _scattered(put):
    def reference(x, dim, index, src=None, value=None):
        x, places = x.copy(), list(np.indices(index.shape, sparse=True))
        places[dim] = index
        put(x, tuple(places), src if value is None else value)
        return x

    return reference


def _set(x, places, values):
    x[places] = values


def _scatter(draws):
    """Each place at most once, else the order would decide."""
    shape = draws.shape(1, 2, empty=False)
    dim = draws.dim(shape)
    order = np.argsort(draws.rng.random(shape), dim)
    index = draws.whole(shape, 0, 1, ("int64",))
    index.array[...] = order
    return call(draws.real(shape), dim, index, draws.real(shape))


def _index_select(draws):
    shape = draws.shape(1, 3, empty=False)
    dim = draws.dim(shape)
    return call(draws.real(shape), dim, draws.whole((draws.integer(0, 5),), 0, shape[dim], ("int64", "int32")))


def _embedding(draws):
    rows = draws.integer(1, 6)
    return call(draws.whole(draws.shape(0, 2), 0, rows, ("int64", "int32")), draws.real((rows, draws.integer(0, 4))))


def _one_hot(draws):
    return call(draws.whole(draws.shape(0, 3, empty=False), 0, 4, ("int64",)), draws.integer(4, 6))


def _masked(draws):
    shape = draws.shape()
    return call(draws.real(shape), draws.flags(shape))


RULES = [
    Rule("gather", _gather, _gathered),
    Rule("index_select", _index_select, lambda x, dim, index: x.take(index, dim)),
    Rule("scatter_add", _scatter_add, _scattered(np.add.at)),
    Rule("scatter", _scatter, _scattered(_set), repeats=False),
    Rule("embedding", _embedding, lambda index, weight: weight[index]),
    Rule("one_hot", _one_hot, lambda index, count: np.eye(count, dtype=np.int64)[index], "int64"),
    Rule("masked_select", _masked, lambda x, mask: x[mask]),
]
