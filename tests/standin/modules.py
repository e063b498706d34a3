"""The modules that stand in for CuPy's, with its names and no others."""

import contextlib
import types

import numpy as np

from . import driver, graphs, memory, methods, nccl, streams
from .arrays import check, fresh, ndarray
from .creation import FUNCTIONS
from .functions import bound, derived, find, matmul, refuse_host
from .machine import CUDARuntimeError, OutOfMemoryError, current
from .names import known
from .ufuncs import UFUNCS, ufunc

__all__ = ["CUPY", "MODULES"]

assert methods  # it completes ndarray


class Namespace(types.ModuleType):
    """A module of CuPy's: AttributeError for names that it has not, NotImplementedError for those not modelled."""

    def __init__(self, name, contents, label=None):
        super().__init__(label or name)
        self.__dict__.update(contents)
        object.__setattr__(self, "_known", known()[name])
        unknown = contents.keys() - self._known.keys()
        assert not unknown, f"{name} has no {unknown}"

    def __getattr__(self, name):
        if name.startswith("__") or name not in self._known:
            raise AttributeError(f"module '{self.__name__}' has no attribute {name!r}")
        value = self._made(name)
        if value is None:
            raise NotImplementedError(f"stand-in: {self.__name__}.{name} is one of CuPy's names, but is not modelled")
        setattr(self, name, value)
        return value

    def _made(self, name):
        told = self._known[name]
        return told["value"] if isinstance(told, dict) and "value" in told else None


class Top(Namespace):
    """cupy itself: what is not written down here is NumPy's."""

    def _made(self, name):
        return find(name)


class Linalg(Namespace):
    """cupy.linalg, which calls cuBLAS and cuSOLVER."""

    def _made(self, name):
        numpys = getattr(np.linalg, name, None)
        if isinstance(self._known[name], str) and callable(numpys):
            return derived(name, numpys, self._known[name], f"linalg.{name}")
        return numpys


class StrideTricks(Namespace):
    """cupy.lib.stride_tricks"""

    def _made(self, name):
        numpys, parameters = getattr(np.lib.stride_tricks, name), self._known[name]
        return derived(name, numpys, parameters) if isinstance(parameters, str) else None


class Random(Namespace):
    """cupy.random: numbers of NumPy's generator, in the type that is asked for."""

    def __init__(self, name):
        super().__init__(name, {})
        object.__setattr__(self, "_generator", np.random.default_rng(0))

    def _made(self, name):
        made = {"seed": self._seed, "rand": self._rand, "randn": self._rand}.get(name)
        if made:
            return made if name == "seed" else made(name)
        method = {"random_sample": "random", "ranf": "random", "sample": "random", "randint": "integers"}.get(
            name, name
        )
        if not hasattr(self._generator, method) or not isinstance(self._known[name], str):
            return None

        def function(*arguments, **options):
            given = bound(name, self._known[name], arguments, options)
            refuse_host(name, given.arguments.values())
            dtype = given.arguments.pop("dtype", int if name == "randint" else float)
            check(f"random.{name}")
            result = getattr(self._generator, method)(**{k: _host(v) for k, v in given.arguments.items()})
            return fresh(np.asarray(result).astype(dtype, copy=False))

        return function

    def _seed(self, seed=None):
        object.__setattr__(self, "_generator", np.random.default_rng(seed))
        for name in set(self.__dict__) & set(self._known) - {"seed"}:
            delattr(self, name)

    def _rand(self, name):
        method = {"rand": "random", "randn": "standard_normal"}[name]
        return lambda *size, dtype=float: fresh(getattr(self._generator, method)(size).astype(dtype))


def _host(value):
    return value._x if isinstance(value, ndarray) else value


# ---- cupyx -----------------------------------------------------------------------------------------------------------


