"""Update rules on the CPU: one call passes over all parameters.

`addresses` is (kinds, tensors): row 0 holds the address of each parameter, the next rows those of its gradient and
its state, in the order in which the rule names them; `sizes` counts their elements. The elements of all tensors are
cut into chunks of CHUNK, which the threads share. `like` is any array of the element type.
Coefficients are computed in float64 and rounded once. Rules go through RUN elements at a time, in several loops
where one would have more arrays than the compiler can prove apart; RUN elements stay in the first cache.
"""

import math

import numpy as np

from ..toolchain import jit, share, shared, stack_array
from .cpu_norms import clip_factor, scale, squared_norms
from .cpu_parts import SMALL, addresses, chunks, find, part, tables
from .hyper import SGD, Adagrad, Adam, RMSprop

__all__ = ["adagrad", "adam", "addresses", "clip_factor", "rmsprop", "scale", "sgd", "squared_norms", "tables"]

RUN = 1024  # elements


@jit
def decayed(g, p, sign, decay):
    """The gradient with its sign, its scale and its weight decay. One of 0 is left out: 0 * inf would be NaN."""
    return sign * g + decay * p if decay else sign * g


@jit
def between(a, b, share):
    """a + share (b - a), from the nearer end as PyTorch does, so that a large difference does not swallow b."""
    return a + share * (b - a) if abs(share) < 0.5 else b - (type(share)(1) - share) * (b - a)


def step(kernel, plan, hyper, scale, found_inf, *present):
    """One update, unless it is to be skipped."""
    if found_inf is None or not found_inf[0]:
        places, sizes, like, _ = plan.tables
        scale = 1.0 if scale is None else float(scale[0])
        (kernel.alone if plan.elements < SMALL else kernel)(places, sizes, *present, hyper, scale, like)


@jit
def sgd_run(p, g, buffer, has_buffer, hyper, scale):
    t = p.dtype.type
    sign, decay = t(-scale if hyper[SGD.MAXIMIZE.value] else scale), t(hyper[SGD.WEIGHT_DECAY.value])
    rate, momentum = t(hyper[SGD.RATE.value]), t(hyper[SGD.MOMENTUM.value])
    if not has_buffer:
        for k in range(p.size):
            p[k] -= rate * decayed(g[k], p[k], sign, decay)
        return
    # On the first step the buffer holds anything, NaN perhaps, so a factor 0 would not do.
    first, fresh = hyper[SGD.FIRST.value] != 0, t(1 - hyper[SGD.DAMPENING.value])
    nesterov = hyper[SGD.NESTEROV.value] != 0
    for k in range(p.size):
        d = decayed(g[k], p[k], sign, decay)
        b = d if first else momentum * buffer[k] + fresh * d
        buffer[k] = b
        p[k] -= rate * (d + momentum * b if nesterov else b)


