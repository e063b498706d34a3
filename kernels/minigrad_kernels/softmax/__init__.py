"""Softmax and cross entropy over the last axis of (rows, classes) matrices in C order.

Types   float32 and float64; target int64
Errors  ValueError for a shape, a layout or a target out of range, TypeError for an element type
Source  Bridle 1990 (softmax); Blanchard, Higham, Higham 2021 (the shifted forms)
"""

import numpy as np

from ..errors import KindError, ShapeError
from ..toolchain import alias, backend
from ..toolchain.arguments import check_array, check_floats, check_output
from . import cpu

__all__ = ["cross_entropy", "cross_entropy_grad", "log_softmax", "log_softmax_grad", "softmax", "softmax_grad"]

KERNELS = {"cpu": cpu}
SMALL = 1 << 14  # elements; below it a second thread costs more than it brings


def _run(kernel, size, *arguments):
    # A loss is nearly always small. The serial version compiles in half the time.
    (kernel.serial if size < SMALL else kernel)(*arguments)


def _check(op, inputs, outputs):
    """The views of inputs and outputs, dictionaries of matrices that are all alike."""
    name, first = next(iter(inputs.items()))
    check_floats(op, name, first)
    if first.ndim != 2 or first.shape[1] < 1:
        raise ShapeError(f"{op}: {name} has shape {first.shape}, wants (rows, classes) with at least one class")
    for name, array in inputs.items():
        check_array(op, name, array, first.shape, first.dtype)
    for name, array in outputs.items():
        check_output(op, name, array, first.shape, first.dtype)
    for name, array in (inputs | outputs).items():
        if not array.flags.c_contiguous:
            raise ShapeError(f"{op}: {name} (shape {array.shape}) has strides {array.strides}, wants C order")
    return [alias(array) for array in (*inputs.values(), *outputs.values())]


def softmax(x, out):
    """Math    out = exp(x) / sum exp(x) over each row
    Grads   dx = softmax_grad(g, out)
    Shapes  x and out (rows, classes)
    """
    kernel = KERNELS[backend(x)].softmax
    _run(kernel, x.size, *_check("softmax", {"x": x}, {"out": out}))


def softmax_grad(g, out, dx):
    """Math    dx = out * (g - sum(g * out) over each row)
    Grads   linear in g and self-adjoint: dg = softmax_grad(v, out)
    Shapes  g, out and dx (rows, classes)
    """
    kernel = KERNELS[backend(g)].softmax_grad
    _run(kernel, g.size, *_check("softmax_grad", {"g": g, "out": out}, {"dx": dx}))


def log_softmax(x, out):
    """Math    out = x - log sum exp(x) over each row
    Grads   dx = log_softmax_grad(g, out)
    Shapes  x and out (rows, classes)
    """
    kernel = KERNELS[backend(x)].log_softmax
    _run(kernel, x.size, *_check("log_softmax", {"x": x}, {"out": out}))


def log_softmax_grad(g, out, dx):
    """Math    dx = g - exp(out) * sum(g) over each row
    Grads   linear in g
    Shapes  g, out and dx (rows, classes)
    """
    kernel = KERNELS[backend(g)].log_softmax_grad
    _run(kernel, g.size, *_check("log_softmax_grad", {"g": g, "out": out}, {"dx": dx}))


def _check_target(op, target, ignore_index, x):
    check_array(op, "target", target, (x.shape[0],), np.int64)
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int | np.integer):
        raise KindError(f"{op}: ignore_index is {type(ignore_index).__name__}, wants an integer")
    classes = x.shape[1]
    wrong = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if wrong.any():
        n = int(wrong.argmax())
        raise ShapeError(f"{op}: target[{n}] = {target[n]}, but there are {classes} classes (0..{classes - 1})")
    return alias(np.ascontiguousarray(target)), int(ignore_index)


def _vector(op, name, array, x, check):
    check(op, name, array, (x.shape[0],), x.dtype)
    if not array.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} has strides {array.strides}, wants C order")
    return alias(array)


def cross_entropy(x, target, ignore_index, losses, logsumexp):
    """The loss of each row of logits, not yet averaged.

    Math    logsumexp[n] = log sum exp(x[n]);  losses[n] = logsumexp[n] - x[n, target[n]], 0 where target[n] is
            ignore_index
    Grads   dx = cross_entropy_grad(g, x, target, ignore_index, logsumexp)
    Shapes  x (rows, classes); target, losses, logsumexp (rows,)
    """
    op = "cross_entropy"
    kernel = KERNELS[backend(x)].cross_entropy
    (view,) = _check(op, {"x": x}, {})
    outputs = [_vector(op, n, a, x, check_output) for n, a in (("losses", losses), ("logsumexp", logsumexp))]
    _run(kernel, x.size, view, *_check_target(op, target, ignore_index, x), *outputs)


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, dx):
    """The gradient of the losses for x.

    Math    dx[n] = g[n] * (exp(x[n] - logsumexp[n]) - one_hot(target[n])), 0 where target[n] is ignore_index
    Grads   linear in g
    Shapes  x and dx (rows, classes); g, target, logsumexp (rows,)
    """
    op = "cross_entropy_grad"
    kernel = KERNELS[backend(x)].cross_entropy_grad
    view, dx_view = _check(op, {"x": x}, {"dx": dx})
    weights = _vector(op, "g", g, x, check_array)
    target, ignore_index = _check_target(op, target, ignore_index, x)
    sums = _vector(op, "logsumexp", logsumexp, x, check_array)
    _run(kernel, x.size, weights, view, target, ignore_index, sums, dx_view)
