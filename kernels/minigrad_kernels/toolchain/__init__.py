"""Compilers, caches and launches: the only place that imports numba.cuda or llvmlite."""

import numpy as np

from ..errors import KindError
from .cpu import alias, array_at, jit, parallel, set_threads, stack_array, threads

__all__ = ["alias", "array_at", "backend", "jit", "parallel", "set_threads", "stack_array", "threads"]


def backend(array):
    """Which kernels work on this array: "cpu" for numpy.ndarray.

    Errors  TypeError for any other kind of array
    """
    if type(array) is np.ndarray:
        return "cpu"
    raise KindError(f"backend: got {type(array).__module__}.{type(array).__qualname__}, wants numpy.ndarray")