@shared
def sgd_chunks(team, addresses, sizes, has_buffer, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        p, g = part(addresses, 0, t, start, stop, like), part(addresses, 1, t, start, stop, like)
        sgd_run(p, g, part(addresses, 2 if has_buffer else 0, t, start, stop, like), has_buffer, hyper, scale)


def sgd(plan, hyper, scale, found_inf):
    step(sgd_chunks, plan, hyper, scale, found_inf, plan.tables.present[0])


@jit
def adam_moments(p, g, m, v, sign, decay, fresh1, beta2, fresh2):
    for k in range(p.size):
        d = decayed(g[k], p[k], sign, decay)
        m[k] = between(m[k], d, fresh1)
        v[k] = beta2 * v[k] + fresh2 * d * d


@jit
def adam_step(p, m, v, keep, rate, correction, eps):
    for k in range(p.size):
        p[k] = keep * p[k] - rate * (m[k] / (np.sqrt(v[k]) * correction + eps))


@jit
def raise_to(greatest, v):
    for k in range(v.size):
        old, new = greatest[k], v[k]
        greatest[k] = new if new > old or new != new else old  # written so that NaN enters, and stays


@jit
def adam_run(p, g, m, v, greatest, has_greatest, hyper, scale):
    t, step = p.dtype.type, hyper[Adam.STEP.value]
    beta2, fresh1, fresh2 = t(hyper[Adam.BETA2.value]), t(1 - hyper[Adam.BETA1.value]), t(1 - hyper[Adam.BETA2.value])
    sign, decay = t(-scale if hyper[Adam.MAXIMIZE.value] else scale), hyper[Adam.WEIGHT_DECAY.value]
    keep = t(1 - hyper[Adam.RATE.value] * decay if hyper[Adam.DECOUPLED.value] else 1)
    decay = t(0 if hyper[Adam.DECOUPLED.value] else decay)
    rate = t(hyper[Adam.RATE.value] / (1 - hyper[Adam.BETA1.value] ** step))
    correction, eps = t(1 / math.sqrt(1 - hyper[Adam.BETA2.value] ** step)), t(hyper[Adam.EPS.value])
    for start in range(0, p.size, RUN):
        run = slice(start, min(p.size, start + RUN))
        adam_moments(p[run], g[run], m[run], v[run], sign, decay, fresh1, beta2, fresh2)
        if has_greatest:
            raise_to(greatest[run], v[run])
        adam_step(p[run], m[run], greatest[run], keep, rate, correction, eps)


@shared
def adam_chunks(team, addresses, sizes, has_greatest, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        p, g = part(addresses, 0, t, start, stop, like), part(addresses, 1, t, start, stop, like)
        m, v = part(addresses, 2, t, start, stop, like), part(addresses, 3, t, start, stop, like)
        greatest = part(addresses, 4 if has_greatest else 3, t, start, stop, like)
        adam_run(p, g, m, v, greatest, has_greatest, hyper, scale)


def adam(plan, hyper, scale, found_inf):
    step(adam_chunks, plan, hyper, scale, found_inf, plan.tables.present[2])


@jit
def rms_square(d, p, g, square, sign, decay, alpha, fresh):
    for k in range(p.size):
        d[k] = decayed(g[k], p[k], sign, decay)
        square[k] = alpha * square[k] + fresh * d[k] * d[k]


@jit
def rms_scale(d, square, eps):
    for k in range(d.size):
        d[k] /= np.sqrt(square[k]) + eps


@jit
def rms_centre(d, square, mean, fresh, eps):
    for k in range(d.size):
        mean[k] = between(mean[k], d[k], fresh)
        d[k] /= np.sqrt(square[k] - mean[k] * mean[k]) + eps


@jit
def rms_momentum(d, buffer, momentum):
    for k in range(d.size):
        buffer[k] = momentum * buffer[k] + d[k]
        d[k] = buffer[k]


@jit
def rms_step(p, d, rate):
    for k in range(p.size):
        p[k] -= rate * d[k]


@jit
def rmsprop_run(p, g, square, mean, has_mean, buffer, has_buffer, hyper, scale):
    t = p.dtype.type
    sign, decay = t(-scale if hyper[RMSprop.MAXIMIZE.value] else scale), t(hyper[RMSprop.WEIGHT_DECAY.value])
    alpha, fresh = t(hyper[RMSprop.ALPHA.value]), t(1 - hyper[RMSprop.ALPHA.value])
    rate, eps, momentum = t(hyper[RMSprop.RATE.value]), t(hyper[RMSprop.EPS.value]), t(hyper[RMSprop.MOMENTUM.value])
    direction = stack_array(RUN, p)
    for start in range(0, p.size, RUN):
        run = slice(start, min(p.size, start + RUN))
        d = direction[: run.stop - start]
        rms_square(d, p[run], g[run], square[run], sign, decay, alpha, fresh)
        if has_mean:
            rms_centre(d, square[run], mean[run], fresh, eps)
        else:
            rms_scale(d, square[run], eps)
        if has_buffer:
            rms_momentum(d, buffer[run], momentum)
        rms_step(p[run], d, rate)


@shared
def rmsprop_chunks(team, addresses, sizes, has_mean, has_buffer, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        p, g = part(addresses, 0, t, start, stop, like), part(addresses, 1, t, start, stop, like)
        square = part(addresses, 2, t, start, stop, like)
        mean = part(addresses, 3 if has_mean else 2, t, start, stop, like)
        buffer = part(addresses, 3 + has_mean if has_buffer else 2, t, start, stop, like)
        rmsprop_run(p, g, square, mean, has_mean, buffer, has_buffer, hyper, scale)


def rmsprop(plan, hyper, scale, found_inf):
    step(rmsprop_chunks, plan, hyper, scale, found_inf, *plan.tables.present[1:])


@jit
def adagrad_run(p, g, total, hyper, scale):
    t = p.dtype.type
    sign, decay = t(-scale if hyper[Adagrad.MAXIMIZE.value] else scale), t(hyper[Adagrad.WEIGHT_DECAY.value])
    age, eps = hyper[Adagrad.STEP.value] - 1, t(hyper[Adagrad.EPS.value])
    rate = t(hyper[Adagrad.RATE.value] / (1 + age * hyper[Adagrad.LR_DECAY.value]))
    for k in range(p.size):
        d = decayed(g[k], p[k], sign, decay)
        total[k] += d * d
        p[k] -= rate * (d / (np.sqrt(total[k]) + eps))


@shared
def adagrad_chunks(team, addresses, sizes, hyper, scale, like):
    for chunk in share(chunks(sizes), team):
        t, start, stop = find(sizes, chunk)
        p, g = part(addresses, 0, t, start, stop, like), part(addresses, 1, t, start, stop, like)
        adagrad_run(p, g, part(addresses, 2, t, start, stop, like), hyper, scale)


def adagrad(plan, hyper, scale, found_inf):
    step(adagrad_chunks, plan, hyper, scale, found_inf)
