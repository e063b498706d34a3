"""Convolution and its two gradients on the CPU.

A reader's path: plan.py says which matrix products make the result, toolchain/product.py runs them on a team of
threads, and toolchain/vector.py has the tile in registers where all the time is spent. winograd_plan.py takes the
calls for which fewer multiplications do. This file chooses, lays out the workspace, and runs.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from .. import pool2d
from ..elementwise.cpu import add_residual
from ..layout import FILTER
from ..toolchain import alias, jit, sum_rows, threads
from ..toolchain.pooling import Windows
from ..toolchain.product import ALIGNMENT, aligned, flat, runner, scratch_bytes
from .geometry import Geometry, output_shape
from .plan import Way, ways
from .winograd_mode import mode
from .winograd_plan import Winograd, correlated, plan_of, summed

POOLED_BYTES = 1 << 20  # of images in front of pooling, which should stay in the second cache


class _Setup(NamedTuple):
    """A way for a geometry; the workspace is what it leads with, then scratch memory."""

    way: Way
    run: Callable  # see product.runner
    bytes: int


class _Ways(NamedTuple):
    """How a call may go: by Winograd's way if there is a plan; for a finite source; for any source."""

    winograd: Winograd | None
    setups: list
    bytes: int = 0  # of the workspace

    def setup(self, source):
        """The setup for a source, 1-D."""
        return self.setups[0] if len(self.setups) == 1 or _are_finite(source) else self.setups[-1]


@jit
def _are_finite(x):
    """Whether neither infinities nor NaN are among the elements: those minus themselves are NaN."""
    found = False
    for k in range(x.size):
        found |= x[k] - x[k] != 0
    return not found


@lru_cache(maxsize=1024)
def _ways(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count, winograd):
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    plan = plan_of(direction, geometry, winograd)
    setups = [_setup(way, itemsize) for way in ways(direction, geometry)]
    return _Ways(plan, setups, max(one.bytes for one in (*setups, plan) if one))


def _setup(way, itemsize):
    size = way.leading * itemsize + scratch_bytes(way.plan, itemsize)
    return _Setup(way, runner(way.plan), size + ALIGNMENT if size else 0)


def ready(direction, x_shape, w_shape, settings, itemsize, windows=None, made=None):
    """(bytes of workspace, what a launcher runs with the arrays of a call).

    windows, made: of pooling, and the size of what it gives
    """
    settings = *settings, itemsize, threads(), mode()
    if direction == "forward_pooled":
        return _pooling(x_shape, w_shape, settings, windows, made)
    ways = _ways(direction, x_shape, w_shape, *settings)
    return ways.bytes, partial(DIRECTIONS[direction], ways)


def _carve(setup, workspace, array):
    """The two parts of a workspace."""
    memory = aligned(workspace, array.dtype) if setup.bytes else np.empty(0, array.dtype)
    return memory[: setup.way.leading], memory[setup.way.leading :]


# ---- directions ------------------------------------------------------------------------------------------------------


def _forward(ways, x, w, bias, relu, out, workspace, residual=None):
    """The residual is added in a pass of its own, with ReLU."""
    if residual is not None:
        _forward(ways, x, w, bias, False, out, workspace)
        add_residual(flat(out), flat(residual), relu)
        return
    if ways.winograd and correlated(ways.winograd, x, w, bias, relu, out, workspace):
        return
    source = flat(x)
    setup = ways.setup(source)
    leading, scratch = _carve(setup, workspace, x)
    setup.run(source, *_spread(setup.way, w, bias, leading), relu, flat(out), scratch)


def _spread(way, w, bias, leading):
    """The filter and the bias as the plan reads them."""
    if way.picks is None:
        return flat(w), np.empty(0, w.dtype) if bias is None else alias(bias)
    size = way.picks.size
    filters, start = leading[:size], leading[size : size if bias is None else way.leading]
    _pick(way.picks, flat(w), start if bias is None else alias(bias), filters, start)
    return filters, start


@jit
def _pick(picks, w, bias, filters, start):
    """Elements of the filter, 0 where the number is negative, and the bias, as often as there is room for it."""
    for k in range(picks.size):
        filters[k] = w[picks[k]] if picks[k] >= 0 else 0
    for k in range(start.size):
        start[k] = bias[k % bias.size]


