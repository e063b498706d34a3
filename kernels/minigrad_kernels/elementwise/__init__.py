"""Elementwise kernels on dense arrays: all arrays of a call have one shape and one order of axes in memory.

Types   float32 and float64
Errors  ValueError for a shape or layout, TypeError for an element type
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..toolchain import backend
from ..toolchain.arguments import check_array, check_floats, check_output, flat
from . import cpu

__all__ = ["dropout", "relu", "relu_grad"]

KERNELS = {"cpu": cpu}
SMALL = 1 << 15  # elements; below it a second thread costs more than it brings


def _run(kernel, size, *arguments):
    (kernel.alone if size < SMALL else kernel)(*arguments)


def relu(x, out):
    """The positive part. NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = relu_grad(g, out)
    Shapes  x and out alike
    Source  Nair and Hinton 2010
    """
    kernels = KERNELS[backend(x)]
    check_floats("relu", "x", x)
    check_output("relu", "out", out, x.shape, x.dtype)
    _run(kernels.relu, x.size, *flat("relu", ("x", "out"), (x, out)))


def relu_grad(g, out, dx):
    """The gradient of relu. Where out is NaN, g passes, as in PyTorch.

    Math    dx = 0 where out <= 0, else g
    Grads   linear in g: dg = relu_grad(v, out)
    Shapes  g, out and dx alike
    """
    kernels = KERNELS[backend(g)]
    check_floats("relu_grad", "g", g)
    check_array("relu_grad", "out", out, g.shape, g.dtype)
    check_output("relu_grad", "dx", dx, g.shape, g.dtype)
    _run(kernels.relu_grad, g.size, *flat("relu_grad", ("g", "out", "dx"), (g, out, dx)))


def _word(name, value):
    """An integer of 64 bits without sign."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise KindError(f"dropout: {name} is {type(value).__name__}, wants an integer")
    if not 0 <= value < 2**64:
        raise ShapeError(f"dropout: {name} = {value}, wants 0 to 2**64 - 1")
    return np.uint64(value)


def dropout(x, p, seed, step, out):
    """Zero each element with probability p and scale the others, so that the expectation stays.

    The mask is a pure function of (seed, step, position in memory): element 4*b + w is kept if word w of
    Philox4x32-10 at counter (b, step), key seed, is at least p * 2**32. It is the same for every element type and
    any number of threads.

    Math    out = x * mask / (1 - p); zeros for p = 1
    Grads   linear in x, its own adjoint: dx = dropout(g, p, seed, step)
    Shapes  x and out alike
    Errors  ValueError if p is outside [0, 1] or seed or step outside 64 bits
    Source  Srivastava et al. 2014; Salmon et al. 2011 (Philox)
    """
    kernels = KERNELS[backend(x)]
    check_floats("dropout", "x", x)
    check_output("dropout", "out", out, x.shape, x.dtype)
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: p = {p}, wants 0 to 1")
    words = _word("seed", seed), _word("step", step)
    view, out_view = flat("dropout", ("x", "out"), (x, out))
    _run(kernels.dropout, x.size, view, float(p), *words, out_view)
