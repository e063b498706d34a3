"""Rows normalised on the CPU, each by itself: threads share the rows, and each row takes three steps, as in softmax.

    load    a formula over the row (toolchain/lines.py) adds up what its elements give, lane by lane
    join    the lanes become numbers of the row
    finish  another formula writes the row's results

The sums of a row are in float64, and of the distances from its first element, so that the result is right to the last
digits even where a mean is far larger than the deviation from it. The gradients of weight and bias are added up in
float64, part by part (see bias/plan.py).
"""

import numpy as np

from ..bias.plan import cut
from ..toolchain import clear, elements, jit, share, shared, stack_array, sum_rows
from ..toolchain.lines import LANES, lane_total, line

LIKE = np.zeros(1)  # the type of sums


@line(moving="x", totals="sums squares", numbers="origin one")
def load_moments(here):
    d = (here.x - here.origin) * here.one  # widened
    here.sums += d
    here.squares += d * d


@line(moving="x out", fixed="weight bias", numbers="centre scale shift")
def finish_row(here):
    z = (here.x - here.centre) * here.scale - here.shift
    here.out = z * here.weight + here.bias


@line(moving="g x", fixed="weight dw db", totals="sums products", numbers="centre scale shift")
def load_products(here):
    z = (here.x - here.centre) * here.scale - here.shift
    h = here.g * here.weight
    here.sums += h
    here.products += h * z
    here.db += here.g
    here.dw += here.g * z


@line(moving="g x dx", fixed="weight", numbers="centre scale shift level slope")
def finish_grad(here):
    z = (here.x - here.centre) * here.scale - here.shift
    here.dx = ((here.g * here.weight - here.level) - z * here.slope) * here.scale


@jit
def row_statistics(x, start, columns, like):
    """(mean, variance) of a row, in float64."""
    sums, squares = stack_array(LANES, like), stack_array(LANES, like)
    clear(sums)
    clear(squares)
    load_moments(start, columns, x, sums, squares, x[start], 1.0)
    d = lane_total(sums) / columns
    v = lane_total(squares) / columns - d * d
    return x[start] + d, 0.0 if v < 0 else v  # written so that NaN passes


@jit
def scales(mean, variance, eps, kind):
    """(centre, scale, shift) in the element type: z = (x - centre) * scale - shift."""
    centre, scale = kind(mean), 1.0 / np.sqrt(variance + eps)
    return centre, kind(scale), kind((mean - centre) * scale)


@shared
def normalize_rows(team, x, weight, bias, eps, like, out, mean, variance):
    columns = weight.size
    for n in share(mean.size, team):
        mean[n], variance[n] = row_statistics(x, n * columns, columns, like)
        centre, scale, shift = scales(mean[n], variance[n], eps, x.dtype.type)
        finish_row(n * columns, columns, x, out, weight, bias, centre, scale, shift)


@shared
def grad_rows(team, g, x, mean, variance, weight, eps, like, rows, dx, dw, db):
    """dw and db: (parts, columns), of parts of so many rows."""
    columns, kind = weight.size, x.dtype.type
    sums, products = stack_array(LANES, like), stack_array(LANES, like)
    for p in share(len(dw), team):
        clear(dw[p])
        clear(db[p])
        for n in range(p * rows, min(mean.size, (p + 1) * rows)):
            start = n * columns
            centre, scale, shift = scales(mean[n], variance[n], eps, kind)
            clear(sums)
            clear(products)
            load_products(start, columns, g, x, weight, dw[p], db[p], sums, products, centre, scale, shift)
            level, slope = kind(lane_total(sums) / columns), kind(lane_total(products) / columns)
            finish_grad(start, columns, g, x, dx, weight, centre, scale, shift, level, slope)


def layer_norm(x, weight, bias, eps, out, mean, variance):
    normalize_rows.over(x.size, x.reshape(-1), weight, bias, eps, LIKE, out.reshape(-1), mean, variance)


def layer_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    plan, arrays = cut(*x.shape), (g.reshape(-1), x.reshape(-1), mean, variance, weight)
    parts = elements(workspace, x, LIKE.dtype, 2, plan.parts, weight.size)
    grad_rows.over(x.size, *arrays, eps, LIKE, plan.rows, dx.reshape(-1), *parts)
    sum_rows(parts[0], dw)
    sum_rows(parts[1], db)