def _input_grad(ways, g, w, dx, workspace):
    if ways.winograd and correlated(ways.winograd, g, w, None, False, dx, workspace):
        return
    setup = ways.setups[0]
    filters, scratch = _carve(setup, workspace, g)
    if setup.way.row:  # [p][o][q][c]
        made, depth, height, width = w.shape
        lines = flat(w).reshape(height, width * depth, made)
        filters.reshape(height, made, -1)[..., : width * depth] = lines.transpose(0, 2, 1)
    else:
        filters = flat(w)
    setup.run(flat(g), filters, scratch[:0], False, flat(dx), scratch)


def _weight_grad(ways, g, x, dw, workspace):
    total, way = flat(dw), ways.setups[0].way
    if not x.size:
        total[:] = 0
        return
    if ways.winograd and summed(ways.winograd, g, x, total, workspace):
        steps, parts = (), aligned(workspace, g.dtype)[: ways.winograd.leading]
    else:
        steps, (parts, scratch) = way.steps, _carve(ways.setups[0], workspace, g)
        ways.setups[0].run(flat(x), flat(g), scratch[:0], False, parts if parts.size else total, scratch)
    if parts.size:
        parts = parts.reshape(way.parts, -1)
        if len(parts) > 1:
            sum_rows(parts, parts[0] if steps else total)
    if steps:
        _fold(parts[0], way.pixels, steps, dw.transpose(FILTER))


@jit
def _fold(sums, pixels, steps, dw):
    """dw, [p][q][c][o], from a partial sum; see plan.Way."""
    for p in range(dw.shape[0]):
        for q in range(dw.shape[1]):
            for c in range(dw.shape[2]):
                for o in range(dw.shape[3]):
                    place = p * steps[1] + q * steps[2] + c * steps[3] + o * steps[4]
                    total = sums[place]
                    for pixel in range(1, pixels):
                        total += sums[place + pixel * steps[0]]
                    dw[p, q, c, o] = total


# ---- with pooling ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pooled(x_shape, w_shape, *settings):
    """(ways, whether all images are made first, at the start of the workspace, its bytes) of forward_pooled.

    Images that a thread has just made are pooled where they lie, if they and a block of them fit there. Winograd's way
    makes all images first.
    """
    ways, itemsize = _ways("forward", x_shape, w_shape, *settings), settings[-3]
    images, *image = output_shape(x_shape, w_shape, None, *settings[:4])
    blocks = [setup.way.plan.most * prod(image) * itemsize for setup in ways.setups]
    if not ways.winograd and 0 < min(blocks) and max(blocks) <= POOLED_BYTES:
        sizes = [s.way.leading * itemsize + scratch_bytes(s.way.plan, itemsize, prod(image)) for s in ways.setups]
        return ways, False, max(sizes) + ALIGNMENT
    return ways, True, images * prod(image) * itemsize + ALIGNMENT + ways.bytes


def _pooling(x_shape, w_shape, settings, windows, made):
    """As `ready`: with pooling in the same pass, or behind images that are made first."""
    ways, convolved, wanted = _pooled(x_shape, w_shape, *settings)
    n, o, *size = output_shape(x_shape, w_shape, None, *settings[:4])
    if windows is None or not prod(made):
        return wanted, lambda *_: None
    if convolved:
        return wanted, partial(_convolve_and_pool, ways, (n, *size, o), windows)
    table = Windows(*windows, tuple(size), made, o).table()
    ways = _Ways(None, [setup._replace(run=runner(setup.way.plan, table)) for setup in ways.setups])
    return wanted, partial(_pool, ways)


def _pool(ways, x, w, bias, relu, out, positions, workspace):
    source, memory = flat(x), aligned(workspace, x.dtype)
    setup = ways.setup(source)
    filters = _spread(setup.way, w, bias, memory)
    setup.run(source, *filters, relu, flat(out), memory[setup.way.leading :], flat(positions))


def _convolve_and_pool(ways, shape, windows, x, w, bias, relu, out, positions, workspace):
    whole, rest = aligned(workspace, x.dtype)[: prod(shape)], workspace[prod(shape) * x.itemsize + ALIGNMENT :]
    whole = whole.reshape(shape).transpose(0, 3, 1, 2)
    _forward(ways, x, w, bias, relu, whole, rest)
    pool2d.max_forward(whole, *windows, out, positions)


DIRECTIONS = {"forward": _forward, "input_grad": _input_grad, "weight_grad": _weight_grad}
