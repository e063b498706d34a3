"""What layers check when they are made, and their parameters."""

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import FILTER

from .. import device as devices
from .parameter import Parameter

__all__ = ["at_least", "fraction", "one_of", "parameter"]


def at_least(layer, name, value, least):
    """The integer itself."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise KindError(f"{layer}: {name} is {value!r}, wanted an integer")
    if value < least:
        raise ShapeError(f"{layer}: {name} is {value}, wanted at least {least}")
    return value.__index__()


def fraction(layer, name, value):
    """A number from 0 to 1, itself."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KindError(f"{layer}: {name} is {value!r}, wanted a number")
    if not 0 <= value <= 1:
        raise ShapeError(f"{layer}: {name} is {value}, wanted a number from 0 to 1")
    return value


def one_of(layer, name, value, choices):
    """One of the choices, itself."""
    if value not in choices:
        raise ShapeError(f"{layer}: {name} is {value!r}, wanted {' or '.join(map(repr, choices))}")
    return value


def parameter(layer, shape, device, dtype):
    """A Parameter whose elements are still undefined; filters of convolutions lie H W I O in memory."""
    dtype = devices.default_dtype if dtype is None else devices.element_type(dtype)
    if not devices.is_floating(dtype):
        raise KindError(f"{layer}: dtype is {dtype}, wanted a floating one")
    return Parameter(devices.move(devices.empty(shape, dtype, FILTER if len(shape) == 4 else None), device))
