"""Loading and launching kernels, and copies by address: cupy.cuda.driver, runtime and function."""

import ctypes
import functools
import itertools
import struct
from types import SimpleNamespace

import numpy as np

from minigrad_kernels.interpreter import recording
from minigrad_kernels.interpreter.array import WINDOW_BITS, allocation
from minigrad_kernels.toolchain.cuda import KERNELS

from .graphs import noted
from .machine import CUDARuntimeError, current, owner_at
from .names import known
from .streams import event_query

STATIC_LIMIT = 48 << 10  # bytes of dynamic shared memory that a launch may ask for without funcSetAttribute
OPT_IN, MAX_SHARED = 232448, known()["cupy.cuda.runtime"]["cudaDevAttrMaxSharedMemoryPerBlockOptin"]["value"]
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
        told = {"name": name, "grid": grid, "block": block, "shared": shared, "stream": stream, "words": words}
        machine.launches.append(SimpleNamespace(**told, device=device, function=f))
    if machine.execute:
        arguments = [_argument(machine, *pair) for pair in zip(kernel.parameters, words, strict=True)]
        _check_devices(machine, kernel, words, arguments)
        run = functools.partial(_run, machine, kernel, grid, block, arguments, shared, stream)
        pointers = [word for word, (_, kind) in zip(words, kernel.parameters, strict=True) if kind[-1] == "*"]
        if not noted(name, run, [owner_at(word)[0] for word in pointers], stream):
            run()


def _argument(machine, parameter, word):
    """What a word of the block of parameters stands for: a number, an array, or an address where none is known."""
    slot = SLOTS.get(parameter[1])
    if slot is not None:
        return struct.unpack_from(slot, struct.pack("<Q", word))[0]
    found = machine.pointed.get(word)
    found = machine.pinned_at(word) if found is None else found
    # A kernel of 16 bits finds sums of float32 by their address.
    return word if found is None or (parameter[1][1:] == "16*" and found.itemsize > 2) else found


def _check_devices(machine, kernel, words, arguments):
    """What pointers point to lies on the current device; so do the arrays whose addresses stand in tables."""
    for (name, kind), word, argument in zip(kernel.parameters, words, arguments, strict=True):
        addresses = [word] if kind[-1] == "*" else []
        if kind in ("u64*", "i64*") and isinstance(argument, np.ndarray) and argument.itemsize == 8:  # a table
            addresses += [int(one) for one in np.unique(argument) if one > 1 << 48]
        for address in addresses:
            device = getattr(owner_at(address)[0], "home", machine.device)
            if device != machine.device:
                raise ValueError(
                    f"{kernel.name}: {name} lies on device {device}, the current device is {machine.device} "
                    "(stand-in: a missing switch of devices)"
                )


def _run(machine, kernel, grid, block, arguments, shared, stream):
    """Interpret a kernel, and tell what it read and wrote: arguments, and arrays whose addresses it found in tables."""
    with recording() as reports:
        kernel._interpret(grid, block, arguments, shared)
    arrays = {name: x for (name, _), x in zip(kernel.parameters, arguments, strict=True) if isinstance(x, np.ndarray)}
    counts = reports[0][1].counts
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


def memory_info():
    device = current().devices[current().device]
    return device.capacity - device.held, device.capacity


def device_count():
    if current().error:
        raise CUDARuntimeError(current().error)
    return len(current().devices)


RUNTIME = {
    "CUDARuntimeError": CUDARuntimeError,
    "deviceCanAccessPeer": lambda device, peerDevice: int(device != peerDevice),
    "deviceGetAttribute": lambda attrib, device: {MAX_SHARED: OPT_IN}[attrib],
    "driverGetVersion": lambda: 13000,
    "eventQuery": event_query,
    "getDevice": lambda: current().device,
    "getDeviceCount": device_count,
    "getDeviceProperties": properties,
    "memGetInfo": memory_info,
    "runtimeGetVersion": lambda: 13000,
    "setDevice": set_device,
}
DRIVER = {
    "CUDADriverError": CUDADriverError,
    "funcGetAttribute": lambda attribute, f: 1024,
    "funcSetAttribute": lambda f, attribute, value: current().attributes.update({(f, attribute): value}),
    "launchKernel": launch,
}
