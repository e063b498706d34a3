"""Adagrad on CUDA: 5 numbers of memory traffic for an element."""

import math

from ..toolchain.cuda import device, kernel
from .cuda_parts import DECAY, SETTINGS, begin, decayed, product, put
from .cuda_update import update
from .hyper import Adagrad

__all__ = ["ADAGRAD_UPDATE", "adagrad_coefficients"]

RATE, EPS = range(2, 4)  # places of the coefficients


@device
def formula(p, g, total, second, third, present, c):
    d = decayed(p, g, c)
    total = total + d * d
    return p - c[RATE] * (d / (math.sqrt(total) + c[EPS])), total, second, third


ADAGRAD_UPDATE = update("adagrad", formula, 1, 1)


@kernel(SETTINGS, threads=1)
def adagrad_coefficients(hyper, scale, found_inf, single, double):
    """What the update multiplies with, by one thread, in float64. It counts the step, unless it is skipped."""
    step = hyper[Adagrad.STEP.value]
    counts = begin(single, double, hyper[Adagrad.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, hyper[Adagrad.WEIGHT_DECAY.value])
    put(single, double, RATE, hyper[Adagrad.RATE.value] / (1.0 + product(step - 1.0, hyper[Adagrad.LR_DECAY.value])))
    put(single, double, EPS, hyper[Adagrad.EPS.value])
    if counts:
        hyper[Adagrad.STEP.value] = step + 1.0
