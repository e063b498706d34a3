"""Rules of the ops that move elements without changing them."""

import numpy as np

from .draws import Rule, call


def _any(draws, shape):
    """Floating elements, or integers, or flags."""
    kind = draws.integer(0, 5)
    return draws.whole(shape) if kind == 0 else draws.flags(shape) if kind == 1 else draws.real(shape)


def _moved(name, arguments, reference, least=0, empty=True, most=4):
    """An op of one input: arguments(draws, shape) gives the others."""

    def drawn(draws):
        shape = draws.shape(least, most, empty)
        return call(_any(draws, shape), *arguments(draws, shape))

    return Rule(name, drawn, reference)


def _cut(draws, count):
    """Sizes whose product is count."""
    sizes = []
    while count > 1 and len(sizes) < 4:
        size = draws.choice(*(n for n in range(2, count + 1) if count % n == 0))
        sizes.append(size)
        count //= size
    return (*sizes, count) if count > 1 or draws.flag() else tuple(sizes)


def _reshaped(draws, shape):
    count = int(np.prod(shape))
    sizes = list(_cut(draws, count)) if count else [0, 3]
    if count and sizes and draws.chance(30):
        sizes[draws.integer(0, len(sizes) - 1)] = -1
    return (tuple(sizes),)


def _view(draws):
    """Of an array that lies densely, as a view must."""
    shape = draws.shape(empty=False)
    return call(draws.real(shape), *_reshaped(draws, shape))


def _flattened(x, start=0, end=-1):
    shape = x.shape or (1,)
    start, end = start % len(shape), end % len(shape)
    return x.reshape(*shape[:start], -1 if x.size else int(np.prod(shape[start : end + 1])), *shape[end + 1 :])


def _flatten(draws, shape):
    ends = sorted(draws.integer(0, max(len(shape) - 1, 0)) for _ in range(2))
    return tuple(ends)


def _unflatten(draws, shape):
    dim = draws.integer(0, len(shape) - 1)
    return dim, _cut(draws, shape[dim]) or (1,)


def _unflattened(x, dim, sizes):
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _squeezed(x, dim=None):
    dims = range(x.ndim) if dim is None else [d % x.ndim for d in np.atleast_1d(dim).astype(int)] if x.ndim else []
    return np.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def _two(draws, shape):
    return draws.dim(shape), draws.dim(shape)


def _transposed(x, first, second):
    return np.swapaxes(x, first, second) if x.ndim else x


def _permutation(draws, shape):
    order = list(range(len(shape)))
    return (tuple(axis - len(shape) if draws.flag() else axis for axis in draws.rng.permutation(order).tolist()),)


def _movedim(draws, shape):
    count = draws.integer(0, len(shape))
    return tuple(tuple(draws.rng.permutation(len(shape))[:count].tolist()) for _ in range(2))


def _expanded(draws):
    shape = draws.shape()
    return call(draws.real(draws.alike(shape)), shape)


def _rolled(draws, shape):
    if draws.chance(30):
        return (draws.integer(-9, 9),)
    dims = draws.dims(shape) or (0,)
    return tuple(draws.integer(-9, 9) for _ in dims), dims


def _repeated(draws, shape):
    return (tuple(draws.integer(0, 3) for _ in range(len(shape) + draws.integer(0, 1))),)


def _diagonal(draws, shape):
    dims = draws.rng.permutation(len(shape))[:2].tolist()
    return draws.integer(-3, 3), *dims


def _diagonals(x, offset, dim0, dim1):
    if offset >= x.shape[dim1] or -offset >= x.shape[dim0]:
        rest = [size for axis, size in enumerate(x.shape) if axis not in (dim0, dim1)]
        return np.zeros((*rest, 0), x.dtype)
    return np.diagonal(x, offset, dim0, dim1)


# ---- joins -----------------------------------------------------------------------------------------------------------


def _joined(draws, same):
    shape = draws.shape(0 if same else 1, 3)
    dim = draws.integer(-len(shape) - same, len(shape) - 1 + same)
    dim = dim if same else draws.dim(shape)
    shapes = [shape for _ in range(draws.integer(1, 3))]
    if not same:
        shapes = [
            tuple(draws.integer(0, 3) if d == dim % len(shape) else n for d, n in enumerate(shape)) for _ in shapes
        ]
    return call([draws.real(one) for one in shapes], dim)


def _split(draws, shape):
    dim = draws.dim(shape)
    if draws.flag():
        return max(1, draws.integer(1, 5)), dim
    first = draws.integer(0, shape[dim])
    return [first, shape[dim] - first], dim


