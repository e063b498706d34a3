"""When a convolution goes by Winograd's way, its workspace, and its launch.

Winograd mixes the values of a tile, so one infinity or NaN would reach results that do not read it, and large numbers
overflow sooner. The kernels say whether all that they made was finite; where it was not, these functions return
False and the direct convolution does it again, so that NaN and infinity appear exactly where they belong.
"""

from functools import lru_cache, partial
from math import prod

from ..toolchain import alias, threads
from ..toolchain.product import ALIGNMENT, ROWS, aligned, flat, plan_cost
from .filter_plan import add_parts
from .geometry import Geometry, output_shape
from .pixel_plan import forward_plan, input_grad_plan
from .scatter_plan import near
from .window_plan import weight_grad_plan
from .winograd_kernels import correlate, sum_filter
from .winograd_mode import mode
from .winograd_pieces import forward_grid, input_grad_grids
from .winograd_plan import ITEMSIZE, LANES, correlation_plan, filter_plan

__all__ = ["correlated", "plans_of", "summed", "winograd_bytes"]

# Fitted to the times of layers drawn at random, with vectors of 8 lanes, on two threads.
TAPS = 3, 4  # of a piece along an axis; others hardly gain
LEAST_TILES = 16  # over all images: fewer do not pay for the filter's frequencies
LEAST_CHANNELS = 3  # read or made
TRANSFORM, SUM = 150, 8  # what a transform of a tile's channel costs, and what a sum does beside its products
NARROW = 0.75  # of a product with two vectors, what one with one costs
WORTH = 0.8  # of the multiplications of the direct way


def _grids(direction, geometry, taps):
    return input_grad_grids(geometry, taps) if direction == "input_grad" else [forward_grid(geometry, taps)]


def _cost(direction, geometry, grids):
    """In multiplications, for an image."""
    made, read = geometry.w_shape[:2] if direction != "input_grad" else geometry.w_shape[1::-1]
    wide, rest = divmod(made, 2 * LANES)
    columns = 2 * LANES * (wide + (NARROW if 0 < rest <= LANES else rest > 0))
    return sum(
        grid.products * columns * (read + SUM) + prod(grid.tiles) * TRANSFORM * (len(grid.pieces) * read + made)
        for grid in grids
    )


def _direct_cost(direction, geometry):
    """The same of the best plan that there is otherwise, for one of its images."""
    one = geometry._replace(threads=1, x_shape=(1, *geometry.x_shape[1:]))
    if direction == "weight_grad":
        plan = weight_grad_plan(one)[0]
    else:
        found = near(direction, one)
        plan = found.plan if found else (forward_plan if direction == "forward" else input_grad_plan)(one)
    return plan_cost(plan, ITEMSIZE) * ROWS * 2 * LANES


def _pays(direction, geometry, grids):
    """By shape alone, so that bits do not depend on the number of threads."""
    images, channels = geometry.x_shape[0], geometry.w_shape[:2]
    if images * sum(prod(grid.tiles) for grid in grids) < LEAST_TILES or min(channels) < LEAST_CHANNELS:
        return False
    if images * prod(channels) * sum(grid.products for grid in grids) >= geometry.work:  # as with 1x1
        return False
    return _cost(direction, geometry, grids) <= WORTH * _direct_cost(direction, geometry)


@lru_cache(maxsize=1024)
def _plans(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize, count, mode):
    """Plans that make the result together, or none for the direct way."""
    fits = itemsize == ITEMSIZE and dilation == (1, 1) and groups == 1
    reaches = all(kernel >= step for kernel, step in zip(w_shape[2:], stride, strict=True))
    if not mode or not fits or not reaches or not prod(x_shape):
        return ()
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    geometry = Geometry(x_shape, w_shape, out_size, stride, padding, dilation, groups, itemsize, count)
    grids = min((_grids(direction, geometry, taps) for taps in TAPS), key=partial(_cost, direction, geometry))
    if mode != "always" and not _pays(direction, geometry, grids):
        return ()
    if direction == "weight_grad":
        return (filter_plan(geometry, *grids),)
    return tuple(correlation_plan(geometry, grid, direction == "input_grad") for grid in grids)


def plans_of(direction, x_shape, w_shape, settings, itemsize):
    """The plans for as many threads as now, none where it is direct. Settings: stride, padding, dilation, groups."""
    return _plans(direction, x_shape, w_shape, *settings, itemsize, threads(), mode())


def winograd_bytes(direction, x_shape, w_shape, settings, itemsize):
    """Bytes of workspace for a direction; 0 where it is direct. Settings as for plans_of."""
    plans = plans_of(direction, x_shape, w_shape, settings, itemsize)
    sizes = [(plan.leading + plan.shares * plan.form["share"].item()) * ITEMSIZE + ALIGNMENT for plan in plans]
    return max(sizes, default=0)


def _finite(plan, scratch):
    """Whether all threads found all results finite."""
    share, at = plan.form["share"].item(), plan.form["finite_at"].item()
    return all(scratch.item(own * share + at) for own in range(plan.shares))


def correlated(plans, x, w, bias, relu, out, workspace):
    """Whether out now holds the convolution, or dx the gradient for x and w in the place of g and w."""
    scratch = aligned(workspace, x.dtype)
    none = scratch[:0]
    bias = none if bias is None else alias(bias)
    for plan in plans:
        correlate.on(plan.shares, plan.shares, *plan[:6], flat(x), flat(w), none, bias, int(relu), flat(out), scratch)
        if not _finite(plan, scratch):
            return False
    return True


def summed(plan, g, x, dw, workspace):
    """Whether dw now holds the gradient of the filter."""
    memory = aligned(workspace, g.dtype)
    partials, scratch = memory[: plan.leading], memory[plan.leading :]
    total = flat(dw)
    sum_filter.on(
        plan.shares, plan.shares, *plan[:6],
        flat(x), flat(g), scratch[:0], partials if plan.leading else total, scratch,
    )  # fmt: skip
    if not _finite(plan, scratch):
        return False
    if plan.leading:
        add_parts(partials.reshape(-1, total.size), total)
    return True
