"""Convolution and its two gradients on the CPU: plans of plan.py run by toolchain/product.py."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from .. import elementwise, pool2d
from ..layout import CHANNELS_LAST, FILTER
from ..toolchain import alias, threads
from ..toolchain.product import ALIGNMENT, Plan, aligned, run, scratch_bytes
from .filter_plan import partial_count, weight_grad_plan
from .geometry import Geometry, output_shape
from .pixel_plan import forward_plan, input_grad_plan
from .reads import filter_order

__all__ = ["forward", "forward_pooled", "input_grad", "weight_grad", "workspace"]

PLANS = {"forward": forward_plan, "input_grad": input_grad_plan, "weight_grad": weight_grad_plan}


class _Setup(NamedTuple):
    """What a direction needs for a geometry; the workspace is `leading` elements, then scratch memory."""

    plan: Plan
    leading: int  # elements: the transposed filter, or the partial sums
    bytes: int


@lru_cache(maxsize=1024)
def _setup(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count):
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    plan, leading = PLANS[direction](geometry), 0
    if direction == "input_grad":
        leading = prod(w_shape)
    elif direction == "weight_grad" and partial_count(geometry) > 1:
        leading = partial_count(geometry) * prod(w_shape)
    size = leading * itemsize + scratch_bytes(plan, itemsize)
    return _Setup(plan, leading, size + ALIGNMENT if size else 0)


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction; see the launcher."""
    settings = stride, padding, dilation, groups
    if direction == "forward_pooled":
        convolved = prod(output_shape(x_shape, w_shape, None, *settings)) * itemsize + ALIGNMENT
        return convolved + _setup("forward", x_shape, w_shape, *settings, itemsize, threads()).bytes
    return _setup(direction, x_shape, w_shape, *settings, itemsize, threads()).bytes


def _flat(array, order):
    """The elements in the order in which they lie."""
    return alias(array).transpose(order).reshape(-1)


def _carve(setup, workspace, array):
    """The two parts of a workspace, and an empty array for an absent bias."""
    memory = aligned(workspace, array.dtype) if setup.bytes else np.empty(0, array.dtype)
    return memory[: setup.leading], memory[setup.leading :], memory[:0]


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace):
    """Convolution; see the launcher."""
    setup = _setup("forward", x.shape, w.shape, stride, padding, dilation, groups, x.itemsize, threads())
    _, scratch, none = _carve(setup, workspace, x)
    start = none if bias is None else alias(bias)
    run(setup.plan, _flat(x, CHANNELS_LAST), _flat(w, FILTER), start, _flat(out, CHANNELS_LAST), scratch)
    if relu:
        elementwise.relu(out, out)


def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out, positions, workspace,
):  # fmt: skip
    """Convolution and max pooling; see the launcher."""
    n, o, *size = output_shape(x.shape, w.shape, None, stride, padding, dilation, groups)
    end = n * o * prod(size) * x.itemsize + ALIGNMENT
    convolved = aligned(workspace[:end], x.dtype)[: n * o * prod(size)].reshape(n, *size, o).transpose(0, 3, 1, 2)
    forward(x, w, bias, relu, stride, padding, dilation, groups, convolved, workspace[end:])
    pool2d.max_forward(convolved, kernel_size, pool_stride, pool_padding, pool_dilation, out, positions)


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
    setup = _setup("input_grad", dx.shape, w.shape, stride, padding, dilation, groups, g.itemsize, threads())
    transposed, scratch, none = _carve(setup, workspace, g)
    _transpose(w, stride, dilation, transposed)
    run(setup.plan, _flat(g, CHANNELS_LAST), transposed, none, _flat(dx, CHANNELS_LAST), scratch)


def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace):
    """Gradient with respect to w; see the launcher."""
    setup = _setup("weight_grad", x.shape, dw.shape, stride, padding, dilation, groups, g.itemsize, threads())
    partials, scratch, none = _carve(setup, workspace, g)
    total = _flat(dw, FILTER)
    if not x.size:
        total[:] = 0
        return
    target = partials if partials.size else total
    run(setup.plan, _flat(x, CHANNELS_LAST), _flat(g, CHANNELS_LAST), none, target, scratch)
    if partials.size:
        _add_pairwise(partials.reshape(-1, total.size), total)


def _add_pairwise(partials, total):
    """Sum of the rows of `partials`, which are overwritten: the upper half is added to the lower, and so on."""
    count = len(partials)
    while count > 2:
        half = (count + 1) // 2
        np.add(partials[: count - half], partials[half:count], out=partials[: count - half])
        count = half
    np.add(partials[0], partials[1], out=total)