def _pieces(x, sizes, dim=0):
    if isinstance(sizes, int):
        ends = range(sizes, max(x.shape[dim], 1), sizes)
    else:
        ends = np.cumsum(sizes)[:-1]
    return np.split(x, list(ends), dim)


def _chunks(x, count, dim=0):
    return _pieces(x, max(-(-x.shape[dim] // count), 1), dim) if x.shape[dim] else [x] * count


def _pad(draws, shape):
    pairs = draws.integer(1, len(shape))
    values = [draws.integer(0, 3) if draws.chance(85) else -min(1, shape[-1 - i // 2] // 2) for i in range(2 * pairs)]
    return tuple(values), "constant", draws.choice(0, 1)


def _padded(x, pad, mode, value):
    for i in range(0, len(pad), 2):
        axis = x.ndim - 1 - i // 2
        widths = [(0, 0)] * x.ndim
        widths[axis] = max(pad[i], 0), max(pad[i + 1], 0)
        x = np.pad(x, widths, constant_values=value)
        x = x[(slice(None),) * axis + (slice(max(-pad[i], 0), x.shape[axis] - max(-pad[i + 1], 0)),)]
    return x


def _entry(draws, size):
    """A subscript of one dimension."""
    kind = draws.integer(0, 3)
    if kind == 0 and size:
        return draws.integer(-size, size - 1)
    if kind == 1 and size:
        return draws.rng.integers(-size, size, 3).tolist()
    begin, end = draws.integer(-size - 1, size + 1), draws.integer(-size - 1, size + 1)
    return slice(draws.choice(None, begin), draws.choice(None, end), draws.choice(None, 1, 2, 3))


def _getitem(draws, shape):
    key = [_entry(draws, size) for size in shape[: draws.integer(0, len(shape))]]
    if draws.chance(20):
        key.insert(draws.integer(0, len(key)), None)
    if draws.chance(20):
        key.append(...)
    return (tuple(key),)


def _picked(x, key):
    """As PyTorch does: numbers pick first, and are none of the lists that broadcast, as they are in NumPy."""
    numbers = [one if isinstance(one, int) else slice(None) for one in key if one not in (None, ...)]
    return x[tuple(numbers)][tuple(one for one in key if not isinstance(one, int))]


def _dim(draws, shape):
    return (draws.dim(shape),)


RULES = [
    _moved("reshape", _reshaped, np.reshape),
    Rule("view", _view, np.reshape, layouts=("plain", "read-only", "swapped bytes")),
    _moved("flatten", _flatten, _flattened),
    _moved("unflatten", _unflatten, _unflattened, 1, False),
    _moved("squeeze", lambda draws, shape: draws.choice((), _dim(draws, shape)), _squeezed),
    _moved("unsqueeze", lambda draws, s: (draws.integer(-len(s) - 1, len(s)),), np.expand_dims),
    _moved("transpose", _two, _transposed),
    _moved("permute", _permutation, np.transpose),
    _moved("movedim", _movedim, np.moveaxis),
    *(Rule(name, _expanded, np.broadcast_to) for name in ("expand", "broadcast_to")),
    *(_moved(name, lambda draws, shape: (), np.copy) for name in ("clone", "contiguous", "to")),
    _moved("t", lambda draws, shape: (), np.transpose, most=2),
    _moved("flip", lambda draws, shape: (draws.dims(shape),), np.flip),
    _moved("roll", _rolled, np.roll, 1),
    _moved("repeat", _repeated, np.tile),
    _moved("tile", lambda draws, s: (tuple(draws.integer(0, 3) for _ in range(draws.integer(0, 3))),), np.tile),
    _moved("tril", lambda draws, shape: (draws.integer(-4, 4),), np.tril, 2),
    _moved("triu", lambda draws, shape: (draws.integer(-4, 4),), np.triu, 2),
    _moved("diagonal", _diagonal, _diagonals, 2),
    Rule("cat", lambda draws: _joined(draws, False), np.concatenate),
    Rule("stack", lambda draws: _joined(draws, True), np.stack),
    _moved("split", _split, _pieces, 1, False),
    _moved("chunk", lambda draws, s: (draws.integer(1, 5), draws.dim(s)), _chunks, 1, False),
    _moved("unbind", _dim, lambda x, dim: [x.take(i, dim) for i in range(x.shape[dim])], 1, False),
    _moved("pad", _pad, _padded, 1, False),
    _moved("getitem", _getitem, _picked, 1),
    _moved("nonzero", lambda draws, shape: (), lambda x: np.argwhere(x)),
]
