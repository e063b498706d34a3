"""GPUs of NVIDIA through CuPy: the places "cuda:0", "cuda:1", ...

Work goes to CuPy's current stream and memory comes from CuPy's pool, which hands a block out again only on the stream
for which it was allocated. Arrays come to the host by synchronous copies; those wait for the stream.
"""

import contextlib
import functools
import math
import re

import cupy
import cupyx
import numpy as np
from cupy.cuda import Device, runtime

from minigrad_kernels.errors import OutOfMemory, StateError
from minigrad_kernels.layout import c_order, strides_of
from minigrad_kernels.softmax import NO_WRONG_LABEL, raise_wrong
from minigrad_kernels.toolchain.modes import capturing

from . import arrays
from .memory import Block
from .places import DeviceName, Place

__all__ = ["Fetched", "Gpu", "count", "place", "used"]

READS = "reads values on the host, which waits for the GPU; return the Tensor and read it after the call"
SENDS = "sends data of the host, which a graph would repeat as they are now; pass them as a Tensor on the GPU instead"
WAITS = "waits for the GPU; do it outside of the captured function"

_places: "dict[int, Gpu]" = {}


@functools.cache
def count():
    """How many GPUs can be used.

    Errors  RuntimeError if none can, and why
    """
    try:
        return runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        advice = "check that nvidia-smi shows a GPU and its driver (580 or newer for CUDA 13), and CUDA_VISIBLE_DEVICES"
        raise StateError(f"no GPU can be used: {error}; {advice}") from error


def place(number=None):
    """The GPU of that number, None for the current one of this thread.

    Errors  RuntimeError if it is not here
    """
    if number in _places:
        return _places[number]
    wanted = "cuda" if number is None else DeviceName(f"cuda:{number}")
    try:
        here = count()
    except StateError as error:
        raise StateError(f"to: device is {wanted!r}, but {error}") from error
    number = runtime.getDevice() if number is None else number
    if number >= here:
        names = ", ".join(f"'cuda:{i}'" for i in range(here))
        raise StateError(f"to: device is {wanted!r}, but the GPUs of this machine are: {names}")
    return _places.setdefault(number, Gpu(number))  # of which two threads see the same


def used():
    """The GPUs that this process has used so far."""
    return [gpu for _, gpu in sorted(_places.items())]


class _Active:
    """Makes a GPU the current one, and says in words what to do where its memory did not suffice."""

    __slots__ = ("before", "gpu")

    def __init__(self, gpu):
        self.gpu = gpu

    def __enter__(self):
        self.before = runtime.getDevice()
        if self.before != self.gpu.number:
            runtime.setDevice(self.gpu.number)

    def __exit__(self, kind, error, trace):
        if self.before != self.gpu.number:
            runtime.setDevice(self.before)
        if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
            raise self.gpu.out_of_memory(error) from error


class Mark:
    """A moment in the current stream of a thread: when the GPU has done what the stream was given until now."""

    __slots__ = ("event",)

    def __init__(self):
        self.event = cupy.cuda.get_current_stream().record(cupy.cuda.Event())

    def since(self, earlier):
        """Seconds since an earlier Mark, once both are past; of about a microsecond's precision."""
        return cupy.cuda.get_elapsed_time(earlier.event, self.event) / 1000


class Fetched:
    """An array that comes to the host while both go on."""

    def __init__(self, gpu, array):
        self._gpu, stream = gpu, cupy.cuda.get_current_stream()
        self._values = cupyx.empty_pinned(array.shape, array.dtype)
        array.get(stream, out=self._values, blocking=False)
        self._there = stream.record(cupy.cuda.Event(disable_timing=True))

    @property
    def done(self):
        return self._there.done

    def value(self):
        """NumPy's array, once it is there. Errors: what kernels reported until then."""
        self._there.synchronize()
        self._gpu.check()
        return self._values


