"""What layers check when they are made, and their parameters."""

from minigrad_kernels.errors import KindError, ShapeError

from .. import device as devices
from ..ops.arguments import flag_of, integer_of, number_of
from .parameter import Parameter

__all__ = [
    "at_least",
    "each",
    "flag_of",
    "fraction",
    "integer_of",
    "number",
    "number_of",
    "one_of",
    "parameter",
]


def at_least(layer, name, value, least):
    """The integer itself."""
    value = integer_of(layer, name, value)
    if value < least:
        raise ShapeError(f"{layer}: {name} is {value}, wanted at least {least}")
    return value


def each(layer, name, value, count, least):
    """A number for each of count dimensions, given one by one or once for all, as a tuple."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * count
    if len(values) != count:
        raise KindError(f"{layer}: {name} is {value!r}, wanted an integer or {count} of them")
    return tuple(at_least(layer, name, one, least) for one in values)


def number(layer, name, value, least):
    """A number that is not below the least, itself."""
    value = number_of(layer, name, value)
    if not value >= least:
        raise ShapeError(f"{layer}: {name} is {value}, wanted at least {least}")
    return value


def fraction(layer, name, value):
    """A number from 0 to 1, itself."""
    value = number_of(layer, name, value)
    if not 0 <= value <= 1:
        raise ShapeError(f"{layer}: {name} is {value}, wanted a number from 0 to 1")
    return value


def one_of(layer, name, value, choices):
    """One of the choices, itself."""
    if not isinstance(value, str) or value not in choices:
        raise ShapeError(f"{layer}: {name} is {value!r}, wanted {' or '.join(map(repr, choices))}")
    return value


def parameter(layer, shape, device=None, dtype=None, order=None):
    """A Parameter whose elements are still undefined and whose axes lie in memory in this order."""
    dtype = devices.default_dtype if dtype is None else devices.element_type(dtype)
    if not devices.is_floating(dtype):
        raise KindError(f"{layer}: dtype is {dtype}, wanted a floating one")
    with devices.naming(layer):
        return Parameter(devices.empty(shape, dtype, order, devices.place("cpu" if device is None else device)))
