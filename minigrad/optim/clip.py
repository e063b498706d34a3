"""Gradients held within bounds, between backward and the optimiser's step.

parameters  a Tensor or several; those without a gradient are left out
Errors  TypeError for what is no Tensor, ValueError for an option out of range
Source  Pascanu and others 2013, "On the difficulty of training recurrent neural networks", algorithm 1
"""

import math
import weakref
from collections.abc import Iterable

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device, ops
from ..core.modes import no_grad
from ..core.tape import write
from ..core.tensor import Tensor
from .counts import number_there

__all__ = ["batches_of", "clip_grad_norm_", "clip_grad_value_", "clip_scale"]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scale all gradients by one factor, so that their norm as one long vector is at most max_norm.

    Math    gradient *= min(1, max_norm / (norm + 1e-6))
    norm_type           p of the p-norm; 'inf' or math.inf for the largest magnitude
    error_if_nonfinite  refuse a norm that is infinite or NaN, with the gradients as they are; otherwise they
                        become zeros or NaN, as in PyTorch
    Returns the norm before, a Tensor without dimensions. Where all gradients lie on one GPU it lies there too, and the
    host waits for nothing, unless error_if_nonfinite makes it read the norm.
    Errors  RuntimeError for a norm that is refused
    """
    op, norm_type = "clip_grad_norm_", _number("clip_grad_norm_", "norm_type", norm_type)
    max_norm = _bound(op, "max_norm", max_norm)
    if not norm_type > 0:
        raise ShapeError(f"{op}: norm_type is {norm_type}, wanted a number above 0")
    parameters = _parameters(op, parameters)
    place = _one_place(parameters)
    if place is not None and place is not device.CPU:
        return _clip_there(op, place, parameters, max_norm, norm_type, error_if_nonfinite)
    norm = _norm(parameters, norm_type)
    if error_if_nonfinite:
        _check_finite(op, norm, norm_type)
    factor = max_norm / (norm + 1e-6)
    if not factor >= 1:  # NaN too
        for batch in batches_of(parameters):
            with device.place_of(batch[0].grad.array).active():
                _scale(batch, factor)
    dtype = parameters[0].grad.dtype if parameters else device.default_dtype
    return Tensor(device.full((), norm, dtype))


def clip_scale(parameters, max_norm=math.inf, inverse=None, found_inf=None):
    """The number that an optimiser's step takes as `scale` to clip all gradients, which stay as they are.

    Math    norm = inverse * |all gradients|;  scale = inverse * min(1, max_norm / (norm + 1e-6)), NaN where norm is
    inverse     that of the scale of the loss; one number in an array or a Tensor, None for 1
    found_inf   an array (1,) of float64 where the gradients are; gets 1 where the norm is infinite or NaN
    Returns (norm, scale): a Tensor without dimensions and an array (1,) of float64, both where the gradients are. If
    those lie on several devices, the host reads the norm, and both lie on the CPU; found_inf then too.
    """
    op, max_norm = "clip_scale", _bound("clip_scale", "max_norm", max_norm)
    parameters = _parameters(op, parameters)
    place = _one_place(parameters)
    if inverse is not None:
        inverse = number_there(op, "inverse", inverse, place or device.CPU)
    if place is not None:
        with place.active():
            norm, scale, _ = _clipping(parameters, max_norm, 2, inverse, found_inf)
        return Tensor(norm), scale
    dtype = parameters[0].grad.dtype if parameters else device.default_dtype
    norm, scale, square = device.empty((), dtype), device.empty((1,), "float64"), _norm(parameters, 2) ** 2
    kernels.clip_factor(device.full((1,), square, "float64"), max_norm, norm, scale, inverse, found_inf)
    return Tensor(norm), scale


def _one_place(parameters):
    """Where all the gradients lie, None if there are none or several places."""
    places = {device.place_of(parameter.grad.array) for parameter in parameters}
    return places.pop() if len(places) == 1 else None


def _check_finite(op, norm, norm_type):
    if not math.isfinite(norm):
        raise StateError(f"{op}: the {norm_type}-norm of the gradients is {norm}; error_if_nonfinite=False goes on")


def clip_grad_value_(parameters, clip_value):
    """Move every element of all gradients into [-clip_value, clip_value]."""
    bound = _bound("clip_grad_value_", "clip_value", clip_value)
    for parameter in _parameters("clip_grad_value_", parameters):
        array = write(parameter.grad)
        with device.place_of(array).active():
            device.array_module(array).clip(array, -bound, bound, out=array)


def _number(op, name, value):
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise KindError(f"{op}: {name} is {value!r}, wanted a number") from error


def _bound(op, name, value):
    number = _number(op, name, value)
    if not number >= 0:
        raise ShapeError(f"{op}: {name} is {number}, wanted at least 0")
    return number


def _parameters(op, parameters):
    """Those that have a gradient."""
    if not isinstance(parameters, Iterable):
        raise KindError(f"{op}: parameters is a {type(parameters).__name__}, wanted a Tensor or several")
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for index, parameter in enumerate(parameters):
        if not isinstance(parameter, Tensor):
            raise KindError(f"{op}: parameters[{index}] is a {type(parameter).__name__}, wanted a Tensor")
    return [parameter for parameter in parameters if parameter.grad is not None]


def batches_of(parameters):
    """Lists of parameters whose gradients have one type and device, which one launch takes."""
    batches = {}
    for parameter in parameters:
        batches.setdefault((parameter.grad.device, parameter.grad.dtype), []).append(parameter)
    return batches.values()


def _squares(batch, squares, plan=None):
    """Write the sums of the squares of the gradients of a batch."""
    arrays = [parameter.grad.array for parameter in batch]
    kernels.squared_norms(arrays, squares, device.workspace, plan)


def _scale(batch, factor, plan=None):
    kernels.scale([write(parameter.grad) for parameter in batch], factor, plan)


def _norm(parameters, norm_type):
    """The norm, summed in float64 and read by the host."""
    if norm_type == 2:
        total = 0.0
        for batch in batches_of(parameters):
            like = batch[0].grad.array
            with device.place_of(like).active():
                squares = device.empty((len(batch),), "float64", like=like)
                _squares(batch, squares)
                total += math.fsum(device.host(squares).tolist())
        return math.sqrt(total)
    with no_grad():
        sizes = _sizes(parameters)
        if norm_type == math.inf:
            greatest = [ops.amax(size).item() for size in sizes]
            return next((value for value in greatest if math.isnan(value)), max(greatest, default=0.0))
        return math.fsum(ops.sum(size**norm_type).item() for size in sizes) ** (1 / norm_type)


def _sizes(parameters):
    return [ops.abs(parameter.grad.double()) for parameter in parameters if parameter.grad.numel()]


# ---- on one device: nothing waits for the host -----------------------------------------------------------------------

_plans: dict[int, tuple[weakref.ref, kernels.Plan]] = {}  # of the kernels, by the identity of an owner


def _plan(owner):
    """What the kernels keep from step to step for the batch that begins with this parameter, as long as it lives."""
    key = id(owner)
    if key not in _plans:
        _plans[key] = weakref.ref(owner, lambda _: _plans.pop(key, None)), kernels.Plan()
    return _plans[key][1]


def _clipping(parameters, max_norm, norm_type, inverse=None, found_inf=None):
    """(norm, factor, batches): arrays of the device that holds all gradients, which computes them itself."""
    like, batches = parameters[0].grad.array, batches_of(parameters)
    norm, factor = device.empty((), like.dtype, like=like), device.empty((1,), "float64", like=like)
    if norm_type == 2:
        squares, start = device.empty((len(parameters),), "float64", like=like), 0
        for batch in batches:
            _squares(batch, squares[start : start + len(batch)], _plan(batch[0]))
            start += len(batch)
    else:
        squares = _squared_norm(parameters, norm_type)
    kernels.clip_factor(squares, max_norm, norm, factor, inverse, found_inf)
    return norm, factor, batches


def _clip_there(op, place, parameters, max_norm, norm_type, error_if_nonfinite):
    """clip_grad_norm_ where all gradients lie on one device."""
    with place.active():
        norm, factor, batches = _clipping(parameters, max_norm, norm_type)
        if error_if_nonfinite:
            _check_finite(op, device.host(norm).item(), norm_type)
        for batch in batches:
            _scale(batch, factor, _plan(batch[0]))
    return Tensor(norm)


@no_grad()
def _squared_norm(parameters, norm_type):
    """The square of the norm, of float64, from which clip_factor takes the root again."""
    sizes = _sizes(parameters) or [Tensor(device.zeros((1,), "float64", like=parameters[0].grad.array))]
    if norm_type == math.inf:
        norm = ops.amax(ops.stack([ops.amax(size) for size in sizes]))
    else:
        norm = ops.sum(ops.stack([ops.sum(size**norm_type) for size in sizes])) ** (1 / norm_type)
    return (norm * norm).array.reshape(1)
