"""When a convolution goes by Winograd's way, its workspace, and its launch.

Winograd mixes the values of a tile, so one infinity or NaN would reach results that do not read it, and large numbers
overflow sooner. The kernels say whether all that they made was finite; where it was not, these functions return
False and the direct convolution does it again, so that NaN and infinity appear exactly where they belong.
"""

from functools import lru_cache
from math import prod

import numpy as np

from ..toolchain import alias, threads
from ..toolchain.product import ALIGNMENT, aligned, flat
from .geometry import Geometry, output_shape
from .winograd_kernels import correlate, sum_filter
from .winograd_mode import mode
from .winograd_plan import ITEMSIZE, correlation_plan, filter_plan

__all__ = ["correlated", "plan_of", "summed", "winograd_bytes"]

# Measured: from here on it is at least as fast as the direct way, mostly 1.2 to 2.5 times.
LEAST_TILES = 16  # over all images: fewer do not pay for the filter's frequencies
LEAST_PIXELS = 11  # of a tile, on average, of the 16 that it has
LEAST_CHANNELS = 8  # read or made: fewer waste most of a vector
LEAST_WORK = 256  # pixels of a tile by channels: 16 channels pay for the transforms of whole tiles
ZERO = np.zeros(1, np.int64)  # a table of one tap


def _pays(direction, x_shape, w_shape, size):
    """By shape alone, so that bits do not depend on the number of threads; size: of what is cut into tiles of 4x4.

    The transforms of what is read cost most: how many channels are made matters less.
    """
    channels = w_shape[0] if direction == "input_grad" else w_shape[1]
    tiles = x_shape[0] * prod(-(-length // 4) for length in size)
    pixels = x_shape[0] * prod(size)
    enough = tiles >= LEAST_TILES and min(w_shape[:2]) >= LEAST_CHANNELS
    return enough and pixels >= max(LEAST_PIXELS, LEAST_WORK / channels) * tiles


@lru_cache(maxsize=1024)
def _plan(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count, mode):
    """The plan, or None for the direct way."""
    fits = itemsize == ITEMSIZE and w_shape[2:] == (3, 3) and stride == dilation == (1, 1) and groups == 1
    if not mode or not fits or not prod(x_shape):
        return None
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    size = x_shape[2:] if direction == "input_grad" else out_size
    if mode != "always" and not _pays(direction, x_shape, w_shape, size):
        return None
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    if direction == "weight_grad":
        return filter_plan(geometry)
    return correlation_plan(geometry, direction == "input_grad")


def plan_of(direction, x_shape, w_shape, settings, itemsize):
    """The plan for as many threads as now, None where it is direct. Settings: stride, padding, dilation, groups."""
    return _plan(direction, x_shape, w_shape, *settings, itemsize, threads(), mode())


def winograd_bytes(direction, x_shape, w_shape, settings, itemsize):
    """Bytes of workspace for a direction; 0 where it is direct. Settings as for plan_of."""
    plan = plan_of(direction, x_shape, w_shape, settings, itemsize)
    return 0 if plan is None else (plan.leading + plan.shares * plan.form.share) * ITEMSIZE + ALIGNMENT


def _finite(plan, scratch):
    """Whether all threads found all results finite."""
    form = plan.form
    return all(scratch.item(own * form.share + form.finite_at) for own in range(plan.shares))


def correlated(plan, x, w, bias, relu, out, workspace):
    """Whether out now holds the convolution, or dx the gradient for x and w in the place of g and w."""
    scratch = aligned(workspace, x.dtype)
    none = scratch[:0]
    correlate.on(
        plan.shares, plan.shares, plan.form, plan.items, plan.a_rows, plan.c_rows, ZERO,
        flat(x), flat(w), none, none if bias is None else alias(bias), int(relu),
        flat(out), scratch,
    )  # fmt: skip
    return _finite(plan, scratch)


def summed(plan, g, x, dw, workspace, add):
    """Whether dw now holds the gradient of the filter. add(partials, total) sums rows into total."""
    memory = aligned(workspace, g.dtype)
    partials, scratch = memory[: plan.leading], memory[plan.leading :]
    total = flat(dw)
    sum_filter.on(
        plan.shares, plan.shares, plan.form, plan.items, plan.partials, plan.a_rows, plan.c_rows, ZERO,
        flat(x), flat(g), scratch[:0], partials if plan.leading else total, scratch,
    )  # fmt: skip
    if not _finite(plan, scratch):
        return False
    if plan.leading:
        add(partials.reshape(-1, total.size), total)
    return True
