"""The modules that stand in for CuPy's, with its names and no others."""

import types

import numpy as np

from . import driver, graphs, memory, nccl, streams
from .arrays import CUPY_UFUNCS, FUNCTIONS, find, ndarray, ufunc
from .machine import CUDARuntimeError, OutOfMemoryError, current
from .names import known


class Namespace(types.ModuleType):
    """A module of CuPy's: AttributeError for names that it has not, NotImplementedError for those not modelled.

    make    gives the value of a name that is not among the contents, None for none
    """

    def __init__(self, name, contents, label=None, make=lambda name: None):
        super().__init__(label or name)
        self.__file__ = __file__  # by which capture knows what is CuPy's
        self.__dict__.update(contents)
        known_ = known()[name]
        self.__dict__.update(_known=known_, _make=make)
        assert not (unknown := contents.keys() - known_.keys()), f"{name} has no {unknown}"

    def __getattr__(self, name):
        if name.startswith("__") or name not in self._known:
            raise AttributeError(f"module '{self.__name__}' has no attribute {name!r}")
        told = self._known[name]
        value = told["value"] if isinstance(told, dict) and "value" in told else self._make(name)
        if value is None:
            raise NotImplementedError(f"stand-in: {self.__name__}.{name} is one of CuPy's names, but is not modelled")
        setattr(self, name, value)
        return value


def empty_pinned(shape, dtype=float, order="C"):
    """An array of the host in pinned memory, which kernels reach by its address."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, memory.alloc_pinned_memory(max(size, 1)), order=order)


def _range(message=None):
    current().ranges.append(message)


def _named(module, *names):
    return {name: getattr(module, name) for name in names}


MEMORY = _named(memory, "Memory", "MemoryPointer", "MemoryPool", "UnownedMemory", "alloc")
STREAMS = _named(streams, "Event", "Stream", "get_current_stream", "get_elapsed_time")
FUNCTION = _named(driver, "Function", "Module")
DEVICE = _named(streams, "Device")
ERRORS = {"OutOfMemoryError": OutOfMemoryError, "CUDARuntimeError": CUDARuntimeError}
PARTS = {
    "runtime": Namespace("cupy.cuda.runtime", driver.RUNTIME, "cupy_backends.cuda.api.runtime"),
    "driver": Namespace("cupy.cuda.driver", driver.DRIVER, "cupy_backends.cuda.api.driver"),
    "function": Namespace("cupy.cuda.function", FUNCTION),
    "memory": Namespace("cupy.cuda.memory", MEMORY | ERRORS),
    "stream": Namespace("cupy.cuda.stream", STREAMS),
    "device": Namespace("cupy.cuda.device", DEVICE),
    "nvtx": Namespace("cupy.cuda.nvtx", {"RangePush": _range, "RangePop": _range}),
}
OWN = DEVICE | _named(graphs, "Graph") | _named(memory, "using_allocator", "alloc_pinned_memory")
CUDA = Namespace("cupy.cuda", PARTS | MEMORY | STREAMS | FUNCTION | OWN)
TOP = {"ndarray": ndarray, "ufunc": ufunc, "cuda": CUDA, "newaxis": None}
TOP["get_default_memory_pool"] = lambda: memory.DEFAULT_POOL
CUPY = Namespace("cupy", CUPY_UFUNCS | FUNCTIONS | TOP, make=find)
CUPY.__version__ = known()["version"]
CUPYX = Namespace("cupyx", {"empty_pinned": empty_pinned})
MODULES = {"cupy": CUPY, "cupy.cuda": CUDA, "cupyx": CUPYX}
MODULES |= {f"cupy.cuda.{name}": PARTS[name] for name in ("function", "memory", "stream", "device", "nvtx")}
MODULES["cupy.cuda.nccl"] = Namespace("cupy.cuda.nccl", nccl.NAMES)
