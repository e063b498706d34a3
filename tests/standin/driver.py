"""Loading and launching kernels, and copies by address: cupy.cuda.driver, runtime and function."""

import ctypes
import functools
import itertools
import struct

import numpy as np

from minigrad_kernels.interpreter import address as interpreted_address
from minigrad_kernels.interpreter import recording
from minigrad_kernels.interpreter.array import WINDOW_BITS, allocation, owner_of
from minigrad_kernels.toolchain.cuda import KERNELS

from .graphs import noted
from .machine import CUDARuntimeError, Launch, current, owner_at
from .names import known
from .streams import Device, event_query

__all__ = ["DRIVER", "RUNTIME", "CUDADriverError", "Function", "Module"]

STATIC_LIMIT = 48 << 10  # bytes of dynamic shared memory that a launch may ask for without funcSetAttribute
OPT_IN = 232448
MAX_DYNAMIC_SHARED = 8
_functions = itertools.count(101)
TABLED = "the array at "  # how the interpreter names arrays that are no arguments, before their address
SLOTS = {"f16": "<e", "f32": "<f", "f64": "<d", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i"}
SLOTS |= {"u32": "<I", "i64": "<q", "u64": "<Q"}


class CUDADriverError(RuntimeError):
    pass


class Function:
    """A kernel on one device: ptr is what the driver calls it."""

    def __init__(self, module, name):
        self.module, self.name, self.ptr = module, name, next(_functions)
        current().loaded_functions[self.ptr] = name, module.device


class Module:
    """Machine code or PTX, which must hold the kernel that is asked for."""

    def load(self, cubin):
        machine = current()
        machine.images.append(cubin)
        self.image, self.device = cubin, machine.device

    def get_function(self, name):
        return Function(self, name)


# ---- launches --------------------------------------------------------------------------------------------------------


def launch(f, x, y, z, width, height, depth, shared, stream, parameters, extra):
    """cuLaunchKernel: notes what was asked for, and interprets the kernel at once."""
    machine = current()
    name, device = machine.loaded_functions[f]
    if device != machine.device:
        raise CUDADriverError(f"CUDA_ERROR_INVALID_HANDLE: {name} was loaded for device {device}")
    if machine.streams.get(stream, device) != device:
        raise CUDADriverError(f"CUDA_ERROR_INVALID_HANDLE: the stream is one of device {machine.streams[stream]}")
    if shared > max(STATIC_LIMIT, machine.attributes.get((f, MAX_DYNAMIC_SHARED), 0)):
        raise CUDADriverError(f"CUDA_ERROR_INVALID_VALUE: {name} asks for {shared} bytes of shared memory")
    kernel = KERNELS[name]
    places = (ctypes.c_void_p * len(kernel.parameters)).from_address(parameters)
    words = tuple(ctypes.c_uint64.from_address(place).value for place in places)
    grid, block = (x, y, z), (width, height, depth)
    with machine.lock:
        machine.launches.append(Launch(name, grid, block, shared, stream, device, words, f))
    if machine.execute:
        arguments = _arguments(machine, kernel, words)
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        # A graph keeps these too: another thread's launch may have taken their arrays for known by address.
        pointed = [word for word, (_, kind) in zip(words, kernel.parameters, strict=True) if kind.endswith("*")]
        arrays += [owner_at(word)[0] for word in pointed]
        run = functools.partial(_run, machine, kernel, grid, block, arguments, shared, stream)
        if not noted(name, run, arrays, stream):
            run()


def _run(machine, kernel, grid, block, arguments, shared, stream):
    with recording() as reports:
        kernel._interpret(grid, block, arguments, shared)
    _accesses(machine, kernel, arguments, reports[0][1], stream)


def _accesses(machine, kernel, arguments, report, stream):
    """Tell what the kernel read and wrote: arguments, and arrays of which it found the address in a table."""
    arrays = {name: x for (name, _), x in zip(kernel.parameters, arguments, strict=True) if isinstance(x, np.ndarray)}
    counts = report.counts
    for name in counts.bytes_loaded.keys() | counts.bytes_stored.keys():
        if name.startswith(TABLED):
            arrays[name] = _registered(int(name.removeprefix(TABLED), 16))
    found = [[arrays[name] for name in side if name in arrays] for side in (counts.bytes_loaded, counts.bytes_stored)]
    machine.access(kernel.name, *found, stream)


def _registered(address):
    """The bytes of the array that was registered with the interpreter at an address."""
    owner, first = owner_at(address)
    ends = [end for start, end in allocation(address >> WINDOW_BITS).ranges if start == first]
    return owner.view(np.ndarray)[first : max(ends)]


def _arguments(machine, kernel, words):
    """The arguments of a kernel from its block of parameters: arrays where their address is known."""
    pointers = [kind.endswith("*") for _, kind in kernel.parameters]
    addresses = {word for word, pointer in zip(words, pointers, strict=True) if pointer}
    known, found = machine.arguments(addresses), []
    for word, (name, kind) in zip(words, kernel.parameters, strict=True):
        if not kind.endswith("*"):
            slot = SLOTS[kind]
            found.append(struct.unpack_from(slot, struct.pack("<Q", word))[0])
            continue
        argument = known.get(word)
        if argument is None:
            argument = machine.pinned_at(word)
        _check_device(machine, kernel.name, name, word if argument is None else argument)
        if argument is not None and kind[1:] == "16*" and argument.itemsize > 2:
            interpreted_address(argument)  # registers it: float32 sums that a kernel of 16 bits finds by their address
            argument = None
        found.append(word if argument is None else argument)
        if argument is not None and kind in ("u64*", "i64*") and argument.dtype.itemsize == 8:
            _check_table(machine, kernel.name, name, argument)
    return found


def _check_device(machine, kernel, name, argument):
    owner = owner_at(argument)[0] if isinstance(argument, int) else owner_of(argument)
    device = getattr(owner, "home", machine.device)
    if device != machine.device:
        raise ValueError(
            f"{kernel}: {name} lies on device {device}, the current device is {machine.device} (stand-in: a missing "
            "switch of devices)"
        )


def _check_table(machine, kernel, name, table):
    """Addresses in a table of pointers are of this device, too."""
    for word in np.unique(table):
        if word > 1 << 48:
            _check_device(machine, kernel, name, int(word))


# ---- the runtime -----------------------------------------------------------------------------------------------------


def set_device(device):
    current().made_current.append(device)
    current().device = device


def properties(device):
    if not 0 <= device < len(current().devices):
        raise CUDARuntimeError(101)
    return {
        "name": b"stand-in", "multiProcessorCount": 132, "totalGlobalMem": current().devices[device].capacity,
        "major": int(current().capability[:-1]), "minor": int(current().capability[-1]),
    }  # fmt: skip


def attribute(attrib, device):
    told = known()["cupy.cuda.runtime"]
    values = {"cudaDevAttrMaxSharedMemoryPerBlockOptin": OPT_IN, "cudaDevAttrMultiProcessorCount": 132}
    return {told[name]["value"]: value for name, value in values.items()}[attrib]


def device_count():
    if current().error:
        raise CUDARuntimeError(current().error)
    return len(current().devices)


RUNTIME = {
    "CUDARuntimeError": CUDARuntimeError,
    "deviceCanAccessPeer": lambda device, peerDevice: int(device != peerDevice),
    "deviceGetAttribute": attribute,
    "driverGetVersion": lambda: 13000,
    "eventQuery": event_query,
    "getDevice": lambda: current().device,
    "getDeviceCount": device_count,
    "getDeviceProperties": properties,
    "memGetInfo": lambda: Device().mem_info,
    "runtimeGetVersion": lambda: 13000,
    "setDevice": set_device,
}
DRIVER = {
    "CUDADriverError": CUDADriverError,
    "funcGetAttribute": lambda attribute, f: 1024,
    "funcSetAttribute": lambda f, attribute, value: current().attributes.update({(f, attribute): value}),
    "launchKernel": launch,
}
