"""Convolution and its two gradients on the CPU: plans of the files *_plan.py, run by toolchain/product.py."""

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from .. import pool2d
from ..elementwise.cpu import add_residual
from ..layout import FILTER
from ..toolchain import alias, threads
from ..toolchain.pooling import Windows
from ..toolchain.product import ALIGNMENT, Plan, aligned, flat, runner, scratch_bytes
from .filter_plan import Layout, add_parts, fold, partial_count
from .filters import FilterRows, copied, filter_rows, transposed
from .geometry import Geometry, output_shape
from .neighbours import finite, spread
from .pixel_plan import forward_plan, input_grad_plan
from .scatter_plan import near
from .window_plan import weight_grad_plan
from .winograd_choice import correlated, plans_of, summed, winograd_bytes
from .winograd_mode import mode

__all__ = ["ready", "workspace"]

PLANS = {"forward": forward_plan, "input_grad": input_grad_plan}
POOLED_BYTES = 1 << 20  # of images in front of pooling, which should stay in the second cache


class _Setup(NamedTuple):
    """What a direction needs for a geometry; the workspace is `leading` elements, then scratch memory."""

    plan: Plan
    run: Callable  # see product.runner
    leading: int  # elements: the transposed or spread filter, or the partial sums
    bytes: int
    picks: np.ndarray | None = None  # see neighbours.py
    pixels: int = 1
    rows: FilterRows | None = None  # of the copy of the filter in `leading`
    sums: Layout | None = None  # of weight_grad
    steps: tuple = ()  # stride and dilation
    exact: bool = True  # for sources with infinity and NaN too


class _Ways(NamedTuple):
    """How a direction may go: by plans of Winograd's if there are, for a finite source, for any source."""

    winograd: tuple
    near: _Setup
    plain: _Setup

    def setup(self, source):
        """The setup for a source, 1-D."""
        return self.near if self.near.exact or finite(source) else self.plain


@lru_cache(maxsize=1024)
def _ways(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count, _mode):
    winograd = plans_of(direction, x_shape, w_shape, (stride, padding, dilation, groups), itemsize)
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    plain = _setup(direction, geometry)
    return _Ways(winograd, plain if direction == "weight_grad" else _near(direction, geometry, plain), plain)


def _setup(direction, geometry):
    leading, rows, sums = 0, None, None
    if direction == "weight_grad":
        plan, sums = weight_grad_plan(geometry)
        if sums.folded or partial_count(geometry) > 1:
            leading = partial_count(geometry) * sums.size
    else:
        plan = PLANS[direction](geometry)
        made, depth, *kernel = geometry.w_shape
        rows = filter_rows(direction, geometry)
        if direction == "forward" and rows.step == made:
            rows = None
        else:
            leading = prod(kernel) * (depth if direction == "forward" else made) * sum(rows)
    size = leading * geometry.itemsize + scratch_bytes(plan, geometry.itemsize)
    steps = geometry.stride, geometry.dilation
    return _Setup(plan, runner(plan), leading, size + ALIGNMENT if size else 0, rows=rows, sums=sums, steps=steps)


