"""Gradients held within bounds, between backward and the optimiser's step.

parameters  a Tensor or several; those without a gradient are left out
Errors  TypeError for what is no Tensor, ValueError for an option out of range
Source  Pascanu and others 2013, "On the difficulty of training recurrent neural networks", algorithm 1
"""

import math
import weakref

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import ShapeError, StateError

from .. import device
from ..core.check import number_of
from ..core.tape import write
from ..core.tensor import Tensor
from .optimizer import number_there, plain, several


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scale all gradients by one factor, so that their norm as one long vector is at most max_norm.

    Math    gradient *= min(1, max_norm / (norm + 1e-6))
    norm_type           2, the Euclidean norm, alone
    error_if_nonfinite  refuse a norm that is infinite or NaN, with the gradients as they are; otherwise they
                        become zeros or NaN, as in PyTorch
    Returns the norm before, a Tensor without dimensions. Where all gradients lie on one GPU it lies there too, and the
    host waits for nothing, unless error_if_nonfinite makes it read the norm.
    Errors  RuntimeError for a norm that is refused
    """
    if norm_type != 2:
        raise ShapeError(f"clip_grad_norm_: norm_type is {norm_type}, wanted 2; clip_grad_value_ bounds each element")
    # A list, as they are gone through twice.
    parameters = _with_gradients(several("parameters", parameters, "clip_grad_norm_"))
    norm, factor = clip_scale(parameters, max_norm)
    if error_if_nonfinite and not math.isfinite(size := norm.item()):
        raise StateError(f"clip_grad_norm_: the norm of the gradients is {size}; error_if_nonfinite=False goes on")
    if device.place_of(factor) is device.CPU and factor[0] == 1:  # known without waiting
        return norm
    for place, batch in batches_of(parameters):
        with place.active():
            gradients = [write(parameter.grad) for parameter in batch]
            kernels.scale(gradients, device.move(factor, place.name), _plan(batch[0]))
    return norm


def clip_scale(parameters, max_norm=math.inf, inverse=None, found_inf=None):
    """The number that an optimiser's step takes as `scale` to clip all gradients, which stay as they are.

    Math    norm = inverse * |all gradients|;  scale = inverse * min(1, max_norm / (norm + 1e-6)), NaN where norm is
    inverse     that of the scale of the loss; one number in an array or a Tensor, None for 1
    found_inf   an array (1,) of float64 where the gradients are; gets 1 where the norm is infinite or NaN
    Returns (norm, scale): a Tensor without dimensions and an array (1,) of float64, both where the gradients are. If
    those lie on several devices, both lie on the CPU; found_inf then too.
    """
    max_norm, batches = number_of("clip_grad_norm_", "max_norm", plain(max_norm), 0), batches_of(parameters)
    places = {place for place, _ in batches}
    home = places.pop() if len(places) == 1 else device.CPU
    if inverse is not None:
        inverse = number_there(inverse, home)
    with home.active():
        squares = _squares(batches, home)
        dtype = batches[0][1][0].grad.dtype if batches else device.default_dtype
        norm, factor = device.empty((), dtype, like=squares), device.empty((1,), "float64", like=squares)
        kernels.clip_factor(squares, max_norm, norm, factor, inverse, found_inf)
    return Tensor(norm), factor


def clip_grad_value_(parameters, clip_value):
    """Move every element of all gradients into [-clip_value, clip_value]."""
    bound = number_of("clip_grad_value_", "clip_value", plain(clip_value), 0)
    for parameter in _with_gradients(several("parameters", parameters, "clip_grad_value_")):
        array = write(parameter.grad)
        with device.place_of(array).active():
            device.array_module(array).clip(array, -bound, bound, out=array)


def _with_gradients(parameters):
    """Those of the parameters that have a gradient."""
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    return [parameter for parameter in parameters if parameter.grad is not None]


def batches_of(parameters):
    """(place, parameters) whose gradients lie there and have one type, which one launch takes."""
    batches = {}
    for parameter in _with_gradients(parameters):
        gradient = parameter.grad.array
        batches.setdefault((device.place_of(gradient), gradient.dtype), []).append(parameter)
    return [(place, batch) for (place, _), batch in batches.items()]


_plans: dict[int, tuple[weakref.ref, kernels.Plan]] = {}  # of the kernels, by the identity of an owner


def _plan(owner):
    """What the kernels keep from step to step for the batch that begins with this parameter, as long as it lives."""
    key = id(owner)
    if key not in _plans:
        _plans[key] = weakref.ref(owner, lambda _: _plans.pop(key, None)), kernels.Plan()
    return _plans[key][1]


def _squares(batches, home):
    """The sum of the squares of each gradient, in float64."""
    found = []
    for place, batch in batches:
        gradients = [parameter.grad.array for parameter in batch]
        with place.active():
            squares = device.empty((len(batch),), "float64", like=gradients[0])
            kernels.squared_norms(gradients, squares, device.workspace, _plan(batch[0]))
        found.append(device.move(squares, home.name))
    if len(found) == 1:
        return found[0]
    return device.array_module(found[0]).concatenate(found) if found else device.zeros((0,), "float64")