class Gpu(Place):
    """One GPU."""

    module, measured = cupy, True

    def __init__(self, number):
        self.number, self.name = number, f"cuda:{number}"
        with Device(number):
            # Pinned: kernels write to it by its address, the host reads it without a copy.
            self.word = cupyx.empty_pinned((1,), np.int64)
            self.word[0] = NO_WRONG_LABEL
            memory = cupy.cuda.UnownedMemory(self.word.ctypes.data, self.word.nbytes, self.word, number)
            self.wrong = cupy.ndarray((1,), np.int64, cupy.cuda.MemoryPointer(memory, 0))

    def active(self, values=()):
        if values and (recorder := capturing.get()) is not None:
            recorder.hold(values)
        return _Active(self)

    @staticmethod
    @contextlib.contextmanager
    def range(name):
        """A named range for NVIDIA's profilers."""
        cupy.cuda.nvtx.RangePush(name)
        try:
            yield
        finally:
            cupy.cuda.nvtx.RangePop()

    @contextlib.contextmanager
    def _active_on(self, stream):
        with self.active(), stream:
            yield

    def lent(self):
        return functools.partial(self._active_on, cupy.cuda.get_current_stream(self.number))

    # ---- memory --------------------------------------------------------------------------------------------------

    def take(self, shape, dtype, order):
        dtype = np.dtype(dtype)
        strides = strides_of(shape, c_order(len(shape)) if order is None else order, dtype.itemsize)
        with self.active():  # which says in words that there is no memory
            memory = cupy.cuda.alloc(math.prod(shape) * dtype.itemsize)
            return cupy.ndarray(shape, dtype, memory, strides)

    def out_of_memory(self, error):
        """CuPy's error in words that say what to do."""
        wanted, found = re.search(r"[\d,]+ bytes|$", str(error))[0] or "more", self.statistics()
        free = f"{found['free_bytes']:,} of its {found['total_bytes']:,} bytes are free"
        held = f"arrays of this process hold {found['used_bytes']:,}"
        hint = "use a smaller batch, or accumulate gradients over several"
        return OutOfMemory(f"{self.name} is out of memory: wanted {wanted}, but {free}, and {held}; {hint}")

    def empty_cache(self):
        with Device(self.number):
            cupy.get_default_memory_pool().free_all_blocks()

    def statistics(self):
        """Bytes obtained from the driver, of these in use and kept for later; free and total bytes of the GPU."""
        with Device(self.number):
            pool, (free, total) = cupy.get_default_memory_pool(), runtime.memGetInfo()
            return {
                "reserved_bytes": pool.total_bytes(),
                "used_bytes": pool.used_bytes(),
                "cached_bytes": pool.free_bytes(),
                "free_bytes": free,
                "total_bytes": total,
            }

    @staticmethod
    def block(array):
        held = array.data.mem
        return Block(id(held), held.size, 0 if isinstance(held, cupy.cuda.UnownedMemory) else held.size)

    # ---- copies --------------------------------------------------------------------------------------------------

    @staticmethod
    def _uncaptured(why):
        """Refuse what a graph that this thread records could not repeat."""
        if (recorder := capturing.get()) is not None:
            recorder.refuse(why)

    def upload(self, array):
        """CuPy copies it to pinned memory and sends it from there on the current stream, without waiting for it."""
        self._uncaptured(SENDS)
        order = arrays.order_of(array)
        with self.active():
            sent = cupy.asarray(np.asarray(array.transpose(order), order="C"))
        return sent.transpose(np.argsort(order).tolist())

    def download(self, array):
        self._uncaptured(READS)
        order = arrays.order_of(array)
        out = arrays.empty(array.shape, array.dtype, order)
        if out.size:
            with self.active():
                view = array.transpose(order)
                view = view if view.flags.c_contiguous else cupy.ascontiguousarray(view)
                view.get(out=out.transpose(order))
        self.check()
        return out

    def fetched(self, array):
        """A small dense array on its way to the host, behind all that the current stream was told."""
        with self.active():
            return Fetched(self, array)

    def copied(self, array, source):
        """A copy of an array: of the host, or of another GPU, over NVLink or PCIe."""
        if not isinstance(source, Gpu):
            return super().copied(array, source)
        with source.active():
            order = arrays.order_of(array)
            dense = cupy.ascontiguousarray(array.transpose(order))
            source.wait()  # what computes it must be done before this GPU reads it
        out = self.take(array.shape, array.dtype, order)
        with self.active():
            if out.nbytes:
                out.data.copy_from_device_async(dense.data, out.nbytes)
                cupy.cuda.get_current_stream().synchronize()  # before the other GPU may use that memory again
        return out

    def title(self):
        """What the driver calls it."""
        return runtime.getDeviceProperties(self.number)["name"].decode()

    def stream(self):
        with Device(self.number):
            return cupy.cuda.Stream(non_blocking=True)

    def mark(self):
        with Device(self.number):
            return Mark()

    def captures(self):
        from .graphs import Graph

        return Graph(self)

    def wait(self):
        self._uncaptured(WAITS)
        Device(self.number).synchronize()

    def synchronize(self):
        self.wait()
        self.check()

    def check(self):
        """Raise what kernels that have ended reported."""
        raise_wrong(self.word)
