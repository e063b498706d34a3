"""What arguments are besides Tensors and numbers: flags and functions."""

from numbers import Integral

import numpy as np

from minigrad_kernels.errors import KindError

__all__ = ["flag_of", "function_of"]


def flag_of(op, name, value):
    """The value, True or False."""
    if value is True or value is False:
        return value
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, Integral) and value in (0, 1)):
        raise KindError(f"{op}: {name} is {value!r}, wanted True or False")
    return bool(value)


def function_of(op, name, value):
    """The value, which can be called."""
    if not callable(value):
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted a function")
    return value
