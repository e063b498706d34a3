"""ReLU and dropout by definition: NumPy, float64."""

import numpy

__all__ = ["dropout", "philox", "relu", "relu_grad"]


def relu(x, xp=numpy):
    x = xp.array(x, dtype=float)
    return xp.where(x <= 0, 0.0, x)


def relu_grad(g, out, xp=numpy):
    g, out = xp.array(g, dtype=float), numpy.array(out, dtype=float)
    return xp.where(out <= 0, 0.0, g)


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
    key, step = (seed % 2**32, seed // 2**32), (step % 2**32, step // 2**32)
    blocks = [philox((b % 2**32, b // 2**32, *step), key) for b in range(-(-x.size // 4))]
    words = numpy.array(blocks, dtype=numpy.uint64).reshape(-1)[: x.size].reshape(x.shape)
    keep = words >= numpy.uint64(round(p * 2**32))
    return x * (keep / (1 - p) if p < 1 else 0.0)
