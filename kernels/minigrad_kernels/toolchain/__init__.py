"""Compilers, caches and launches: the only place that imports numba.cuda or llvmlite."""

import functools
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from ..errors import KindError
from .cpu import alias, elements, jit, set_threads, share, shared, threads

__all__ = [
    "add", "alias", "array_at", "backend", "clear", "copy", "elements", "flat", "implementation", "jit",
    "set_threads", "share", "shared", "stack_array", "sum_rows", "threads",
]  # fmt: skip


def __getattr__(name):
    """What memory.py has, on demand: it imports Numba, which takes longer than all the rest."""
    if name in ("add", "array_at", "clear", "copy", "flat", "stack_array", "sum_rows"):
        from . import memory

        return getattr(memory, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _backend(kind):
    if kind is np.ndarray:
        return "cpu"
    if kind.__module__.partition(".")[0] == "cupy" and kind.__name__ == "ndarray":
        return "cuda"
    if issubclass(kind, np.ndarray):
        from ..interpreter import Array

        if kind is Array:
            return "cuda"
    wanted = "numpy.ndarray, cupy.ndarray or interpreter.Array"
    raise KindError(f"backend: got {kind.__module__}.{kind.__qualname__}, wants {wanted}")


def backend(array):
    """Which kernels work on this array: "cpu" for numpy.ndarray, "cuda" for cupy.ndarray and interpreter.Array.

    Errors  TypeError for any other kind of array
    """
    return _backend(type(array))


@functools.cache
def _implementation(family, function, kind):
    module = f"{family}.{_backend(kind)}"
    found = getattr(import_module(module), function, None) if find_spec(module) else None
    if found is None:
        short = family.rpartition(".")[2]
        wanted = "an array of a GPU" if kind is np.ndarray else "numpy.ndarray"
        raise KindError(f"{short}.{function}: got {kind.__module__}.{kind.__qualname__}, wants {wanted}")
    return found


def implementation(family, function, array):
    """The function of a family, a package, that works on this kind of array: that of its cpu.py or of its cuda.py.

    Errors  TypeError for any other kind of array, or if the family has no such function for it
    """
    return _implementation(family, function, type(array))
