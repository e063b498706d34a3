"""Options as Python's own values, gradients that fit, and state as a checkpoint takes and gives it."""

import functools
import math

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..core.tensor import Tensor

__all__ = ["array_of", "check_gradient", "laid_alike", "loaded", "loaded_own", "lower_names", "plain", "saved"]


def plain(value):
    """One number in a Tensor or in NumPy's wrapping as Python's; a list, which JSON makes of a tuple, as a tuple.

    Anything else is returned as it is, to be refused by whoever knows what is wanted. One bool in an array is no flag.
    """
    if isinstance(value, list | tuple):
        return tuple(plain(entry) for entry in value)
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or math.prod(shape) != 1 or not hasattr(value, "item"):
        return value
    number = value.item()
    return value if isinstance(number, bool) and not isinstance(value, np.generic) else number


def check_gradient(op, gradient, array):
    """Refuse a gradient that is no Tensor of the shape and type of its parameter's array."""
    if not isinstance(gradient, Tensor):
        raise KindError(f"{op}: a gradient is a {type(gradient).__name__}, wanted a Tensor")
    if gradient.shape != array.shape:
        raise ShapeError(f"{op}: a gradient has shape {gradient.shape}, wanted its parameter's {array.shape}")
    if gradient.dtype != array.dtype:
        raise KindError(f"{op}: a gradient has elements {gradient.dtype}, its parameter {array.dtype}")


def laid_alike(gradients, arrays):
    """Gradients, each in the layout of its parameter's array."""
    pairs = zip(gradients, arrays, strict=True)
    return [g if g.strides == p.strides else device.contiguous(g, device.order_of(p)) for g, p in pairs]


@functools.cache
def lower_names(names):
    """The names of the members of an enumeration as options are called."""
    return [name.lower() for name in names.__members__]


def array_of(value):
    """A value of a saved state as NumPy's array; of a ragged list, one without numbers, to be refused as such."""
    try:
        return device.host(value) if device.is_array(value) else np.asarray(value)
    except (ValueError, TypeError):
        return np.asarray(None)


def saved(value):
    """An array, or that of a Tensor, as a copy in logical (C) order, NumPy's; anything else itself."""
    array = value.array if isinstance(value, Tensor) else value
    return device.host(device.copy(array)) if device.is_array(array) else value


def loaded_own(value, parameter):
    """What `saved` gave of the state of a user's own rule: arrays as Tensors on the parameter's device."""
    array = value.array if isinstance(value, Tensor) else value
    return Tensor(device.move(device.copy(array), parameter.device)) if device.is_array(array) else value


def loaded(place, name, value, parameter):
    """What `saved` gave: the step as an integer, an array in type, layout and place of the parameter."""
    array = array_of(value)
    wanted = () if name == "step" else parameter.shape
    if array.shape != wanted or not device.is_number(array.dtype):
        got = f"shape {array.shape} and elements {array.dtype}"
        raise ShapeError(f"{place} has {got}, wanted numbers of shape {wanted}")
    if name == "step":
        if not (0 <= array < 1 << 53 and array % 1 == 0):
            raise ShapeError(f"{place} is {array}, wanted a count")
        return int(array)
    own = device.empty(array.shape, parameter.dtype, device.order_of(parameter.array))
    own[...] = array
    return device.move(own, parameter.device)
