"""Gradients held within bounds, between backward and the optimiser's step.

parameters  a Tensor or several; those without a gradient are left out
Errors  TypeError for what is no Tensor, ValueError for an option out of range
Source  Pascanu and others 2013, "On the difficulty of training recurrent neural networks", algorithm 1
"""

import math
from collections.abc import Iterable

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device, ops
from ..engine import write
from ..modes import no_grad
from ..tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_"]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scale all gradients by one factor, so that their norm as one long vector is at most max_norm.

    Math    gradient *= min(1, max_norm / (norm + 1e-6))
    norm_type           p of the p-norm; 'inf' or math.inf for the largest magnitude
    error_if_nonfinite  refuse a norm that is infinite or NaN, with the gradients as they are; otherwise they
                        become zeros or NaN, as in PyTorch
    Returns the norm before, a Tensor without dimensions.
    Errors  RuntimeError for a norm that is refused
    """
    op, norm_type = "clip_grad_norm_", _number("clip_grad_norm_", "norm_type", norm_type)
    max_norm = _number(op, "max_norm", max_norm)
    if not norm_type > 0:
        raise ShapeError(f"{op}: norm_type is {norm_type}, wanted a number above 0")
    gradients = _gradients(op, parameters)
    norm = _norm(gradients, norm_type)
    if error_if_nonfinite and not math.isfinite(norm):
        raise StateError(f"{op}: the {norm_type}-norm of the gradients is {norm}; error_if_nonfinite=False goes on")
    factor = max_norm / (norm + 1e-6)
    if not factor >= 1:  # NaN too
        for batch in _batches(gradients):
            kernels.scale([write(gradient) for gradient in batch], factor)
    dtype = gradients[0].dtype if gradients else device.default_dtype
    return Tensor(device.full((), norm, dtype))


def clip_grad_value_(parameters, clip_value):
    """Move every element of all gradients into [-clip_value, clip_value]."""
    bound = _number("clip_grad_value_", "clip_value", clip_value)
    if not bound >= 0:
        raise ShapeError(f"clip_grad_value_: clip_value is {bound}, wanted at least 0")
    for gradient in _gradients("clip_grad_value_", parameters):
        array = write(gradient)
        device.array_module(array).clip(array, -bound, bound, out=array)


def _number(op, name, value):
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise KindError(f"{op}: {name} is {value!r}, wanted a number") from error


def _gradients(op, parameters):
    if not isinstance(parameters, Iterable):
        raise KindError(f"{op}: parameters is a {type(parameters).__name__}, wanted a Tensor or several")
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for index, parameter in enumerate(parameters):
        if not isinstance(parameter, Tensor):
            raise KindError(f"{op}: parameters[{index}] is a {type(parameter).__name__}, wanted a Tensor")
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _batches(gradients):
    """Lists of gradients of one type and device, which one launch takes."""
    batches = {}
    for gradient in gradients:
        batches.setdefault((gradient.device, gradient.dtype), []).append(gradient)
    return batches.values()


def _norm(gradients, norm_type):
    """The norm, summed in float64."""
    if norm_type == 2:
        total = 0.0
        for batch in _batches(gradients):
            squares = device.zeros((len(batch),), "float64")
            kernels.squared_norms([gradient.data for gradient in batch], squares)
            total += math.fsum(squares.tolist())
        return math.sqrt(total)
    with no_grad():
        sizes = [ops.abs(gradient.double()) for gradient in gradients if gradient.numel()]
        if norm_type == math.inf:
            greatest = [ops.amax(size).item() for size in sizes]
            return next((value for value in greatest if math.isnan(value)), max(greatest, default=0.0))
        return math.fsum(ops.sum(size**norm_type).item() for size in sizes) ** (1 / norm_type)
