"""The devices by name: "cpu", "cuda:0", "cuda:1", ..., and "interpreter", which runs the kernels of GPUs in NumPy.

A place is an object that says what differs between devices:

    name            as above
    module          the module whose functions work on arrays there
    take            (shape, dtype, order of the axes, None for C order) -> an uninitialised array, from the memory pool
                    of the device
    upload          a NumPy array -> an equal array there, lying alike, in memory of its own
    download        an array there -> an equal NumPy array, lying alike, in memory of its own
    copied          an array of another place -> an equal array there, lying alike
    fetched         an array there -> the same on the host, on its way: `done` says whether it has come, value() waits
    active          values -> a context in which work on arrays there is done; a graph that is recorded holds the
                    arrays among the values, which the work reads or writes
    lent            makes contexts in which another thread works there as this one does now: on its stream
    wait            wait for all that the device was told to do
    synchronize     wait, then raise what the device has reported
    wrong           an array of one int64 there, into which kernels write labels that are out of range; see
                    softmax.raise_wrong
    statistics      {what: bytes} of the memory pool there
    block           array -> the Block of memory in which it lies
    captures        makes what captures work there into a graph, device/graphs.py; None where that cannot be
    measured        whether work there runs beside the host, so that its time is measured by marks
    range           name -> a context that NVIDIA's profilers show by this name; of GPUs alone
    mark            a moment in the current stream of this thread; later.since(earlier) is in seconds

Everything above this package asks an array for its place, never for its library.
"""

import contextlib
import functools
import re
import types

import numpy as np

from minigrad_kernels.errors import KindError, StateError

from . import memory

__all__ = [
    "CPU",
    "DEVICES",
    "DeviceName",
    "common_place",
    "empty_cache",
    "gpu_name",
    "is_array",
    "is_device",
    "memory_statistics",
    "place",
    "place_of",
    "synchronize",
    "there",
]


DEVICES = "'cpu', 'cuda', 'cuda:0', 'cuda:1', ... or 'interpreter'"  # in messages


class DeviceName(str):
    """The name of a device, as minigrad.device("cuda", 1) makes it and x.device is one.

    type    "cpu", "cuda" or "interpreter"; index: the number of a GPU, None where the name has none
    """

    type = property(lambda self: self.partition(":")[0])
    index = property(lambda self: int(self.partition(":")[2]) if ":" in self else None)


class Place:
    """The CPU, and what other places share with it."""

    name = DeviceName("cpu")
    module = np
    wrong = None  # labels are looked at before the kernel starts
    take = staticmethod(memory.take)
    empty_cache = staticmethod(memory.empty_cache)
    statistics = staticmethod(memory.memory_statistics)
    block = staticmethod(memory.block)
    lent = staticmethod(lambda: contextlib.nullcontext)
    measured = False
    captures = None

    def upload(self, array):
        return array

    def download(self, array):
        return array

    def copied(self, array, source):
        return self.upload(source.download(array))

    def active(self, values=()):
        return contextlib.nullcontext()

    def wait(self):
        """The CPU has done everything it was told."""

    def synchronize(self):
        """And has nothing to report."""

    def fetched(self, array):
        self.synchronize()
        found = self.download(array)
        return types.SimpleNamespace(done=True, value=lambda: found)


CPU = Place()


@functools.cache
def _kind(kind):
    """How arrays of a type find their place: "cpu", "interpreter", "cuda"; None if they are no arrays."""
    if issubclass(kind, np.ndarray):
        from minigrad_kernels.interpreter import Array

        return "interpreter" if issubclass(kind, Array) else "cpu"
    return "cuda" if kind.__name__ == "ndarray" and kind.__module__.partition(".")[0] == "cupy" else None


def is_array(value):
    """Whether value is an array of some device."""
    return isinstance(value, np.ndarray) or _kind(type(value)) is not None


def place_of(array):
    """The place where an array lies; that of NumPy's scalars and of Python's is the CPU."""
    kind = "cpu" if type(array) is np.ndarray else _kind(type(array))
    if kind == "cuda":
        return _cuda().place(array.device.id)
    return _interpreter() if kind == "interpreter" else CPU


def common_place(op, arrays):
    """The place of all arrays, {name: array}.

    Errors  RuntimeError with both devices named if there are two
    """
    (first, like), *others = arrays.items()
    found = place_of(like)
    for name, array in others:
        if place_of(array) is not found:
            there = f"{name} is on {place_of(array).name}, {first} on {found.name}"
            raise StateError(f"{op}: {there}; wanted one device: move one, as in {name}.to({found.name!r})")
    return found


def there(function):
    """A function whose work is done on the device of its first array, given as an array or in a Tensor."""

    @functools.wraps(function)
    def run(*args, **options):
        values = (*args, *options.values())
        arrays = (getattr(value, "_data", value) for value in values)
        with place_of(next(filter(is_array, arrays), None)).active(values):
            return function(*args, **options)

    return run


def is_device(name):
    """Whether a string is the name of a device, be it here or not."""
    return isinstance(name, str) and re.fullmatch("cpu|interpreter|cuda(:[0-9]+)?", name) is not None


def place(name, op="to"):
    """The place of that name; "cuda" alone is the current GPU of this thread. op: who asks.

    Errors  TypeError for what is no name of a device, RuntimeError for a device that is not here
    """
    if name is CPU.name or (isinstance(name, str) and name == "cpu"):  # as nearly always
        return CPU
    if not is_device(name):
        raise KindError(f"{op}: device is {name!r}, wanted {DEVICES}")
    if name == "interpreter":
        return _interpreter()
    try:
        gpus = _cuda()
    except ImportError as error:
        advice = 'pip install -e ".[cuda13]" (or [cuda12])'
        raise StateError(f"{op}: device is {name!r}, but CuPy cannot be imported ({error}); {advice}") from error
    number = name.partition(":")[2]
    return gpus.place(int(number) if number else None)


def gpu_name(device=None):
    """The name of a GPU given by its number or name; None is the current one of this thread."""
    return "cuda" if device is None else f"cuda:{device}" if type(device) is int else device


@functools.cache
def _interpreter():
    from .interpreter import INTERPRETER

    return INTERPRETER


@functools.cache
def _cuda():
    """The module of GPUs, which imports CuPy."""
    from . import cuda

    return cuda


def empty_cache():
    """Give memory that no array uses back to the system, on all devices."""
    for used in (CPU, *(_cuda().used() if _cuda.cache_info().currsize else ())):
        used.empty_cache()


def memory_statistics(device="cpu"):
    """How much memory arrays of a device hold, in bytes, and how much of it is kept for later ones."""
    return place(device).statistics()


def synchronize(device="cuda"):
    """Wait until a device has done all that it was told, then raise what it has reported."""
    place(device).synchronize()
