"""Convolution and its two gradients on the CPU: plans of plan.py run by toolchain/product.py."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from .. import pool2d
from ..layout import CHANNELS_LAST, FILTER
from ..toolchain import alias, threads
from ..toolchain.pooling import Windows
from ..toolchain.product import ALIGNMENT, Plan, aligned, run, scratch_bytes
from . import winograd_choice
from .filter_plan import fold, partial_count, shared_shape, weight_grad_plan
from .geometry import Geometry, output_shape
from .neighbours import finite, neighbours, spread
from .pixel_plan import forward_plan, input_grad_plan
from .reads import filter_order
from .scatter_plan import scatter
from .winograd_mode import mode

__all__ = ["forward", "forward_pooled", "input_grad", "weight_grad", "workspace"]

PLANS = {"forward": forward_plan, "input_grad": input_grad_plan, "weight_grad": weight_grad_plan}
POOLED_BYTES = 1 << 20  # of images in front of pooling, which should stay in the second cache


class _Setup(NamedTuple):
    """What a direction needs for a geometry; the workspace is `leading` elements, then scratch memory."""

    plan: Plan
    leading: int  # elements: the transposed or spread filter, or the partial sums
    bytes: int
    picks: np.ndarray | None = None  # see neighbours.py
    pixels: int = 1
    sums: tuple = ()  # shape of each partial sum
    exact: bool = True  # for sources with infinity and NaN too


@lru_cache(maxsize=1024)
def _setup(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count):
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    plan, leading, sums = PLANS[direction](geometry), 0, shared_shape(geometry)
    if direction == "input_grad":
        leading = prod(w_shape)
    elif direction == "weight_grad" and (partial_count(geometry) > 1 or prod(sums) > prod(w_shape)):
        leading = partial_count(geometry) * prod(sums)
    size = leading * itemsize + scratch_bytes(plan, itemsize)
    return _Setup(plan, leading, size + ALIGNMENT if size else 0, sums=sums)


@lru_cache(maxsize=1024)
def _near(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count):
    """As _setup, where few channels are made with neighbouring pixels side by side, if this pays."""
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    found = (direction == "input_grad" and scatter(geometry)) or neighbours(direction, geometry)
    plain = _setup(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count)
    if found is None:
        return plain
    leading = found.picks.size + found.pixels * w_shape[0]
    size = leading * itemsize + scratch_bytes(found.plan, itemsize) + ALIGNMENT
    return _Setup(found.plan, leading, max(size, plain.bytes), found.picks, found.pixels, exact=found.exact)


def _fitting(direction, source, *shape):
    """The setup for a source, 1-D; the rest as for _setup."""
    setup = _near(direction, *shape)
    return setup if setup.exact or finite(source) else _setup(direction, *shape)


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction; see the launcher."""
    settings = stride, padding, dilation, groups
    return _bytes(direction, x_shape, w_shape, settings, itemsize, threads(), mode())


@lru_cache(maxsize=1024)
def _bytes(direction, x_shape, w_shape, settings, itemsize, count, _mode):
    if direction == "forward_pooled":
        return _pooled_for(x_shape, w_shape, settings, itemsize).bytes
    setup = (_setup if direction == "weight_grad" else _near)(direction, x_shape, w_shape, *settings, itemsize, count)
    return max(setup.bytes, winograd_choice.winograd_bytes(direction, x_shape, w_shape, settings, itemsize))


def _flat(array, order):
    """The elements in the order in which they lie."""
    return alias(array).transpose(order).reshape(-1)


def _carve(setup, workspace, array):
    """The two parts of a workspace, and an empty array for an absent bias."""
    memory = aligned(workspace, array.dtype) if setup.bytes else np.empty(0, array.dtype)
    return memory[: setup.leading], memory[setup.leading :], memory[:0]


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace):
    """Convolution; see the launcher."""
    if winograd_choice.forward(x, w, bias, relu, (stride, padding, dilation, groups), out, workspace):
        return
    source = _flat(x, CHANNELS_LAST)
    setup = _fitting("forward", source, x.shape, w.shape, stride, padding, dilation, groups, x.itemsize, threads())
    leading, scratch, _ = _carve(setup, workspace, x)
    run(setup.plan, source, *_filters(setup, w, bias, leading), relu, _flat(out, CHANNELS_LAST), scratch)


def _filters(setup, w, bias, leading):
    """The filter and the bias as the plan reads them, spread into the start of memory where there are groups."""
    if setup.picks is None:
        return _flat(w, FILTER), leading[:0] if bias is None else alias(bias)
    filters, start = leading[: setup.picks.size], leading[setup.picks.size : setup.leading]
    spread(_flat(w, FILTER), setup.picks, filters)
    if bias is None:
        return filters, start[:0]
    start.reshape(setup.pixels, -1)[:] = bias
    return filters, start


class _Pooled(NamedTuple):
    """What forward_pooled needs; convolved: elements at the start of the workspace for all images, or 0."""

    convolved: int
    bytes: int


