"""Update rules by definition, for one parameter: NumPy, float64. Each returns the new parameter and its new state.

A weight decay of 0 is left out, not multiplied: 0 * inf would be NaN.
"""

import numpy

from .rules import SGD, Adagrad, Adam, RMSprop


def _doubles(xp, *arrays):
    return [None if a is None else xp.array(a, dtype=float) for a in arrays]


def _decayed(gradient, parameter, maximize, weight_decay):
    """The gradient of what is to shrink: the loss, or minus what is to grow, and weight_decay |parameter|^2 / 2."""
    gradient = -gradient if maximize else gradient
    return gradient + weight_decay * parameter if weight_decay else gradient


def sgd(parameter, gradient, momentum_buffer, hyper, xp=numpy):
    """(parameter, momentum_buffer); the buffer is None without momentum."""
    parameter, gradient, momentum_buffer = _doubles(xp, parameter, gradient, momentum_buffer)
    d = _decayed(gradient, parameter, hyper[SGD.MAXIMIZE], hyper[SGD.WEIGHT_DECAY])
    if momentum_buffer is None:
        return parameter - hyper[SGD.RATE] * d, None
    if hyper[SGD.FIRST]:
        buffer = d
    else:
        buffer = hyper[SGD.MOMENTUM] * momentum_buffer + (1 - hyper[SGD.DAMPENING]) * d
    d = d + hyper[SGD.MOMENTUM] * buffer if hyper[SGD.NESTEROV] else buffer
    return parameter - hyper[SGD.RATE] * d, buffer


def adam(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, hyper, xp=numpy):
    """(parameter, exp_avg, exp_avg_sq, max_exp_avg_sq); the last is None without AMSGrad."""
    arrays = _doubles(xp, parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq)
    parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq = arrays
    rate, beta1, beta2 = hyper[Adam.RATE], hyper[Adam.BETA1], hyper[Adam.BETA2]
    if hyper[Adam.DECOUPLED]:
        g = _decayed(gradient, parameter, hyper[Adam.MAXIMIZE], 0)
        parameter = parameter * (1 - rate * hyper[Adam.WEIGHT_DECAY])
    else:
        g = _decayed(gradient, parameter, hyper[Adam.MAXIMIZE], hyper[Adam.WEIGHT_DECAY])
    exp_avg = beta1 * exp_avg + (1 - beta1) * g
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
    square = exp_avg_sq
    if max_exp_avg_sq is not None:
        square = max_exp_avg_sq = xp.maximum(max_exp_avg_sq, exp_avg_sq)
    mean = exp_avg / (1 - beta1 ** hyper[Adam.STEP])
    deviation = xp.sqrt(square / (1 - beta2 ** hyper[Adam.STEP]))
    return parameter - rate * mean / (deviation + hyper[Adam.EPS]), exp_avg, exp_avg_sq, max_exp_avg_sq


def rmsprop(parameter, gradient, square_avg, grad_avg, momentum_buffer, hyper, xp=numpy):
    """(parameter, square_avg, grad_avg, momentum_buffer); None: not centred, no momentum."""
    arrays = _doubles(xp, parameter, gradient, square_avg, grad_avg, momentum_buffer)
    parameter, gradient, square_avg, grad_avg, momentum_buffer = arrays
    alpha = hyper[RMSprop.ALPHA]
    g = _decayed(gradient, parameter, hyper[RMSprop.MAXIMIZE], hyper[RMSprop.WEIGHT_DECAY])
    square_avg = alpha * square_avg + (1 - alpha) * g * g
    spread = square_avg
    if grad_avg is not None:
        grad_avg = alpha * grad_avg + (1 - alpha) * g
        spread = square_avg - grad_avg * grad_avg
    d = g / (xp.sqrt(spread) + hyper[RMSprop.EPS])
    if momentum_buffer is not None:
        d = momentum_buffer = hyper[RMSprop.MOMENTUM] * momentum_buffer + d
    return parameter - hyper[RMSprop.RATE] * d, square_avg, grad_avg, momentum_buffer


def adagrad(parameter, gradient, sum, hyper, xp=numpy):
    """(parameter, sum)"""
    parameter, gradient, sum = _doubles(xp, parameter, gradient, sum)
    g = _decayed(gradient, parameter, hyper[Adagrad.MAXIMIZE], hyper[Adagrad.WEIGHT_DECAY])
    sum = sum + g * g
    rate = hyper[Adagrad.RATE] / (1 + (hyper[Adagrad.STEP] - 1) * hyper[Adagrad.LR_DECAY])
    return parameter - rate * g / (xp.sqrt(sum) + hyper[Adagrad.EPS]), sum


def squared_norm(array, xp=numpy):
    return xp.sum(xp.array(array, dtype=float) ** 2)


def scale(array, factor, xp=numpy):
    return xp.array(array, dtype=float) * factor


def clip_factor(squares, max_norm, xp=numpy):
    """(norm, factor)"""
    norm = xp.sqrt(xp.sum(xp.array(squares, dtype=float)))
    return norm, xp.minimum(1.0, max_norm / (norm + 1e-6))
