"""Adam on CUDA: 7 numbers of memory traffic for an element, 9 with AMSGrad."""

import math

from ..toolchain.cuda import device, kernel
from .cuda_parts import DECAY, SETTINGS, begin, between, decayed, power, product, put
from .cuda_update import update
from .hyper import Adam

__all__ = ["ADAM_UPDATE", "adam_coefficients"]

FRESH1, BETA2, FRESH2, KEEP, RATE, CORRECTION, EPS = range(2, 9)  # places of the coefficients


@device
def formula(p, g, m, v, greatest, present, c):
    d = decayed(p, g, c)
    m = between(m, d, c[FRESH1])
    v = c[BETA2] * v + c[FRESH2] * d * d
    square = v
    if present & 4:
        square = v if v > greatest or v != v else greatest  # written so that NaN enters, and stays
    return c[KEEP] * p - c[RATE] * (m / (math.sqrt(square) * c[CORRECTION] + c[EPS])), m, v, square


ADAM_UPDATE = update("adam", formula, 3, 7)


@kernel(SETTINGS, threads=1)
def adam_coefficients(hyper, scale, found_inf, single, double):
    """What the update multiplies with, by one thread, in float64. It counts the step, unless it is skipped."""
    rate, decay, step = hyper[Adam.RATE.value], hyper[Adam.WEIGHT_DECAY.value], hyper[Adam.STEP.value]
    beta1, beta2, decoupled = hyper[Adam.BETA1.value], hyper[Adam.BETA2.value], hyper[Adam.DECOUPLED.value]
    counts = begin(single, double, hyper[Adam.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, 0.0 if decoupled else decay)
    put(single, double, FRESH1, 1.0 - beta1)
    put(single, double, BETA2, beta2)
    put(single, double, FRESH2, 1.0 - beta2)
    put(single, double, KEEP, 1.0 - product(rate, decay) if decoupled else 1.0)
    put(single, double, RATE, rate / (1.0 - power(beta1, step)))
    put(single, double, CORRECTION, 1.0 / math.sqrt(1.0 - power(beta2, step)))
    put(single, double, EPS, hyper[Adam.EPS.value])
    if counts:
        hyper[Adam.STEP.value] = step + 1.0
