"""RMSprop on CUDA: 5 numbers of memory traffic for an element, 2 more if centred, 2 more with momentum."""

import math

from ..toolchain.cuda import device, kernel
from .cuda_parts import DECAY, SIGN, between, decayed, put
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


@kernel("f64* hyper, f32* single, f64* double", threads=1)
def rmsprop_coefficients(hyper, single, double):
    """What the update multiplies with, by one thread, in float64."""
    put(single, double, SIGN, -1.0 if hyper[RMSprop.MAXIMIZE.value] else 1.0)
    put(single, double, DECAY, hyper[RMSprop.WEIGHT_DECAY.value])
    put(single, double, ALPHA, hyper[RMSprop.ALPHA.value])
    put(single, double, FRESH, 1.0 - hyper[RMSprop.ALPHA.value])
    put(single, double, RATE, hyper[RMSprop.RATE.value])
    put(single, double, EPS, hyper[RMSprop.EPS.value])
    put(single, double, MOMENTUM, hyper[RMSprop.MOMENTUM.value])
