"""The device "interpreter": arrays of the interpreter, for which kernels are the compiled CUDA kernels run in NumPy.

All that a GPU would do happens on it, slowly and on any machine: for tests, for learning, for finding faults.
"""

import functools
import types

import numpy as np

from minigrad_kernels import interpreter
from minigrad_kernels.layout import c_order, strides_of
from minigrad_kernels.softmax import NO_WRONG_LABEL, raise_wrong

from . import arrays
from .places import DeviceName, Place

__all__ = ["INTERPRETER"]


class _Module:
    """NumPy, but for functions that make arrays out of nothing: theirs are the interpreter's too."""

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, type | types.ModuleType | np.ufunc) or not callable(found):
            return found

        @functools.wraps(found)
        def function(*args, **options):
            return interpreter.as_array(found(*args, **options))

        setattr(self, name, function)
        return function


class Interpreted(Place):
    name = DeviceName("interpreter")

    def __init__(self):
        self.module = _Module()
        self.wrong = interpreter.array(np.array([NO_WRONG_LABEL]))

    def take(self, shape, dtype, order):
        dtype = np.dtype(dtype)
        strides = strides_of(shape, c_order(len(shape)) if order is None else order, dtype.itemsize)
        memory = interpreter.empty((int(np.prod(shape)),), dtype)
        return np.ndarray.__new__(interpreter.Array, shape, dtype, memory, 0, strides)

    def upload(self, array):
        order = arrays.order_of(array)
        return interpreter.array(np.asarray(array.transpose(order), order="C")).transpose(np.argsort(order))

    def download(self, array):
        self.synchronize()
        return np.array(array, order="K", copy=True).view(np.ndarray)

    def synchronize(self):
        raise_wrong(self.wrong)

    def statistics(self):
        return {}


INTERPRETER = Interpreted()
