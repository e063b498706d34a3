"""Elementwise kernels on dense arrays: all arrays of a call have one shape and one order of axes in memory.

Types   float16, bfloat16, float32 and float64
Errors  ValueError for a shape or layout, TypeError for an element type
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..toolchain import implementation
from ..toolchain.arguments import check_array, check_floats, check_one_kind, check_output, flat
from ..toolchain.widening import widened

__all__ = ["dropout", "erf", "leaky_relu", "leaky_relu_grad", "relu", "relu_grad"]


def _views(op, names, arrays):
    kind = type(arrays[0])
    for array in arrays:
        if type(array) is not kind:
            check_one_kind(op, dict(zip(names, arrays, strict=True)))
    return flat(op, names, arrays)


@widened("x", "out")
def relu(x, out):
    """The positive part. NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = relu_grad(g, out)
    Shapes  x and out alike
    Source  Nair and Hinton 2010
    """
    kernel = implementation(__name__, "relu", x)
    check_floats("relu", "x", x)
    check_output("relu", "out", out, x.shape, x.dtype)
    kernel(*_views("relu", ("x", "out"), (x, out)))


@widened("g out", "dx")
def relu_grad(g, out, dx):
    """The gradient of relu. Where out is NaN, g passes, as in PyTorch.

    Math    dx = 0 where out <= 0, else g
    Grads   linear in g: dg = relu_grad(v, out)
    Shapes  g, out and dx alike
    """
    kernel = implementation(__name__, "relu_grad", g)
    check_floats("relu_grad", "g", g)
    check_array("relu_grad", "out", out, g.shape, g.dtype)
    check_output("relu_grad", "dx", dx, g.shape, g.dtype)
    kernel(*_views("relu_grad", ("g", "out", "dx"), (g, out, dx)))


@widened("x", "out")
def leaky_relu(x, negative_slope, out):
    """The positive part, and a multiple of the negative one. NaN stays NaN.

    Math    out = x where x > 0, else negative_slope * x
    Grads   dx = leaky_relu_grad(g, x, negative_slope)
    Shapes  x and out alike
    Source  Maas, Hannun and Ng 2013, "Rectifier nonlinearities improve neural network acoustic models"
    """
    kernel = implementation(__name__, "leaky_relu", x)
    check_floats("leaky_relu", "x", x)
    check_output("leaky_relu", "out", out, x.shape, x.dtype)
    view, out_view = _views("leaky_relu", ("x", "out"), (x, out))
    kernel(view, float(negative_slope), out_view)


@widened("g x", "dx")
def leaky_relu_grad(g, x, negative_slope, dx):
    """The gradient of leaky_relu. Where x is NaN, g is scaled, as in PyTorch.

    Math    dx = g where x > 0, else negative_slope * g
    Grads   linear in g: dg = leaky_relu_grad(v, x, negative_slope)
    Shapes  g, x and dx alike
    """
    kernel = implementation(__name__, "leaky_relu_grad", g)
    check_floats("leaky_relu_grad", "g", g)
    check_array("leaky_relu_grad", "x", x, g.shape, g.dtype)
    check_output("leaky_relu_grad", "dx", dx, g.shape, g.dtype)
    view, x_view, dx_view = _views("leaky_relu_grad", ("g", "x", "dx"), (g, x, dx))
    kernel(view, x_view, float(negative_slope), dx_view)


@widened("x", "out")
def erf(x, out):
    """The error function. float64 is the C library's, float32 a quotient of polynomials within 4 roundings.

    Math    out = 2 / sqrt(pi) times the integral of e^{-t^2} from 0 to x
    Grads   dx = g * 2 / sqrt(pi) * e^{-x^2}
    Shapes  x and out alike
    Source  Abramowitz and Stegun 1964, 7.1.1
    """
    kernel = implementation(__name__, "erf", x)
    check_floats("erf", "x", x)
    check_output("erf", "out", out, x.shape, x.dtype)
    kernel(*_views("erf", ("x", "out"), (x, out)))


def _word(name, value):
    """An integer of 64 bits without sign."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise KindError(f"dropout: {name} is {type(value).__name__}, wants an integer")
    if not 0 <= value < 2**64:
        raise ShapeError(f"dropout: {name} = {value}, wants 0 to 2**64 - 1")
    return np.uint64(value)


def _key(x, seed, step):
    """(seed, step) for the kernels; an array of a device stays one."""
    if not getattr(seed, "shape", ()):
        return _word("seed", seed), step
    check_array("dropout", "seed", seed, (2,), np.uint64)
    check_one_kind("dropout", {"x": x, "seed": seed})
    if type(seed) is np.ndarray:
        return seed[0], np.uint64((int(seed[1]) + int(step)) % 2**64)
    return seed, step


@widened("x", "out")
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
    kernel = implementation(__name__, "dropout", x)
    check_floats("dropout", "x", x)
    check_output("dropout", "out", out, x.shape, x.dtype)
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: p = {p}, wants 0 to 1")
    words = _key(x, seed, _word("step", step))
    view, out_view = _views("dropout", ("x", "out"), (x, out))
    kernel(view, float(p), *words, out_view)
