"""RMSprop on CUDA: 5 numbers of memory traffic for an element, 2 more if centred, 2 more with momentum."""

import math

from ..toolchain.cuda import device, kernel
from .cuda_parts import DECAY, SETTINGS, begin, between, decayed, put
from .cuda_update import update
from .hyper import RMSprop

__all__ = ["RMSPROP_UPDATE", "rmsprop_coefficients"]

ALPHA, FRESH, RATE, EPS, MOMENTUM = range(2, 7)  # places of the coefficients


@device
def formula(p, g, square, mean, buffer, present, c):
    d = decayed(p, g, c)
    square = c[ALPHA] * square + c[FRESH] * d * d
    spread = square
    if present & 2:
        mean = between(mean, d, c[FRESH])
        spread = square - mean * mean
    d = d / (math.sqrt(spread) + c[EPS])
    if present & 4:
        buffer = c[MOMENTUM] * buffer + d
        d = buffer
    return p - c[RATE] * d, square, mean, buffer


RMSPROP_UPDATE = update("rmsprop", formula, 1, 7)


@kernel(SETTINGS, threads=1)
def rmsprop_coefficients(hyper, scale, found_inf, single, double):
    """What the update multiplies with, by one thread, in float64. It counts the step, unless it is skipped."""
    counts = begin(single, double, hyper[RMSprop.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, hyper[RMSprop.WEIGHT_DECAY.value])
    put(single, double, ALPHA, hyper[RMSprop.ALPHA.value])
    put(single, double, FRESH, 1.0 - hyper[RMSprop.ALPHA.value])
    put(single, double, RATE, hyper[RMSprop.RATE.value])
    put(single, double, EPS, hyper[RMSprop.EPS.value])
    put(single, double, MOMENTUM, hyper[RMSprop.MOMENTUM.value])
    if counts:
        hyper[RMSprop.STEP.value] += 1.0
