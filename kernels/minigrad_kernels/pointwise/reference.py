"""Elementwise functions by definition: NumPy, float64."""

import math

import numpy

__all__ = ["one", "total", "two"]

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715


def erf(x, xp):
    """2 / sqrt(pi) e^{-x^2} sum_n 2^n x^(2n+1) / (1 * 3 * ... * (2n+1)): all terms of one sign. Beyond 6 it is 1."""
    x = xp.clip(x, -6, 6)
    term = total = x
    for n in range(1, 160):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return 2 / math.sqrt(math.pi) * xp.exp(-x * x) * total


def sigmoid(x, xp):
    return 0.5 + 0.5 * xp.tanh(0.5 * x)


def sign(x, xp):
    """0 at NaN too."""
    return xp.where(x > 0, 1, xp.where(x < 0, -1, 0))


def share(x, xp):
    """The part of the normal distribution below x."""
    return 0.5 + 0.5 * erf(x / math.sqrt(2), xp)


def bend(x, xp):
    return xp.tanh(ROOT * (x + CUBIC * x**3))


def one(x, op, p, q, xp=numpy):
    x = xp.array(x, dtype=float)
    formulas = {
        "add_number": lambda: x + p,
        "mul_number": lambda: x * p,
        "div_number": lambda: x / p,
        "abs": lambda: xp.abs(x),
        "neg": lambda: -x,
        "exp": lambda: xp.exp(x),
        "expm1": lambda: xp.expm1(x),
        "log": lambda: xp.log(x),
        "log1p": lambda: xp.log1p(x),
        "sqrt": lambda: xp.sqrt(x),
        "tanh": lambda: xp.tanh(x),
        "sigmoid": lambda: sigmoid(x, xp),
        "elu": lambda: xp.where(x > 0, x, p * xp.expm1(xp.minimum(x, 0))),
        "silu": lambda: x * sigmoid(x, xp),
        "softplus": lambda: xp.where(p * x > q, x, xp.logaddexp(0, p * x) / p),
        "gelu": lambda: x * share(x, xp),
        "gelu_tanh": lambda: 0.5 * x * (1 + bend(x, xp)),
        "limit": lambda: xp.minimum(xp.maximum(x, p), q),
    }
    return formulas[op]()


def two(x, y, op, p, q, xp=numpy):
    x, y = xp.array(x, dtype=float), xp.array(y, dtype=float)
    density = lambda: xp.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)
    formulas = {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: x * y,
        "div": lambda: x / y,
        "maximum": lambda: xp.maximum(x, y),
        "minimum": lambda: xp.minimum(x, y),
        "squared_error": lambda: (x - y) ** 2,
        "scaled_difference": lambda: p * (x - y),
        "absolute_error": lambda: xp.abs(x - y),
        "absolute_error_grad": lambda: p * sign(x - y, xp),
        "huber": lambda: xp.where(xp.abs(x - y) <= p, (x - y) ** 2 / 2, p * (xp.abs(x - y) - p / 2)) / q,
        "huber_grad": lambda: q * xp.clip(x - y, -p, p),
        "logistic_loss": lambda: xp.logaddexp(0, x) - x * y,
        "logistic_loss_grad": lambda: p * (sigmoid(x, xp) - y),
        "divergence": lambda: xp.where(y == 0, 0, y * xp.log(xp.where(y == 0, 1, y))) - y * x,
        "limit_grad": lambda: xp.where((p < y) & (y < q), x, 0),
        "abs_grad": lambda: x * sign(y, xp),
        "tanh_grad": lambda: x * (1 - y * y),
        "sigmoid_grad": lambda: x * y * (1 - y),
        "elu_grad": lambda: x * xp.where(y > 0, 1, p * xp.exp(xp.minimum(y, 0))),
        "silu_grad": lambda: x * (sigmoid(y, xp) + y * sigmoid(y, xp) * sigmoid(-y, xp)),
        "softplus_grad": lambda: x * xp.where(p * y > q, 1, sigmoid(p * y, xp)),
        "gelu_grad": lambda: x * (share(y, xp) + y * density()),
        "gelu_tanh_grad": lambda: (
            x * (0.5 * (1 + bend(y, xp)) + 0.5 * y * (1 - bend(y, xp) ** 2) * ROOT * (1 + 3 * CUBIC * y * y))
        ),
    }
    return formulas[op]()


def total(x, y, op, p, q, divisor, xp=numpy):
    return xp.sum(two(x, y, op, p, q, xp)) / divisor