def _near(direction, geometry, plain):
    """As _setup, where few channels are made with neighbouring pixels side by side, if this pays."""
    found = near(direction, geometry)
    if found is None:
        return plain
    leading = found.picks.size + found.pixels * geometry.w_shape[0]
    size = leading * geometry.itemsize + scratch_bytes(found.plan, geometry.itemsize) + ALIGNMENT
    made = _Setup(found.plan, runner(found.plan), leading, max(size, plain.bytes), found.picks, found.pixels)
    return made._replace(exact=found.exact)


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction; see the launcher."""
    settings = stride, padding, dilation, groups
    if direction == "forward_pooled":
        return _pooled(x_shape, w_shape, *settings, itemsize, threads(), mode()).bytes
    ways = _ways(direction, x_shape, w_shape, *settings, itemsize, threads(), mode())
    return max(ways.near.bytes, winograd_bytes(direction, x_shape, w_shape, settings, itemsize))


def ready(direction, x_shape, w_shape, settings, itemsize, windows=None, made=None):
    """What a launcher runs with the arrays of a call; windows, made: of pooling, and the size of what it gives."""
    if direction == "forward_pooled":
        ways = _with_pooling(x_shape, w_shape, settings, windows, made, itemsize, threads(), mode())
    else:
        ways = _ways(direction, x_shape, w_shape, *settings, itemsize, threads(), mode())
    return partial(DIRECTIONS[direction], ways)


def _carve(setup, workspace, array):
    """The two parts of a workspace, and an empty array for an absent bias."""
    memory = aligned(workspace, array.dtype) if setup.bytes else np.empty(0, array.dtype)
    return memory[: setup.leading], memory[setup.leading :], memory[:0]


def _forward(ways, x, w, bias, relu, residual, out, workspace):
    """The residual is added in a pass of its own, with ReLU."""
    if residual is not None:
        _forward(ways, x, w, bias, False, None, out, workspace)
        add_residual(flat(out), flat(residual), relu)
        return
    if ways.winograd and correlated(ways.winograd, x, w, bias, relu, out, workspace):
        return
    source = flat(x)
    setup = ways.setup(source)
    leading, scratch, _ = _carve(setup, workspace, x)
    setup.run(source, *_filters(setup, w, bias, leading), relu, flat(out), scratch)


def _filters(setup, w, bias, leading):
    """The filter and the bias as the plan reads them, in the start of memory where that is not how they lie."""
    if setup.picks is None:
        bias = leading[:0] if bias is None else alias(bias)
        if setup.rows is None:
            return flat(w), bias
        return copied(w, setup.rows, leading[: setup.leading]), bias
    filters, start = leading[: setup.picks.size], leading[setup.picks.size : setup.leading]
    spread(flat(w), setup.picks, filters)
    if bias is None:
        return filters, start[:0]
    start.reshape(setup.pixels, -1)[:] = bias
    return filters, start


class _Pooled(NamedTuple):
    """What forward_pooled needs; convolved: elements at the start of the workspace for all images, or 0."""

    ways: _Ways
    convolved: int
    bytes: int


@lru_cache(maxsize=1024)
def _pooled(x_shape, w_shape, stride, padding, dilation, groups, itemsize, count, _mode):
    """Images that a thread has just made are pooled where they lie, if they and a block of them fit there.

    Winograd's way makes all images first.
    """
    settings = stride, padding, dilation, groups
    ways = _ways("forward", x_shape, w_shape, *settings, itemsize, count, _mode)
    images, *image = output_shape(x_shape, w_shape, None, *settings)
    setups = ways.near, ways.plain
    blocks = [setup.plan.most * prod(image) * itemsize for setup in setups]
    if not ways.winograd and 0 < min(blocks) and max(blocks) <= POOLED_BYTES:
        sizes = [setup.leading * itemsize + scratch_bytes(setup.plan, itemsize, prod(image)) for setup in setups]
        return _Pooled(ways, 0, max(sizes) + ALIGNMENT)
    convolved = images * prod(image)
    by_winograd = winograd_bytes("forward", x_shape, w_shape, settings, itemsize)
    return _Pooled(ways, convolved, convolved * itemsize + ALIGNMENT + max(ways.near.bytes, by_winograd))


class _Pooling(NamedTuple):
    """ways: with pooling in the same pass; None where the images are made first, so many elements, of that shape."""

    ways: _Ways | None
    plain: _Ways
    convolved: int
    shape: tuple
    windows: tuple


@lru_cache(maxsize=1024)
def _with_pooling(x_shape, w_shape, settings, windows, made, itemsize, count, _mode):
    pooled = _pooled(x_shape, w_shape, *settings, itemsize, count, _mode)
    n, o, *size = output_shape(x_shape, w_shape, None, *settings)
    ways, found = pooled.ways, None
    if not pooled.convolved and prod(made):
        table = Windows(*windows, tuple(size), made, o).table()
        found = _Ways((), *(setup._replace(run=runner(setup.plan, table)) for setup in ways[1:]))
    return _Pooling(found, ways, pooled.convolved, (n, *size, o), windows)


def _forward_pooled(pooling, x, w, bias, relu, out, positions, workspace):
    if pooling.ways:
        source, scratch = flat(x), aligned(workspace, x.dtype)
        setup = pooling.ways.setup(source)
        results = flat(out), scratch[setup.leading :], flat(positions)
        setup.run(source, *_filters(setup, w, bias, scratch), relu, *results)
    elif pooling.convolved:
        whole = aligned(workspace, x.dtype)[: pooling.convolved].reshape(pooling.shape).transpose(0, 3, 1, 2)
        rest = workspace[pooling.convolved * x.itemsize + ALIGNMENT :]
        _forward(pooling.plain, x, w, bias, relu, None, whole, rest)
        pool2d.max_forward(whole, *pooling.windows, out, positions)


def _input_grad(ways, g, w, dx, workspace):
    if ways.winograd and correlated(ways.winograd, g, w, None, False, dx, workspace):
        return
    source = flat(g)
    setup = ways.setup(source)
    filters, scratch, none = _carve(setup, workspace, g)
    if setup.picks is None:
        transposed(w, *setup.steps, setup.rows, filters)
    else:
        filters, none = _filters(setup, w, None, filters)
    setup.run(source, filters, none, False, flat(dx), scratch)


def _weight_grad(ways, g, x, dw, workspace):
    if ways.winograd and summed(*ways.winograd, g, x, dw, workspace):
        return
    setup, total = ways.plain, flat(dw)
    partials, scratch, none = _carve(setup, workspace, g)
    if not x.size:
        total[:] = 0
        return
    target = partials if partials.size else total
    setup.run(flat(x), flat(g), none, False, target, scratch)
    if not partials.size:
        return
    sums = setup.sums
    partials = partials.reshape(-1, sums.size)
    if len(partials) > 1:
        add_parts(partials, partials[0] if sums.folded else total)
    if sums.folded:
        fold(partials[0], sums.pixels, sums.steps, setup.steps[0][1], dw.transpose(FILTER))


DIRECTIONS = {
    "forward": _forward,
    "forward_pooled": _forward_pooled,
    "input_grad": _input_grad,
    "weight_grad": _weight_grad,
}