@lru_cache(maxsize=1024)
def _pooled(x_shape, w_shape, stride, padding, dilation, groups, itemsize, count, winograd_bytes):
    """Images that a thread has just made are pooled where they lie, if they and a block of them fit there.

    winograd_bytes: what the convolution takes by Winograd's way, which makes all images first; 0 if it is direct.
    """
    shape = x_shape, w_shape, stride, padding, dilation, groups, itemsize, count
    setups = [_near("forward", *shape), _setup("forward", *shape)]
    images, *image = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)
    blocks = [setup.plan.most * prod(image) * itemsize for setup in setups]
    if not winograd_bytes and 0 < min(blocks) and max(blocks) <= POOLED_BYTES:
        sizes = [setup.leading * itemsize + scratch_bytes(setup.plan, itemsize, prod(image)) for setup in setups]
        return _Pooled(0, max(sizes) + ALIGNMENT)
    convolved = images * prod(image)
    return _Pooled(convolved, convolved * itemsize + ALIGNMENT + max(setups[0].bytes, winograd_bytes))


def _pooled_for(x_shape, w_shape, settings, itemsize):
    by_winograd = winograd_choice.winograd_bytes("forward", x_shape, w_shape, settings, itemsize)
    return _pooled(x_shape, w_shape, *settings, itemsize, threads(), by_winograd)


@lru_cache(maxsize=1024)
def _window_table(windows, size, made, channels):
    return Windows(*windows, size, made, channels).table()


def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out, positions, workspace,
):  # fmt: skip
    """Convolution and max pooling; see the launcher."""
    settings, windows = (stride, padding, dilation, groups), (kernel_size, pool_stride, pool_padding, pool_dilation)
    convolved, _ = _pooled_for(x.shape, w.shape, settings, x.itemsize)
    n, o, *size = output_shape(x.shape, w.shape, None, *settings)
    scratch = aligned(workspace, x.dtype)
    if convolved:
        whole = scratch[:convolved].reshape(n, *size, o).transpose(0, 3, 1, 2)
        forward(x, w, bias, relu, *settings, whole, workspace[convolved * x.itemsize + ALIGNMENT :])
        pool2d.max_forward(whole, *windows, out, positions)
    elif out.size:
        table = _window_table(windows, tuple(size), out.shape[2:], o)
        source = _flat(x, CHANNELS_LAST)
        setup = _fitting("forward", source, x.shape, w.shape, *settings, x.itemsize, threads())
        filters = _filters(setup, w, bias, scratch)
        results = _flat(out, CHANNELS_LAST), scratch[setup.leading :]
        run(setup.plan, source, *filters, relu, *results, table, _flat(positions, CHANNELS_LAST))


@lru_cache(maxsize=1024)
def _slices(kernel, stride, dilation):
    """Of filter_order, along one axis: from and to which place the taps of a slice go."""
    result, place = [], 0
    for taps in filter_order(kernel, stride, dilation):
        if taps.size:
            step = int(taps[1] - taps[0]) if taps.size > 1 else -1
            end = int(taps[-1]) + step
            result.append((place, place + taps.size, slice(int(taps[0]), None if end < 0 else end, step)))
            place += taps.size
    return result


def _transpose(w, stride, dilation, out):
    """Copy the filter in the order of filter_order, as [p][q][o][c of a group]."""
    stored = w.transpose(2, 3, 0, 1)
    out = out.reshape(stored.shape)
    rows, columns = (_slices(*axis) for axis in zip(w.shape[2:], stride, dilation, strict=True))
    for row, row_end, p in rows:
        for column, column_end, q in columns:
            np.copyto(out[row:row_end, column:column_end], stored[p, q])


def input_grad(g, w, stride, padding, dilation, groups, dx, workspace):
    """Gradient with respect to x; see the launcher."""
    if winograd_choice.input_grad(g, w, (stride, padding, dilation, groups), dx, workspace):
        return
    source = _flat(g, CHANNELS_LAST)
    setup = _fitting("input_grad", source, dx.shape, w.shape, stride, padding, dilation, groups, g.itemsize, threads())
    filters, scratch, none = _carve(setup, workspace, g)
    if setup.picks is None:
        _transpose(w, stride, dilation, filters)
    else:
        filters, none = _filters(setup, w, None, filters)
    run(setup.plan, source, filters, none, False, _flat(dx, CHANNELS_LAST), scratch)


def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace):
    """Gradient with respect to w; see the launcher."""
    if winograd_choice.weight_grad(g, x, (stride, padding, dilation, groups), dw, workspace, _add_pairwise):
        return
    setup = _setup("weight_grad", x.shape, dw.shape, stride, padding, dilation, groups, g.itemsize, threads())
    partials, scratch, none = _carve(setup, workspace, g)
    total = _flat(dw, FILTER)
    if not x.size:
        total[:] = 0
        return
    target = partials if partials.size else total
    run(setup.plan, _flat(x, CHANNELS_LAST), _flat(g, CHANNELS_LAST), none, False, target, scratch)
    if not partials.size:
        return
    partials = partials.reshape(-1, prod(setup.sums))
    shared = setup.sums[3] > 1
    if len(partials) > 1:
        _add_pairwise(partials, partials[0] if shared else total)
    if shared:
        fold(partials[0].reshape(setup.sums), stride[1], dw.transpose(FILTER))


def _add_pairwise(partials, total):
    """Sum of the rows of `partials`, which are overwritten: the upper half is added to the lower, and so on."""
    count = len(partials)
    while count > 2:
        half = (count + 1) // 2
        np.add(partials[: count - half], partials[half:count], out=partials[: count - half])
        count = half
    np.add(partials[0], partials[1], out=total)
