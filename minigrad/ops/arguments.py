"""What ops ask of their arguments before any work: Tensors, integers, numbers."""

import operator
from numbers import Integral, Real

from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..flags import flag_of
from ..tensor import Tensor

__all__ = [
    "array_of",
    "bare",
    "flag_of",
    "float_of",
    "floats_of",
    "integer_of",
    "integers_of",
    "number_of",
    "shape_of",
    "source_of",
    "tensor_of",
    "tensors_of",
]


def tensor_of(op, name, value):
    """The value, a Tensor."""
    if not isinstance(value, Tensor):
        hint = "; wrap it in Tensor(...)" if device.is_array(value) else ""
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted a Tensor{hint}")
    return value


def tensors_of(op, values):
    """A list or tuple of Tensors, as a tuple."""
    if not isinstance(values, list | tuple) or not values or not all(isinstance(x, Tensor) for x in values):
        raise KindError(f"{op}: tensors is {type(values).__name__}, wanted a list or tuple of at least one Tensor")
    return tuple(values)


def array_of(op, name, value, ndim=None):
    """The value, an array as a primitive sees its Tensors, of ndim dimensions."""
    if not device.is_array(value):
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted a Tensor")
    if ndim not in (None, value.ndim):
        raise ShapeError(f"{op}: {name} has shape {value.shape}, wanted {ndim} dimensions")
    return value


def integer_of(op, name, value):
    """The value, a Python or NumPy integer, as a Python integer."""
    if type(value) is int and -(1 << 63) <= value < 1 << 63:  # as nearly always
        return value
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise KindError(f"{op}: {name} is {value!r}, wanted an integer")
    try:
        integer = operator.index(value)
    except TypeError:  # an array
        raise KindError(f"{op}: {name} is {value!r}, wanted an integer") from None
    if not -(1 << 63) <= integer < 1 << 63:
        raise ShapeError(f"{op}: {name} is {integer}, wanted an integer of 64 bits")
    return integer


def integers_of(op, name, values):
    """Integers given one by one or as one sequence."""
    values = values[0] if len(values) == 1 and isinstance(values[0], tuple | list) else values
    return tuple([integer_of(op, name, value) for value in values])


def shape_of(op, name, values, ndim=None):
    """Integers that are sizes, ndim of them."""
    sizes = integers_of(op, name, values)
    if any(size < 0 for size in sizes) or ndim not in (None, len(sizes)):
        wanted = "sizes" if ndim is None else f"{ndim} sizes"
        raise ShapeError(f"{op}: {name} is {sizes}, wanted {wanted} that are not negative")
    return sizes


def number_of(op, name, value):
    """The value, a Python or NumPy number, as a Python one."""
    if type(value) is float or type(value) is int:  # as nearly always; to ask for a Real takes a microsecond
        return value
    if not isinstance(value, Real):
        kind = value if isinstance(value, str) else type(value).__name__
        raise KindError(f"{op}: {name} is {kind!r}, wanted a number")
    return int(value) if isinstance(value, Integral) else float(value)


def source_of(op, generator):
    """Where a Generator, or for None the default one, draws from: NumPy's."""
    if not isinstance(generator, device.Generator | None):
        raise KindError(f"{op}: generator is a {type(generator).__name__}, wanted a Generator or None")
    return (generator or device.generator()).numpy


def bare(value):
    """A Tensor without dimensions and without a gradient as the number in it; anything else as it is."""
    return value.item() if isinstance(value, Tensor) and not value.ndim and not value.requires_grad else value


def float_of(op, name, value):
    """The value, a number, as a Python float."""
    value = number_of(op, name, value)
    try:
        return float(value)
    except OverflowError as error:
        raise ShapeError(f"{op}: {name} is {value}, wanted a number of 64 bits") from error


def floats_of(op, name, value):
    """The value, an array of floating elements as a primitive sees its Tensors."""
    if not device.is_floating(array_of(op, name, value).dtype):
        raise KindError(f"{op}: {name} has elements {value.dtype}, wanted floating ones; convert with .to('float32')")
    return value
