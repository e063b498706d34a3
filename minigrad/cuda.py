"""GPUs, by the names that PyTorch's users know: minigrad.cuda.is_available(), synchronize(), Stream, ...

Work on arrays of a GPU goes to the current stream of this thread. Memory, copies and places are in `minigrad.device`.
"""

import contextlib
from functools import partial
from types import SimpleNamespace

from minigrad_kernels.errors import KindError, StateError
from minigrad_kernels.toolchain.watch import watching

from . import device as devices
from .amp import GradScaler, autocast
from .core.interceptors import Interceptor, proceed
from .device import gpu_name, memory_statistics

__all__ = [
    "current_device", "device_count", "emit_nvtx", "get_device_name", "is_available", "mem_get_info",
    "memory_statistics", "set_device", "stream", "synchronize", "Stream",
]  # fmt: skip

amp = SimpleNamespace(GradScaler=GradScaler, autocast=partial(autocast, "cuda"))  # as it was called before minigrad.amp


def device_count():
    """How many GPUs can be used; 0 without CuPy or a driver."""
    try:
        from .device.cuda import count

        return count()
    except (ImportError, StateError):
        return 0


def is_available():
    """Whether any GPU can be used."""
    return device_count() > 0


def current_device():
    """The number of this thread's current GPU."""
    return devices.place("cuda").number


def set_device(device):
    """Make a GPU, given by number or name, the current one of this thread: what "cuda" means.

    A rank that uses one of several GPUs does this before all else: where none was chosen, the driver sets GPU 0 up for
    the process, too, which takes some hundred MB there.
    Errors  RuntimeError if there is no such GPU
    """
    name = gpu_name(device)
    number = name.partition(":")[2]
    if number and int(number) < device_count():
        from .device.cuda import runtime

        runtime.setDevice(int(number))
    devices.place(name)


def get_device_name(device=None):
    """What the driver calls a GPU, given by number or name."""
    return devices.place(gpu_name(device)).title()


def mem_get_info(device=None):
    """(free, total) bytes of a GPU's memory."""
    found = devices.place(gpu_name(device)).statistics()
    return found["free_bytes"], found["total_bytes"]


def synchronize(device=None):
    """Wait until a GPU has done all that it was told, then raise what it has reported."""
    devices.synchronize(gpu_name(device))


def Stream(device=None):
    """A new stream of a GPU, whose work does not wait for that of other streams; use it in `with stream(s):`.

    What other streams make, parameters for instance, is there once they were waited for: synchronize(), or CuPy's
    s.wait_event(other.record()). Keep what it reads until its work is done: memory goes back to the stream it is of.
    """
    return devices.place(gpu_name(device)).stream()


@contextlib.contextmanager
def stream(stream):
    """A context in which the GPU of a stream is the current one, and work there goes to the stream."""
    if not hasattr(stream, "device_id"):
        raise KindError(f"cuda.stream: stream is a {type(stream).__name__}, wanted a Stream: minigrad.cuda.Stream()")
    with devices.place(f"cuda:{stream.device_id}").active(), stream:
        yield


# ---- ranges for NVIDIA's profilers -----------------------------------------------------------------------------------


class _Ranges(Interceptor):
    def apply(self, primitive, values, below):
        with devices.place("cuda").range(primitive.name):
            return proceed(below, primitive, values)


def _range(kind, subject):
    """The range of a part that is no op: see minigrad_kernels/toolchain/watch.py."""
    if kind == "module":
        return devices.place("cuda").range(type(subject).__name__)
    if kind == "backward":
        return devices.place("cuda").range(f"{subject.primitive.name}.backward")
    return contextlib.nullcontext()


@contextlib.contextmanager
def emit_nvtx():
    """Inside, each op, its gradients and each layer is a named range (NVTX) that NVIDIA's profilers show.

    Errors  RuntimeError where no GPU can be used
    """
    devices.place("cuda")
    with _Ranges(), watching(_range):
        yield
