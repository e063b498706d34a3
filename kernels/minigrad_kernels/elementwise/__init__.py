"""Elementwise kernels on dense arrays: all arrays of a call have one shape and one order of axes in memory.

Types   float16, bfloat16, float32 and float64
Errors  ValueError for a shape or layout, TypeError for an element type
"""

import functools

import numpy as np

from ..errors import ShapeError
from ..launcher import check, flat, launcher, number, reads, whole, writes
from ..toolchain import implementation

__all__ = ["dropout", "erf", "leaky_relu", "leaky_relu_grad", "relu", "relu_grad"]

elementwise = functools.partial(launcher, view=flat)


@elementwise(reads("x", "*"), writes("out", "*"))
def relu(x, out):
    """The positive part. NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = relu_grad(g, out)
    Shapes  x and out alike
    Source  Nair and Hinton 2010
    """


@elementwise(reads("g out", "*"), writes("dx", "*"))
def relu_grad(g, out, dx):
    """The gradient of relu. Where out is NaN, g passes, as in PyTorch.

    Math    dx = 0 where out <= 0, else g
    Grads   linear in g: dg = relu_grad(v, out)
    Shapes  g, out and dx alike
    """


@elementwise(reads("x", "*"), writes("out", "*"), negative_slope=number)
def leaky_relu(x, negative_slope, out):
    """The positive part, and a multiple of the negative one. NaN stays NaN.

    Math    out = x where x > 0, else negative_slope * x
    Grads   dx = leaky_relu_grad(g, x, negative_slope)
    Shapes  x and out alike
    Source  Maas, Hannun and Ng 2013, "Rectifier nonlinearities improve neural network acoustic models"
    """


@elementwise(reads("g x", "*"), writes("dx", "*"), negative_slope=number)
def leaky_relu_grad(g, x, negative_slope, dx):
    """The gradient of leaky_relu. Where x is NaN, g is scaled, as in PyTorch.

    Math    dx = g where x > 0, else negative_slope * g
    Grads   linear in g: dg = leaky_relu_grad(v, x, negative_slope)
    Shapes  g, x and dx alike
    """


@elementwise(reads("x", "*"), writes("out", "*"))
def erf(x, out):
    """The error function. float64 is the C library's, float32 a quotient of polynomials within 4 roundings.

    Math    out = 2 / sqrt(pi) times the integral of e^{-t^2} from 0 to x
    Grads   dx = g * 2 / sqrt(pi) * e^{-x^2}
    Shapes  x and out alike
    Source  Abramowitz and Stegun 1964, 7.1.1
    """


_word = whole(0, 1 << 64).of  # an integer of 64 bits without sign, which differs from call to call


def _probability(op, name, value):
    if not 0 <= value <= 1:
        raise ShapeError(f"{op}: {name} = {value}, wants 0 to 1")
    return float(value)


def _threshold_and_scale(p, kind):
    """Words below the threshold, of 32 bits, are dropped; what is kept is scaled, in the arithmetic of its type."""
    threshold, keep = round(p * 2**32), kind(1) - kind(p)
    if threshold == 2**32:  # all are dropped
        return 2**32 - 1, 0.0
    return threshold, float(kind(1) / keep) if keep else float("inf")


def _key(x, seed, step):
    """(seed, step) for the kernels; an array of a device stays one."""
    if not getattr(seed, "shape", ()):
        return np.uint64(_word("dropout", "seed", seed)), np.uint64(step)
    check("dropout", "seed", seed, x, (np.dtype(np.uint64),), (2,))
    if type(seed) is np.ndarray:
        return seed[0], np.uint64((int(seed[1]) + step) % 2**64)
    return seed, np.uint64(step)


@elementwise(reads("x", "*"), writes("out", "*"), p=_probability, step=_word)
def dropout(x, p, seed, step, out):
    """Zero each element with probability p and scale the others, so that the expectation stays.

    The mask is a pure function of (seed, step, position in memory): element 4*b + w is kept if word w of
    Philox4x32-10 at counter (b, step), key seed, is at least p * 2**32. It is the same for every element type and
    any number of threads.

    Math    out = x * mask / (1 - p); zeros for p = 1
    Grads   linear in x, its own adjoint: dx = dropout(g, p, seed, step)
    Shapes  x and out alike; seed: an integer, or a uint64 array (seed, s) where x is, which a GPU reads when the kernel
            runs: the mask is that of (seed, s + step) then
    Errors  ValueError if p is outside [0, 1] or seed or step outside 64 bits
    Source  Srivastava et al. 2014; Salmon et al. 2011 (Philox)
    """
    kernel, kind = implementation(__name__, "dropout", x), x.dtype.type
    return lambda x, p, seed, step, out: kernel(x, *_threshold_and_scale(p, kind), *_key(x, seed, step), out)
