"""ReLU, leaky ReLU, erf and dropout by definition: NumPy, float64."""

import math

import numpy


def relu(x, xp=numpy):
    x = xp.array(x, dtype=float)
    return xp.where(x <= 0, 0.0, x)


def relu_grad(g, out, xp=numpy):
    g, out = xp.array(g, dtype=float), numpy.array(out, dtype=float)
    return xp.where(out <= 0, 0.0, g)


def leaky_relu(x, negative_slope, xp=numpy):
    x = xp.array(x, dtype=float)
    return xp.where(x > 0, x, x * negative_slope)


def leaky_relu_grad(g, x, negative_slope, xp=numpy):
    g, x = xp.array(g, dtype=float), numpy.array(x, dtype=float)
    return xp.where(x > 0, g, g * negative_slope)


def erf(x, xp=numpy):
    """2 / sqrt(pi) e^{-x^2} sum_n 2^n x^(2n+1) / (1 * 3 * ... * (2n+1)): all terms of one sign. Beyond 6 it is 1."""
    x = xp.clip(xp.array(x, dtype=float), -6, 6)
    term = total = x
    for n in range(1, 160):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return 2 / math.sqrt(math.pi) * xp.exp(-x * x) * total


def philox(counter, key):
    """Philox4x32-10 in Python's integers: four words of counter and two of key give four random words."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        low, high = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [high >> 32 ^ counter[1] ^ key[0], high, low >> 32 ^ counter[3] ^ key[1], low]
        counter = [word % 2**32 for word in counter]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def dropout(x, p, seed, step, xp=numpy):
    """x in C order: elements are numbered as they lie in memory."""
    x = xp.array(x, dtype=float)
    if numpy.ndim(seed):
        seed, step = int(seed[0]), (int(seed[1]) + step) % 2**64
    key, step = (seed % 2**32, seed // 2**32), (step % 2**32, step // 2**32)
    blocks = [philox((b % 2**32, b // 2**32, *step), key) for b in range(-(-x.size // 4))]
    words = numpy.array(blocks, dtype=numpy.uint64).reshape(-1)[: x.size].reshape(x.shape)
    keep = words >= numpy.uint64(round(p * 2**32))
    return x * (keep / (1 - p) if p < 1 else 0.0)
