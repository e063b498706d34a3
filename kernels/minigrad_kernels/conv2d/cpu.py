"""Convolution and its two gradients on the CPU.

A reader's path: plan.py says which matrix products make the result, toolchain/product.py runs them on a team of
threads, and toolchain/vector.py has the tile in registers where all the time is spent. winograd_plan.py takes the
calls for which fewer multiplications do. This file chooses and runs.
"""

from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from ..elementwise.cpu import add_residual
from ..layout import FILTER
from ..toolchain import alias, elements, jit, sum_rows, threads
from ..toolchain.modes import winograd_mode
from ..toolchain.pooling import WINDOWS
from ..toolchain.product import flat, runner
from .geometry import Geometry, output_shape
from .plan import ways
from .winograd_plan import Winograd, correlated, plan_of, summed

POOLED_BYTES = 1 << 20  # of images in front of pooling, which should stay in the second cache


class _Ways(NamedTuple):
    """How a call may go: by Winograd's way if there is a plan; for a finite source; for any source.

    others  (Way, what runs it, see product.runner)
    """

    winograd: Winograd | None
    others: list

    def other(self, source):
        """That of others for a source, 1-D."""
        return self.others[0] if len(self.others) == 1 or _are_finite(source) else self.others[-1]


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
    others = [(way, runner(way.plan)) for way in ways(direction, geometry)]
    return _Ways(plan_of(direction, geometry, winograd), others)


def ready(direction, x_shape, w_shape, settings, itemsize):
    """What a launcher runs."""
    return partial(
        DIRECTIONS[direction], _ways(direction, x_shape, w_shape, *settings, itemsize, threads(), winograd_mode())
    )


# ---- directions ------------------------------------------------------------------------------------------------------


def _forward(ways, x, w, bias, relu, _stride, _padding, _dilation, _groups, out, workspace, residual=None):
    """The residual is added in a pass of its own, with ReLU."""
    last = relu and residual is None
    if not (ways.winograd and correlated(ways.winograd, x, w, bias, last, out, workspace)):
        source = flat(x)
        way, run = ways.other(source)
        run(source, *_spread(way, w, bias, workspace), last, flat(out), workspace)
    if residual is not None:
        add_residual(flat(out), flat(residual), relu)


def _spread(way, w, bias, workspace):
    """The filter and the bias as the plan reads them."""
    if way.picks is None:
        return flat(w), np.empty(0, w.dtype) if bias is None else alias(bias)
    leading, size = elements(workspace, w, w.dtype, way.leading), way.picks.size
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


def _input_grad(ways, g, w, _stride, _padding, _dilation, _groups, dx, workspace):
    if ways.winograd and correlated(ways.winograd, g, w, None, False, dx, workspace):
        return
    way, run = ways.others[0]
    filters = flat(w)
    if way.row:  # [p][o][q][c]
        made, depth, height, width = w.shape
        lines, filters = filters.reshape(height, width * depth, made), elements(workspace, g, g.dtype, way.leading)
        filters.reshape(height, made, -1)[..., : width * depth] = lines.transpose(0, 2, 1)
    run(flat(g), filters, filters[:0], False, flat(dx), workspace)


def _weight_grad(ways, g, x, _stride, _padding, _dilation, _groups, dw, workspace):
    total, (way, run) = flat(dw), ways.others[0]
    if not x.size:
        total[:] = 0
        return
    steps, parts = (), ways.winograd and summed(ways.winograd, g, x, total, workspace)
    if parts is None:
        steps, parts = way.steps, elements(workspace, g, g.dtype, way.leading) if way.leading else total
        run(flat(x), flat(g), parts[:0], False, parts, workspace)
    if parts is not total:
        parts = parts.reshape(way.parts, -1)
        if len(parts) > 1:
            sum_rows(parts, parts[0] if steps else total)
    if steps:
        _fold(parts[0], way.pixels, steps, dw.transpose(FILTER))


@jit
def _fold(sums, pixels, steps, dw):
    """dw, [p][q][c][o], from a partial sum; see plan.Way."""
    from_pixel, from_p, from_q, from_c, from_o = steps
    for p in range(dw.shape[0]):
        for q in range(dw.shape[1]):
            for c in range(dw.shape[2]):
                for o in range(dw.shape[3]):
                    place = p * from_p + q * from_q + c * from_c + o * from_o
                    total = sums[place]
                    for pixel in range(1, pixels):
                        total += sums[place + pixel * from_pixel]
                    dw[p, q, c, o] = total


# ---- with pooling ----------------------------------------------------------------------------------------------------


def pooling(x_shape, w_shape, settings, itemsize, windows, made):
    """What runs forward_pooled in one pass, for windows that make images of this size; None where none does.

    Images that a thread has just made are pooled where they lie, if they and a block of them fit there. Winograd's way
    makes all images first.
    """
    ways = _ways("forward", x_shape, w_shape, *settings, itemsize, threads(), winograd_mode())
    _, o, *size = output_shape(x_shape, w_shape, None, *settings)
    blocks = [way.plan.most * o * prod(size) * itemsize for way, _ in ways.others]
    if ways.winograd or not 0 < min(blocks) <= max(blocks) <= POOLED_BYTES:
        return None
    table = np.array([(*windows, size, made, o)], WINDOWS)
    return partial(_pool, _Ways(None, [(way, runner(way.plan, table)) for way, _ in ways.others]))


def _pool(ways, x, w, bias, relu, *others):
    source, (out, positions, workspace) = flat(x), others[-3:]
    way, run = ways.other(source)
    run(source, *_spread(way, w, bias, workspace), relu, flat(out), workspace, flat(positions))


DIRECTIONS = {"forward": _forward, "input_grad": _input_grad, "weight_grad": _weight_grad}
