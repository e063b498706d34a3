"""What functions ask of their arguments before any work: flags, integers, numbers, arrays, choices.

Each returns the value, and names function and argument where it refuses: TypeError for another kind, ValueError for
what is out of range.
"""

import functools
import math
import operator
from numbers import Integral, Real

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, SubscriptError

from .. import device

LIMIT = 1 << 63  # integers of 64 bits are from -LIMIT up to LIMIT, which is not one


def instance_of(op, name, value, kind, optional=False):
    """The value, an instance of this class, or None where it is optional."""
    if not isinstance(value, kind) and not (optional and value is None):
        wanted = f"an instance of {kind.__name__}{' or None' if optional else ''}"
        raise KindError(f"{op}: {name} is {value!r}, wanted {wanted}")
    return value


def integer_of(op, name, value, least=-LIMIT):
    """The value, a Python or NumPy integer that is not below the least, as a Python integer."""
    if type(value) is not int:
        try:
            value = operator.index(None if isinstance(value, bool) else value)
        except TypeError:
            raise KindError(f"{op}: {name} is {value!r}, wanted an integer") from None
    if not least <= value < LIMIT:
        wanted = f"at least {least}" if -LIMIT <= value < least else "an integer of 64 bits"
        raise ShapeError(f"{op}: {name} is {value}, wanted {wanted}")
    return value


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


def number_of(op, name, value, least=None, most=math.inf):
    """The value, a Python or NumPy number from the least, where one is given, to the most, as a Python one."""
    if type(value) is not float and type(value) is not int:  # as rarely: to ask for a Real takes a microsecond
        if not isinstance(value, Real):
            kind = value if isinstance(value, str) else type(value).__name__
            raise KindError(f"{op}: {name} is {kind!r}, wanted a number")
        value = int(value) if isinstance(value, Integral) else float(value)
    if least is not None and not least <= value <= most:
        wanted = f"at least {least}" if most == math.inf else f"a number from {least} to {most}"
        raise ShapeError(f"{op}: {name} is {value}, wanted {wanted}")
    return value


def number_in(op, name, value, dtype):
    """The value, a number, as an array without dimensions of an element type that can hold it."""
    value = number_of(op, name, value)
    try:
        held = device.full((), value, dtype)
    except ShapeError:
        held = None
    if held is None or np.isinf(held) and abs(value) != math.inf:
        raise ShapeError(f"{op}: {name} is {value}, which does not fit in {dtype}")
    if not device.is_floating(dtype) and held != value:
        raise KindError(f"{op}: {name} is {value}, wanted a number that {dtype} can hold")
    return held


def source_of(op, generator):
    """Where a Generator, or for None the default one, draws from: NumPy's."""
    if not isinstance(generator, device.Generator | None):
        raise KindError(f"{op}: generator is a {type(generator).__name__}, wanted a Generator or None")
    return (generator or device.generator()).numpy


def float_of(op, name, value):
    """The value, a number, as a Python float."""
    return float(number_of(op, name, value))


def floats_of(op, name, value):
    """The value, an array of floating elements as a primitive sees its Tensors."""
    if not isinstance(value, np.ndarray) and not device.is_array(value):
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted a Tensor")
    if not device.is_floating(value.dtype):
        raise KindError(f"{op}: {name} has elements {value.dtype}, wanted floating ones; convert with .to('float32')")
    return value


def flag_of(op, name, value):
    """The value, True or False."""
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, Integral) and value in (0, 1)):
        raise KindError(f"{op}: {name} is {value!r}, wanted True or False")
    return bool(value)


def function_of(op, name, value):
    """The value, which can be called and is no class."""
    if isinstance(value, type):
        raise KindError(f"{op}: {name} is the class {value.__name__}, wanted a function or {value.__name__}(...)")
    if not callable(value):
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted a function")
    return value


def each(op, name, value, count, least):
    """A number for each of count dimensions, given one by one or once for all, as a tuple."""
    values = value if isinstance(value, tuple | list) else _repeated(value, count)
    if len(values) != count:
        raise KindError(f"{op}: {name} is {value!r}, wanted an integer or {count} of them")
    if type(values) is tuple and {*map(type, values)} == {int} and min(values) >= least:  # as nearly always
        return values  # the very same: kernels find their plan by it
    return tuple([integer_of(op, name, one, least) for one in values])


@functools.lru_cache(typed=True)  # 1 == 1.0 == True
def _repeated(value, count):
    return (value,) * count


def pair_of(op, name, value, ndim, least):
    """(vertical, horizontal) from one integer or ndim of them; along a height that is not there `least`."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = integer_of(op, name, value[0])
    values = each(op, name, value, ndim, least)
    return values if ndim == 2 else (least, *values)


def one_of(layer, name, value, choices):
    """One of the choices, itself."""
    if not isinstance(value, str) or value not in choices:
        raise ShapeError(f"{layer}: {name} is {value!r}, wanted {' or '.join(map(repr, choices))}")
    return value


# ---- dimensions ------------------------------------------------------------------------------------------------------


def axis_of(op, dim, ndim):
    """A dimension counted from the front; negative ones count from the back."""
    dim, count = integer_of(op, "dim", dim), max(ndim, 1)  # a scalar takes 0 and -1
    if not -count <= dim < count:
        raise SubscriptError(f"{op}: dim is {dim}, wanted {-count} to {count - 1} for {ndim} dimensions")
    return dim % count


def axes_of(op, dim, ndim):
    """Distinct dimensions counted from the front; all of them for None."""
    if dim is None:
        return tuple(range(ndim))
    axes = tuple(axis_of(op, one, ndim) for one in (dim if isinstance(dim, tuple | list) else (dim,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: dim is {dim}, which names a dimension twice")
    return axes if ndim else ()
