"""Update rules on CUDA: the formula of each for one element, and the coefficients that it multiplies with.

A formula takes one element of the parameter, its gradient and up to three states, and gives the new ones; `present` has
bit k set where state k is there. Its arithmetic is that of cpu.py, but for products that are added without being
rounded first. Coefficients are worked out by one thread, in float64; that also counts the step, unless it is skipped.
"""

import math

from ..toolchain.cuda import device
from .cuda_parts import DECAY, begin, between, decayed, power, product, put
from .hyper import SGD, Adagrad, Adam, RMSprop

__all__ = [
    "RULES", "adagrad", "adagrad_coefficients", "adam", "adam_coefficients", "rmsprop", "rmsprop_coefficients", "sgd",
    "sgd_coefficients",
]  # fmt: skip

# By rule: the number that kernels know it by, states that it has in any case, and those that it may have, as bits.
RULES = {"sgd": (0, 0, 1), "adam": (1, 3, 7), "rmsprop": (2, 1, 7), "adagrad": (3, 1, 1)}


# ---- gradient descent ----------------------------------------------------------------------------------------------

SGD_RATE, SGD_MOMENTUM, SGD_FRESH, SGD_NESTEROV, SGD_FIRST = range(2, 7)  # places of the coefficients


@device
def sgd(p, g, buffer, second, third, present, c):
    """Gradient descent: 3 numbers of memory traffic for an element, 5 with momentum."""
    d = decayed(p, g, c)
    if present & 1:
        # On the first step the buffer holds anything, NaN perhaps, so a factor 0 would not do.
        buffer = d if c[SGD_FIRST] else c[SGD_MOMENTUM] * buffer + c[SGD_FRESH] * d
        d = d + c[SGD_MOMENTUM] * buffer if c[SGD_NESTEROV] else buffer
    return p - c[SGD_RATE] * d, buffer, second, third


@device
def sgd_coefficients(hyper, scale, found_inf, single, double):
    counts = begin(single, double, hyper[SGD.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, hyper[SGD.WEIGHT_DECAY.value])
    put(single, double, SGD_RATE, hyper[SGD.RATE.value])
    put(single, double, SGD_MOMENTUM, hyper[SGD.MOMENTUM.value])
    put(single, double, SGD_FRESH, 1.0 - hyper[SGD.DAMPENING.value])
    put(single, double, SGD_NESTEROV, hyper[SGD.NESTEROV.value])
    put(single, double, SGD_FIRST, hyper[SGD.FIRST.value])
    if counts:
        hyper[SGD.FIRST.value] = 0.0


# ---- Adam ----------------------------------------------------------------------------------------------------------

(
    ADAM_FRESH1,
    ADAM_BETA2,
    ADAM_FRESH2,
    ADAM_KEEP,
    ADAM_RATE,
    ADAM_CORRECTION,
    ADAM_EPS,
) = range(2, 9)  # places of the coefficients


@device
def adam(p, g, m, v, greatest, present, c):
    """Adam: 7 numbers of memory traffic for an element, 9 with AMSGrad."""
    d = decayed(p, g, c)
    m = between(m, d, c[ADAM_FRESH1])
    v = c[ADAM_BETA2] * v + c[ADAM_FRESH2] * d * d
    square = v
    if present & 4:
        square = v if v > greatest or v != v else greatest  # written so that NaN enters, and stays
    return c[ADAM_KEEP] * p - c[ADAM_RATE] * (m / (math.sqrt(square) * c[ADAM_CORRECTION] + c[ADAM_EPS])), m, v, square


@device
def adam_coefficients(hyper, scale, found_inf, single, double):
    rate, decay, step = hyper[Adam.RATE.value], hyper[Adam.WEIGHT_DECAY.value], hyper[Adam.STEP.value]
    beta1, beta2, decoupled = hyper[Adam.BETA1.value], hyper[Adam.BETA2.value], hyper[Adam.DECOUPLED.value]
    counts = begin(single, double, hyper[Adam.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, 0.0 if decoupled else decay)
    put(single, double, ADAM_FRESH1, 1.0 - beta1)
    put(single, double, ADAM_BETA2, beta2)
    put(single, double, ADAM_FRESH2, 1.0 - beta2)
    put(single, double, ADAM_KEEP, 1.0 - product(rate, decay) if decoupled else 1.0)
    put(single, double, ADAM_RATE, rate / (1.0 - power(beta1, step)))
    put(single, double, ADAM_CORRECTION, 1.0 / math.sqrt(1.0 - power(beta2, step)))
    put(single, double, ADAM_EPS, hyper[Adam.EPS.value])
    if counts:
        hyper[Adam.STEP.value] = step + 1.0


# ---- RMSprop -------------------------------------------------------------------------------------------------------

RMSPROP_ALPHA, RMSPROP_FRESH, RMSPROP_RATE, RMSPROP_EPS, RMSPROP_MOMENTUM = range(2, 7)  # places of the coefficients


@device
def rmsprop(p, g, square, mean, buffer, present, c):
    """RMSprop: 5 numbers of memory traffic for an element, 2 more if centred, 2 more with momentum."""
    d = decayed(p, g, c)
    square = c[RMSPROP_ALPHA] * square + c[RMSPROP_FRESH] * d * d
    spread = square
    if present & 2:
        mean = between(mean, d, c[RMSPROP_FRESH])
        spread = square - mean * mean
    d = d / (math.sqrt(spread) + c[RMSPROP_EPS])
    if present & 4:
        buffer = c[RMSPROP_MOMENTUM] * buffer + d
        d = buffer
    return p - c[RMSPROP_RATE] * d, square, mean, buffer


@device
def rmsprop_coefficients(hyper, scale, found_inf, single, double):
    counts = begin(single, double, hyper[RMSprop.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, hyper[RMSprop.WEIGHT_DECAY.value])
    put(single, double, RMSPROP_ALPHA, hyper[RMSprop.ALPHA.value])
    put(single, double, RMSPROP_FRESH, 1.0 - hyper[RMSprop.ALPHA.value])
    put(single, double, RMSPROP_RATE, hyper[RMSprop.RATE.value])
    put(single, double, RMSPROP_EPS, hyper[RMSprop.EPS.value])
    put(single, double, RMSPROP_MOMENTUM, hyper[RMSprop.MOMENTUM.value])
    if counts:
        hyper[RMSprop.STEP.value] += 1.0


# ---- Adagrad -------------------------------------------------------------------------------------------------------

ADAGRAD_RATE, ADAGRAD_EPS = range(2, 4)  # places of the coefficients


@device
def adagrad(p, g, total, second, third, present, c):
    """Adagrad: 5 numbers of memory traffic for an element."""
    d = decayed(p, g, c)
    total = total + d * d
    return p - c[ADAGRAD_RATE] * (d / (math.sqrt(total) + c[ADAGRAD_EPS])), total, second, third


@device
def adagrad_coefficients(hyper, scale, found_inf, single, double):
    step = hyper[Adagrad.STEP.value]
    counts = begin(single, double, hyper[Adagrad.MAXIMIZE.value], scale, found_inf)
    put(single, double, DECAY, hyper[Adagrad.WEIGHT_DECAY.value])
    put(
        single,
        double,
        ADAGRAD_RATE,
        hyper[Adagrad.RATE.value] / (1.0 + product(step - 1.0, hyper[Adagrad.LR_DECAY.value])),
    )
    put(single, double, ADAGRAD_EPS, hyper[Adagrad.EPS.value])
    if counts:
        hyper[Adagrad.STEP.value] = step + 1.0