def empty_pinned(shape, dtype=float, order="C"):
    """An array of the host in pinned memory, which kernels reach by its address."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    bytes_ = memory.alloc_pinned_memory(max(size * dtype.itemsize, 1))
    return np.frombuffer(bytes_, dtype, size).reshape(shape, order=order)


def zeros_pinned(shape, dtype=float, order="C"):
    made = empty_pinned(shape, dtype, order)
    made[...] = 0
    return made


def empty_like_pinned(a, dtype=None, order="K", subok=None, shape=None):
    return empty_pinned(a.shape if shape is None else shape, dtype or a.dtype)


def zeros_like_pinned(a, dtype=None, order="K", subok=None, shape=None):
    return zeros_pinned(a.shape if shape is None else shape, dtype or a.dtype)


class DeviceSynchronized(RuntimeError):
    pass


@contextlib.contextmanager
def allow_synchronize(allow):
    """Within, what makes the host wait raises DeviceSynchronized unless it is allowed."""
    machine = current()
    before, machine.forbidden = machine.forbidden, None if allow else DeviceSynchronized
    try:
        yield
    finally:
        machine.forbidden = before


rsqrt = ufunc("rsqrt", known()["cupyx"]["rsqrt"]["types"], lambda x: 1 / np.sqrt(x))

# ---- the modules -----------------------------------------------------------------------------------------------------


def _range_push(message, id_color=-1):
    current().ranges.append(message)
    current().open_ranges.append(message)


def _range_pop():
    current().open_ranges.pop()


def _pool():
    return memory.DEFAULT_POOL


MEMORY = {"Memory": memory.Memory, "MemoryPointer": memory.MemoryPointer, "MemoryPool": memory.MemoryPool}
MEMORY |= {"UnownedMemory": memory.UnownedMemory, "alloc": memory.alloc}
PINNED = {name: getattr(memory, name) for name in ("PinnedMemoryPointer", "PinnedMemoryPool", "alloc_pinned_memory")}
STREAMS = {name: getattr(streams, name) for name in streams.__all__ if name != "Device"}
NVTX = {"RangePush": _range_push, "RangePop": _range_pop, "Mark": lambda message, id_color=-1: None}
FUNCTION = {"Function": driver.Function, "Module": driver.Module}
PARTS = {
    "runtime": Namespace("cupy.cuda.runtime", driver.RUNTIME, "cupy_backends.cuda.api.runtime"),
    "driver": Namespace("cupy.cuda.driver", driver.DRIVER, "cupy_backends.cuda.api.driver"),
    "function": Namespace("cupy.cuda.function", FUNCTION),
    "memory": Namespace(
        "cupy.cuda.memory",
        MEMORY | {"OutOfMemoryError": OutOfMemoryError, "CUDARuntimeError": CUDARuntimeError},
    ),
    "pinned_memory": Namespace("cupy.cuda.pinned_memory", PINNED),
    "stream": Namespace("cupy.cuda.stream", STREAMS),
    "device": Namespace("cupy.cuda.device", {"Device": streams.Device}),
    "nvtx": Namespace("cupy.cuda.nvtx", NVTX),
}
CUDA = Namespace(
    "cupy.cuda",
    PARTS | MEMORY | PINNED | STREAMS | FUNCTION
    | {"Device": streams.Device, "Graph": graphs.Graph, "using_allocator": memory.using_allocator}
    | {"get_device_id": lambda: current().device, "is_available": lambda: True},
)  # fmt: skip
LINALG, RANDOM = Linalg("cupy.linalg", {}), Random("cupy.random")
LIB = types.ModuleType("cupy.lib")
LIB.stride_tricks = StrideTricks("cupy.lib.stride_tricks", {})
CUPY = Top(
    "cupy",
    UFUNCS | FUNCTIONS | {
        "ndarray": ndarray, "ufunc": ufunc, "matmul": matmul, "cuda": CUDA, "linalg": LINALG, "random": RANDOM,
        "lib": LIB, "newaxis": None,
        "get_default_memory_pool": _pool, "get_default_pinned_memory_pool": memory.PinnedMemoryPool,
        "is_available": lambda: True,
    },
)  # fmt: skip
CUPY.__version__ = known()["version"]
CUPYX = Namespace(
    "cupyx",
    {
        "DeviceSynchronized": DeviceSynchronized, "allow_synchronize": allow_synchronize, "empty_pinned": empty_pinned,
        "empty_like_pinned": empty_like_pinned, "rsqrt": rsqrt, "zeros_pinned": zeros_pinned,
        "zeros_like_pinned": zeros_like_pinned,
        "scatter_add": lambda a, slices, value: a.scatter_add(slices, value),
        "scatter_max": lambda a, slices, value: a.scatter_max(slices, value),
        "scatter_min": lambda a, slices, value: a.scatter_min(slices, value),
    },
)  # fmt: skip
NCCL = Namespace("cupy.cuda.nccl", nccl.NAMES)
IMPORTABLE = {"function", "memory", "pinned_memory", "stream", "device", "nvtx"}  # the others are attributes alone
MODULES = {"cupy": CUPY, "cupy.cuda": CUDA, "cupy.linalg": LINALG, "cupy.random": RANDOM, "cupyx": CUPYX}
MODULES |= {"cupy.lib": LIB, "cupy.lib.stride_tricks": LIB.stride_tricks}
MODULES |= {f"cupy.cuda.{name}": PARTS[name] for name in IMPORTABLE} | {"cupy.cuda.nccl": NCCL}
