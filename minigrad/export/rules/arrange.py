"""Operations that put elements elsewhere, pick or repeat them."""

import numpy as np

from ... import device
from ...ops.shape import arrange, joins, pick, select, views
from ...ops.shape import pads as borders
from ..sizes import ExportError, Size
from .table import rule

__all__: list[str] = []

LAST = (1 << 63) - 1  # slices end at the axis wherever that is


def _fixed(size, what):
    if isinstance(size, Size):
        raise ExportError(f"{what} goes along the batch, whose size is left open")
    return size


@rule(views._reshape)
def _reshape(graph, results, input, shape):
    return graph.reshape(input, shape)


@rule(views._permute)
def _permute(graph, results, input, dims):
    return graph.node("Transpose", input, perm=dims)


@rule(views._expand)
def _expand(graph, results, input, shape):
    own = (1,) * (len(shape) - input.ndim) + input.shape
    return graph.node("Expand", input, graph.integers([1 if n == m else n for n, m in zip(shape, own, strict=True)]))


@rule(views._copy)
def _copy(graph, results, input, order):
    return input.name


@rule(pick._scaled_back)
def _scaled_back(graph, results, input, scale):
    return input.name


@rule(arrange._tile)
def _tile(graph, results, input, dims):
    return graph.node("Tile", input, graph.integers(dims))


@rule(arrange._roll)
def _roll(graph, results, input, shifts, dims):
    out = input.name
    for shift, axis in zip(shifts, dims, strict=True):
        out = graph.node("Gather", out, np.roll(np.arange(_fixed(input.shape[axis], "roll")), shift), axis=axis)
    return out


@rule(arrange._triangle)
def _triangle(graph, results, input, name, diagonal):
    return graph.node("Trilu", input, np.array(diagonal, np.int64), upper=int(name == "triu"))


@rule(joins._cat)
def _cat(graph, results, tensors, dim):
    ndim, dtype = results[0].ndim, results[0].dtype
    joined = [one for one in tensors if not joins._is_nothing(one.shape, ndim)]
    joined = [one for one in joined if one.shape[dim] != 0] or joined[:1]
    return graph.node("Concat", *[graph.cast(one, dtype) for one in joined], axis=dim)


@rule(borders._pad)
def _pad(graph, results, input, widths, value):
    before, after = zip(*widths, strict=True) if widths else ((), ())
    pads = graph.integers((*before, *after))
    return graph.node("Pad", input, pads, graph.number(value, input.dtype), mode="constant")


# ---- by subscripts ---------------------------------------------------------------------------------------------------


@rule(select._getitem)
def _getitem(graph, results, input, key):
    axis, cuts, gone, new, at = 0, [], [], [], 0
    for part in key:
        if part is None:
            new.append(at)
            at += 1
            continue
        if isinstance(part, slice):
            if part != slice(None):
                cuts.append((axis, *_bounds(part)))
            at += 1
        else:
            cuts.append((axis, part, LAST if part == -1 else part + 1, 1))
            gone.append(axis)
        axis += 1
    out = input.name
    if cuts:
        axes, starts, ends, steps = zip(*cuts, strict=True)
        out = graph.node("Slice", out, *map(graph.integers, (starts, ends, axes, steps)))
    if gone:
        out = graph.node("Squeeze", out, graph.integers(gone))
    return graph.node("Unsqueeze", out, graph.integers(new)) if new else out


def _bounds(part):
    step = 1 if part.step is None else part.step
    if isinstance(step, Size):
        raise ExportError(f"a step is {step}, which must not depend on the batch")
    first, last = (0, LAST) if step > 0 else (LAST, -LAST)
    return first if part.start is None else part.start, last if part.stop is None else part.stop, step


@rule(select.pick)
def _pick(graph, results, input, places, axis):
    return graph.node("Gather", input, places if not device.is_array(places) else device.host(places), axis=axis)
