"""The update rules, each written once: as a formula for one element, which the kernels of every device walk with.

A formula takes one element of the parameter p and of its gradient g, up to three states, `present`, which has bit k
set where state k is there, and coefficients; it gives the new parameter and the new states. Coefficients are worked
out in float64, once a step, from the hyper-parameters and the sign, which is -1 times the scale of the gradients where
the rule is to climb, else the scale. The coefficients are rounded to the type of the elements, once.

A weight decay of 0 is left out: 0 * inf would be NaN. Running averages are written a + share (b - a), from the nearer
end as in PyTorch, so that a large difference does not swallow b.
"""

import math
from enum import IntEnum

ROOM = 10  # coefficients, as many as the rule with the most has
MAXIMIZE = 1  # where the switch stands in the hyper-parameters of every rule


# ---- hyper-parameters: where each stands in the float64 array that an update reads -----------------------------------
# Switches are 0 or 1. What a device changes by itself from step to step stands last: all before it can be sent anew
# without touching it. STEP is the number of this update, counted from 1.


class SGD(IntEnum):
    """FIRST, a switch: the momentum buffers have no value yet and begin as the gradients."""

    RATE, MAXIMIZE, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, FIRST = range(7)


class Adam(IntEnum):
    """DECOUPLED, a switch: the weight decay of AdamW."""

    RATE, MAXIMIZE, BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, STEP = range(8)


class RMSprop(IntEnum):
    """The rule does not depend on STEP."""

    RATE, MAXIMIZE, ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, STEP = range(7)


class Adagrad(IntEnum):
    """RATE is that of the first update."""

    RATE, MAXIMIZE, LR_DECAY, EPS, WEIGHT_DECAY, STEP = range(6)


# ---- gradient descent ------------------------------------------------------------------------------------------------


def sgd(p, g, buffer, second, third, present, c):
    """3 numbers of memory traffic for an element, 5 with momentum."""
    sign, decay, rate, momentum, fresh, nesterov, first = c[:7]
    d = sign * g + decay * p if decay else sign * g
    if present & 1:
        # On the first step the buffer holds anything, NaN perhaps, so a factor 0 would not do.
        buffer = d if first else momentum * buffer + fresh * d
        d = d + momentum * buffer if nesterov else buffer
    return p - rate * d, buffer, second, third


def sgd_coefficients(hyper, sign):
    decay, rate, momentum = hyper[SGD.WEIGHT_DECAY.value], hyper[SGD.RATE.value], hyper[SGD.MOMENTUM.value]
    fresh, nesterov, first = 1.0 - hyper[SGD.DAMPENING.value], hyper[SGD.NESTEROV.value], hyper[SGD.FIRST.value]
    return sign, decay, rate, momentum, fresh, nesterov, first, 0.0, 0.0, 0.0


# ---- Adam ------------------------------------------------------------------------------------------------------------


def adam(p, g, m, v, greatest, present, c):
    """7 numbers of memory traffic for an element, 9 with AMSGrad."""
    sign, decay, beta1, fresh1, beta2, fresh2, keep, rate, correction, eps = c
    d = sign * g + decay * p if decay else sign * g
    m = m + fresh1 * (d - m) if fresh1 < beta1 else d - beta1 * (d - m)
    v = beta2 * v + fresh2 * d * d
    square = v
    if present & 4:
        square = v if v > greatest or v != v else greatest  # written so that NaN enters, and stays
    return keep * p - rate * (m / (math.sqrt(square) * correction + eps)), m, v, square


def adam_coefficients(hyper, sign):
    beta1, beta2, decay = hyper[Adam.BETA1.value], hyper[Adam.BETA2.value], hyper[Adam.WEIGHT_DECAY.value]
    rate, keep, step = hyper[Adam.RATE.value], 1.0, hyper[Adam.STEP.value]
    if hyper[Adam.DECOUPLED.value]:
        keep, decay = 1.0 - rate * decay, 0.0
    rate = rate / (1.0 - math.pow(beta1, step))
    correction = 1.0 / math.sqrt(1.0 - math.pow(beta2, step))
    return sign, decay, beta1, 1.0 - beta1, beta2, 1.0 - beta2, keep, rate, correction, hyper[Adam.EPS.value]


# ---- RMSprop ---------------------------------------------------------------------------------------------------------


def rmsprop(p, g, square, mean, buffer, present, c):
    """5 numbers of memory traffic for an element, 2 more if centred, 2 more with momentum."""
    sign, decay, alpha, fresh, rate, eps, momentum = c[:7]
    d = sign * g + decay * p if decay else sign * g
    square = alpha * square + fresh * d * d
    spread = square
    if present & 2:
        mean = mean + fresh * (d - mean) if fresh < alpha else d - alpha * (d - mean)
        spread = square - mean * mean
    d = d / (math.sqrt(spread) + eps)
    if present & 4:
        buffer = momentum * buffer + d
        d = buffer
    return p - rate * d, square, mean, buffer


def rmsprop_coefficients(hyper, sign):
    decay, alpha, rate = hyper[RMSprop.WEIGHT_DECAY.value], hyper[RMSprop.ALPHA.value], hyper[RMSprop.RATE.value]
    eps, momentum = hyper[RMSprop.EPS.value], hyper[RMSprop.MOMENTUM.value]
    return sign, decay, alpha, 1.0 - alpha, rate, eps, momentum, 0.0, 0.0, 0.0


# ---- Adagrad ---------------------------------------------------------------------------------------------------------


def adagrad(p, g, total, second, third, present, c):
    """5 numbers of memory traffic for an element."""
    sign, decay, rate, eps = c[:4]
    d = sign * g + decay * p if decay else sign * g
    total = total + d * d
    return p - rate * (d / (math.sqrt(total) + eps)), total, second, third


def adagrad_coefficients(hyper, sign):
    age, decay = hyper[Adagrad.STEP.value] - 1.0, hyper[Adagrad.WEIGHT_DECAY.value]
    rate = hyper[Adagrad.RATE.value] / (1.0 + age * hyper[Adagrad.LR_DECAY.value])
    return sign, decay, rate, hyper[Adagrad.EPS.value], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0


def ten(numbers):
    """The coefficients that a formula takes, from an array of them."""
    n = numbers
    return n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]


RULES = {
    "sgd": (sgd, sgd_coefficients),
    "adam": (adam, adam_coefficients),
    "rmsprop": (rmsprop, rmsprop_coefficients),
    "adagrad": (adagrad, adagrad_coefficients),
}
