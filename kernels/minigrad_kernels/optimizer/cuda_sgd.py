"""Gradient descent on CUDA: 3 numbers of memory traffic for an element, 5 with momentum."""

from ..toolchain.cuda import device, kernel
from .cuda_parts import DECAY, SETTINGS, begin, decayed, put
from .cuda_update import update
from .hyper import SGD

__all__ = ["SGD_UPDATE", "sgd_coefficients"]

RATE, MOMENTUM, FRESH, NESTEROV, FIRST = range(2, 7)  # places of the coefficients, after sign and decay


@device
def formula(p, g, buffer, second, third, present, c):
    d = decayed(p, g, c)
    if present & 1:
        # On the first step the buffer holds anything, NaN perhaps, so a factor 0 would not do.
        buffer = d if c[FIRST] else c[MOMENTUM] * buffer + c[FRESH] * d
        d = d + c[MOMENTUM] * buffer if c[NESTEROV] else buffer
    return p - c[RATE] * d, buffer, second, third


SGD_UPDATE = update("sgd", formula, 0, 1)


@kernel(SETTINGS, threads=1)
def sgd_coefficients(hyper, scale, found_inf, single, double):
    """What the update multiplies with, by one thread, in float64. The next step is not the first."""
    counts = begin(single, double, hyper[SGD.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, hyper[SGD.WEIGHT_DECAY.value])
    put(single, double, RATE, hyper[SGD.RATE.value])
    put(single, double, MOMENTUM, hyper[SGD.MOMENTUM.value])
    put(single, double, FRESH, 1.0 - hyper[SGD.DAMPENING.value])
    put(single, double, NESTEROV, hyper[SGD.NESTEROV.value])
    put(single, double, FIRST, hyper[SGD.FIRST.value])
    if counts:
        hyper[SGD.FIRST.value] = 0.0
