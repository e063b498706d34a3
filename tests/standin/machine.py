"""The machine that is stood in for: devices and their memory, what is current in a thread, what was asked of it.

Memory is the interpreter's: an owner is an interpreter.Array of bytes with addresses of its own.
"""

import threading
import weakref
from collections import Counter
from types import SimpleNamespace

import numpy as np

from minigrad_kernels import interpreter
from minigrad_kernels.interpreter.array import WINDOW_BITS, allocation, base_address, byte_range, owner_of

from .order import Order

NO_MEMORY = 2
UNIT = 512  # bytes; the pool hands out multiples of it
ERRORS = {  # the codes of the runtime that the stand-in can give
    2: "cudaErrorMemoryAllocation: out of memory",
    35: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    400: "cudaErrorInvalidResourceHandle: invalid resource handle",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture",
    904: "cudaErrorStreamCaptureUnjoined: capturing stream has unjoined work",
    905: "cudaErrorStreamCaptureIsolation: dependency created on uncaptured work in another stream",
    907: "cudaErrorCapturedEvent: operation not permitted on an event last recorded in a capturing stream",
}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(ERRORS[status])


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


class Machine:
    """What one `installed` block runs on, and its counters.

    devices           of each: number, capacity, bytes in use (used), bytes that its pool holds (held)
    launches          of each kernel that was started: name; grid and block as the driver got them, shared, stream,
                      device, function; words, the parameters as the 8-byte words of the block
    synchronisations  Counter of what made the host wait, by name: item, get, Stream.synchronize ...
    library           Counter of calls into libraries of NVIDIA, by the name of the function: matmul, dot ...
    functions         Counter of all calls of ufuncs and functions that work on the device, by name
    ranges            the names of NVTX ranges that were begun, in order, and None where one ended
    images            what Module.load was given, in order
    attributes        what funcSetAttribute set: {(function, attribute): value}
    captures          streams that capture, (device, name): Capture; see graphs.py
    graph_launches    for each time that a graph was launched, in order, the `names` of what it does
    endless           streams, as the driver calls them, whose work from now on never ends
    failed            the code of a failure that the GPU has from now on, 0 for none
    contexts          devices that were the current one of a thread when it did something there, or were chosen
    nccl              see nccl.state
    """

    def __init__(self, devices=1, capability="90", capacity=1 << 34, execute=True, error=None):
        self.capability, self.execute, self.error = capability, execute, error
        self.devices = [SimpleNamespace(number=n, capacity=capacity, used=0, held=0) for n in range(devices)]
        self.launches, self.images, self.ranges = [], [], []
        self.synchronisations, self.library, self.functions = Counter(), Counter(), Counter()
        self.made_current, self.order, self.endless = [], Order(), set()
        self.attributes, self.loaded_functions, self.streams = {}, {}, {}
        self.captures, self.graph_launches, self.failed, self.contexts = {}, [], 0, set()
        self.nccl = SimpleNamespace(calls=[], version=23203, error=0, absent=False, groups={})
        self.lock, self.thread = threading.RLock(), _Thread()
        self.pinned = weakref.WeakValueDictionary()  # address on the host -> the bytes there
        self.pointed = weakref.WeakValueDictionary()  # address -> the array whose pointer was asked for last

    # ---- current in a thread ---------------------------------------------------------------------------------------

    @property
    def device(self):
        """The number of the current device."""
        if self.error:
            raise CUDARuntimeError(self.error)
        return self.thread.device

    @device.setter
    def device(self, number):
        if not 0 <= number < len(self.devices):
            raise CUDARuntimeError(101)
        self.thread.device = number
        self.contexts.add(number)

    def stream(self, stream=None):
        """(device, what the driver calls it) of a stream, the current one without; 0 is the default one."""
        if self.thread.replayed is not None:
            return self.thread.replayed
        stream = self.thread.streams.get(self.device, 0) if stream is None else stream
        name = getattr(stream, "ptr", stream)
        return self.streams.get(name, self.device), name

    def access(self, name, reads=(), writes=(), stream=None):
        """An operation on a stream, the current one without, reads and writes these arrays."""
        if self.captures and self.stream(stream) in self.captures:
            return  # it takes place when the graph is launched
        ranges = [[(owner_of(x), *byte_range(x)) for x in side if x.size] for side in (reads, writes)]
        with self.lock:
            self.order.operate(self.stream(stream), name or self.thread.doing, *ranges)

    def wait(self, what, stream=None, device=None, seen=None):
        """The host waits for a stream (the current one without), for all of a device, or for what an event has seen."""
        if self.captures and seen is None:
            from .graphs import refuse

            refuse(stream=stream, device=device)
        with self.lock:
            self.synchronisations[what] += 1
            streams = [self.stream(stream)] if seen is device is None else []
            streams += [one for one in self.order.streams if one[0] == device]
            self.order.host_waits(*streams, seen=seen)

    # ---- memory --------------------------------------------------------------------------------------------------

    def allocate(self, size):
        """Bytes that nobody wrote on the current device."""
        device, rounded = self.devices[self.device], -(-size // UNIT) * UNIT
        with self.lock:
            if device.used + rounded > device.held:  # else the pool has such a block
                if device.used + rounded > device.capacity:
                    raise CUDARuntimeError(NO_MEMORY)
                device.held = device.used + rounded
            device.used += rounded
        owner = interpreter.empty(size, np.uint8)
        owner.home = device.number
        self.contexts.add(device.number)
        with self.lock:
            self.order.allocated(owner, self.stream(), size)
        return owner

    def release(self, owner, size, pool=None):
        """Give bytes back; pool: a weak reference to the private pool that gets them."""
        owner.given_back, keeper, rounded = pool or _nobody, pool and pool(), -(-size // UNIT) * UNIT
        with self.lock:
            if keeper is None:
                self.devices[owner.home].used -= rounded
            else:
                keeper.free.append((owner.home, rounded, weakref.ref(owner)))
            self.order.freed(owner, size)

    def forget(self, blocks):
        """Give the free blocks of a private pool to the driver, from which others may get them."""
        with self.lock:
            for device, nbytes, owner in blocks:
                self.devices[device].used -= nbytes
                if (found := owner()) is not None:
                    found.given_back = _nobody

    # ---- addresses -------------------------------------------------------------------------------------------------

    def address(self, view):
        """The address of an array's first element, which kernels may use from now on to reach all of the array."""
        if not view.size:
            return 0
        place = interpreter.address(view)
        self.pointed[place] = view
        return place

    def pinned_at(self, address):
        """The pinned bytes from an address on; None if there are none."""
        for start, memory in list(self.pinned.items()):
            if start <= address < start + memory.nbytes:
                return memory[address - start :]
        return None


class _Thread(threading.local):
    """Of each thread: its current device, its current streams by device, the stream on which a graph works, the
    function that it called last."""

    def __init__(self):
        self.device, self.streams, self.replayed, self.doing = 0, {}, None, "a copy"


def _nobody():
    """In place of a weak reference to a private pool: the memory may be anybody's."""


def owner_at(address):
    """(owner, offset) of the memory at an address; (None, 0) if there is none."""
    found = allocation(address >> WINDOW_BITS)
    owner = found and found.owner()
    return (None, 0) if owner is None else (owner, address - base_address(owner, found))


def written(view, key=...):
    """The current stream writes the elements of an array at a subscript."""
    current().access("", writes=[view])
    mark(view, key)


def mark(view, key=...):
    """Remember that the elements of an array at a subscript were written."""
    view.view(interpreter.Array)._mark(key)


_machine = None


def current():
    """The Machine of the `installed` block that is running."""
    if _machine is None:
        raise RuntimeError("the stand-in for CuPy is not installed any more: this code runs outside of its block")
    return _machine


def use(machine):
    """Make a Machine the one in use; gives the one before."""
    global _machine
    before, _machine = _machine, machine
    return before
