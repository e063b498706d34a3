"""Starting kernels on a GPU: CuPy loads the machine code and keeps the streams, one driver call starts a kernel.

The arguments of a call are packed by `struct` into a block of memory that each thread keeps, 8 bytes for each; the
driver has copied it by the time it returns. Nothing is allocated and nothing is looked up but the current device
and stream, so a launch costs the host a few microseconds.
"""

import ctypes
import struct
import threading

import numpy as np
from cupy import asarray as upload  # noqa: F401 (for memory.py)
from cupy.cuda import Device, driver, get_current_stream, runtime
from cupy.cuda.function import Module

from ...errors import KindError, ShapeError, StateError
from ..modes import capturing
from .compiler import NoCompilerError
from .kernel import SPECIFIC

SLOTS = {  # of struct: the type of a parameter, filled up to 8 bytes
    "f16": "e6x", "f32": "f4x", "f64": "d", "i8": "b7x", "u8": "B7x", "i16": "h6x", "u16": "H6x",
    "i32": "i4x", "u32": "I4x", "i64": "q", "u64": "Q",
}  # fmt: skip
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STATIC_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES


def write(target, values):
    """Send NumPy's numbers into a dense array of the current device, in the order of the current stream.

    Nothing waits for it, and `values` may change at once: what has 64 KB or less the driver takes along with the call.
    Source  NVIDIA, "CUDA C++ Programming Guide", Asynchronous Concurrent Execution
    """
    values = np.ascontiguousarray(values)
    target.data.copy_from_host_async(values.ctypes.data, values.nbytes, get_current_stream())


def current_device(name):
    """The number of the current device.

    Errors  RuntimeError if there is no GPU or no driver for it
    """
    try:
        return runtime.getDevice()
    except runtime.CUDARuntimeError as error:
        raise StateError(
            f"{name}: no NVIDIA GPU can be used here: {error}; install a driver (580 or newer for CUDA 13), or pass "
            "arrays of minigrad_kernels.interpreter to run without a GPU"
        ) from error


def device_architecture(device):
    """(major, minor) of a device's compute capability."""
    digits = Device(device).compute_capability
    return int(digits[:-1]), int(digits[-1])


def _split(architecture):
    digits = architecture.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])


def fitting(architectures, capability):
    """The architecture whose machine code such a device runs: of its own generation, as new as possible.

    None if all are of older generations: PTX then runs, compiled by the driver.
    """
    known = [name for name in architectures if _split(name)[0] == capability[0] and _split(name) <= capability]
    return max(known, key=_split) if known else None


def image(kernel, capability, device):
    """What the driver loads for a device: machine code, or PTX where there is neither compiler nor machine code."""
    lowest, (major, minor) = kernel.architectures[0], capability
    if capability < _split(lowest) or (lowest in SPECIFIC and capability != _split(lowest)):
        wanted = f"{lowest} and no other" if lowest in SPECIFIC else f"{lowest} or newer"
        raise StateError(
            f"{kernel.name}: wants a GPU of {wanted}, device {device} is sm_{major}{minor}; "
            "ask for a lower rung, or train on the CPU"
        )
    name = fitting(kernel.architectures, capability)
    if name is not None:
        try:
            return kernel.binary(name).image
        except NoCompilerError:  # what is kept may still be PTX
            pass
    return kernel.ptx().encode() + b"\0"


class Launcher:
    """One kernel on all GPUs of this process."""

    def __init__(self, kernel):
        current_device(kernel.name)
        self.kernel = kernel
        self._pointers = [i for i, (_, kind) in enumerate(kernel.parameters) if kind.endswith("*")]
        slots = ("Q" if kind.endswith("*") else SLOTS[kind] for _, kind in kernel.parameters)
        self._pack = struct.Struct("<" + "".join(slots)).pack_into
        self._functions: dict[int, int] = {}  # of the driver, by device
        self._modules: list[Module] = []  # alive as long as their functions
        self._blocks = threading.local()
        self._loading = threading.Lock()

    def __call__(self, grid, block, arguments, shared=0):
        """See Kernel.__call__; sizes and kinds are looked at again only where the driver or struct refuses."""
        try:
            memory, address = self._blocks.parameters
        except AttributeError:
            memory, address = self._parameters()
        device = runtime.getDevice()
        function = self._functions.get(device) or self._load(device)
        flat = self.kernel.flat(arguments)
        try:
            words = [*flat]
            for i in self._pointers:
                if type(words[i]) is not int:
                    words[i] = words[i].data.ptr
            self._pack(memory, 0, *words)
        except (struct.error, OverflowError, AttributeError, IndexError) as error:
            given = ", ".join(repr(a) if isinstance(a, int | float) else type(a).__name__ for a in arguments)
            raise KindError(f"{self.kernel.name}: got {given}; wants {self.kernel}: {error}") from error
        (x, y, z), (width, height, depth) = _three(grid), _three(block)
        if width * height * depth > self.kernel.threads:
            raise ShapeError(f"{self.kernel.name}: block {block} has more than {self.kernel.threads} threads")
        if (recorder := capturing.get()) is not None:
            recorder.hold(flat)
        driver.launchKernel(function, x, y, z, width, height, depth, shared, get_current_stream().ptr, address, 0)

    def _parameters(self):
        """This thread's block of parameters, and the address of the list of addresses that the driver reads."""
        runtime.setDevice(runtime.getDevice())  # a thread that CuPy has not worked in yet has no context
        count = len(self.kernel.parameters)
        memory = (ctypes.c_uint64 * count)()
        places = (ctypes.c_void_p * count)(*(ctypes.addressof(memory) + 8 * i for i in range(count)))
        self._blocks.places = places  # kept alive
        self._blocks.parameters = memory, ctypes.addressof(places)
        return self._blocks.parameters

    def _load(self, device):
        with self._loading:
            if device not in self._functions:
                module = Module()
                module.load(image(self.kernel, device_architecture(device), device))
                function = module.get_function(self.kernel.name).ptr
                most = runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device)
                most -= driver.funcGetAttribute(STATIC_SHARED, function)
                driver.funcSetAttribute(function, MAX_DYNAMIC_SHARED, most)
                self._modules.append(module)
                self._functions[device] = function
            return self._functions[device]


def _three(sizes):
    return sizes if len(sizes) == 3 else (*sizes, 1, 1)[:3]
