"""cupy.cuda.memory and pinned_memory: blocks, pointers and pools."""

import contextlib
import ctypes
import threading
import weakref

import numpy as np

from minigrad_kernels import interpreter

from .graphs import noted, refuse
from .machine import CUDARuntimeError, OutOfMemoryError, bytes_at, current, mark, owner_at

__all__ = [
    "DEFAULT_POOL", "Memory", "MemoryPointer", "MemoryPool", "PinnedMemoryPointer", "PinnedMemoryPool", "UnownedMemory",
    "alloc", "alloc_pinned_memory", "using_allocator",
]  # fmt: skip


class Memory:
    """A block of a device's memory; its bytes come back when the last pointer to it is gone.

    Errors  the driver's where there is none; a pool has its own
    """

    def __init__(self, size):
        try:
            self._fill_in(size)
        except OutOfMemoryError as error:
            raise CUDARuntimeError(2) from error

    def _fill_in(self, size, pool=None):
        self.machine, self.size, self._pool = current(), size, pool
        self.owner = self.machine.allocate(size)
        self.device_id = self.owner.home

    def __del__(self):
        if hasattr(self, "owner"):
            self.machine.release(self.owner, self.size, self._pool)

    @property
    def ptr(self):
        return interpreter.address(self.owner) if self.size else 0

    @property
    def device(self):
        from .streams import Device

        return Device(self.device_id)


class UnownedMemory(Memory):
    """Memory that something else owns, by its address."""

    def __init__(self, ptr, size, owner, device_id=-1):
        self._kept = owner
        found, offset = owner_at(ptr)
        if found is None:
            found, offset = current().pinned_at(ptr), 0
        if found is None:
            raise NotImplementedError(
                f"stand-in: UnownedMemory at {ptr:#x}, where neither a device nor pinned memory is"
            )
        self.owner, self.size = found[offset : offset + size], size
        self.device_id = getattr(found, "home", device_id) if device_id < 0 else device_id

    def __del__(self):
        pass


class MemoryPointer:
    """A place in a block. view: the array that it was asked of, which kernels may reach through its address."""

    __slots__ = ("_offset", "_view", "mem")

    def __init__(self, mem, offset, view=None):
        self.mem, self._offset, self._view = mem, offset, view

    @property
    def ptr(self):
        if self._view is not None:
            return current().address(self._view)
        return interpreter.address(self.mem.owner[self._offset :]) if self.mem.size else 0

    device = property(lambda self: self.mem.device)
    device_id = property(lambda self: self.mem.device_id)

    def __int__(self):
        return self.ptr

    def __add__(self, offset):
        return MemoryPointer(self.mem, self._offset + offset)

    __radd__ = __add__

    def __sub__(self, offset):
        return self + -offset

    def __repr__(self):
        return f"<MemoryPointer {self.ptr:#x} device={self.device_id} mem={self.mem!r}>"

    def _bytes(self, size):
        if self._offset + size > self.mem.size:
            raise ValueError(f"stand-in: {size} bytes at byte {self._offset} of a block of {self.mem.size}")
        return self.mem.owner[self._offset : self._offset + size]

    def _fill(self, values, direction, stream=None):
        there, machine = self._bytes(len(values)), current()
        if direction == "to device" and machine.pinned_at(values.ctypes.data) is None:
            refuse(stream=stream)  # memory that may be paged out
        if not noted("memcpy", lambda: self._move(there, values, direction, stream), [there, values], stream):
            self._move(there, values, direction, stream)

    @staticmethod
    def _move(there, values, direction, stream):
        machine = current()
        machine.access("memcpy", [values], [there], stream)
        there.view(np.ndarray)[...] = values
        mark(there)
        machine.copied[direction] += len(values)

    def copy_from_host(self, mem, size):
        address = mem.value if isinstance(mem, ctypes.c_void_p) else int(mem)
        self._fill(bytes_at(address, size), "to device")
        current().wait("copy_from_host")

    def copy_from_host_async(self, mem, size, stream=None):
        address = mem.value if isinstance(mem, ctypes.c_void_p) else int(mem)
        self._fill(bytes_at(address, size), "to device", stream)

    def copy_from_device(self, src, size):
        self.copy_from_device_async(src, size)

    def copy_from_device_async(self, src, size, stream=None):
        between = src.device_id != self.device_id
        self._fill(src._bytes(size), "between devices" if between else "on device", stream)

    def copy_from(self, mem, size):
        self.copy_from_device(mem, size) if isinstance(mem, MemoryPointer) else self.copy_from_host(mem, size)

    def copy_from_async(self, mem, size, stream=None):
        device = isinstance(mem, MemoryPointer)
        (self.copy_from_device_async if device else self.copy_from_host_async)(mem, size, stream)

    def copy_to_host(self, mem, size):
        self.copy_to_host_async(mem, size)
        current().wait("copy_to_host")

    def copy_to_host_async(self, mem, size, stream=None):
        address = mem.value if isinstance(mem, ctypes.c_void_p) else int(mem)
        here = self._bytes(size)
        if current().pinned_at(address) is None:
            refuse(stream=stream)  # memory that may be paged out

        def move():
            current().access("memcpy", [here], [], stream)
            bytes_at(address, size)[...] = here
            current().copied["to host"] += size

        if not noted("memcpy", move, [here], stream):
            move()

    def memset_async(self, value, size, stream=None):
        there = self._bytes(size)

        def fill():
            current().access("memset", [], [there], stream)
            there.view(np.ndarray)[...] = value
            mark(there)

        if not noted("memset", fill, [there], stream):
            fill()

    def memset(self, value, size):
        self.memset_async(value, size)


class _Block(Memory):
    """Memory from the pool of all, whose free blocks go back to the driver before it says that there is none."""

    def __init__(self, size):
        self._fill_in(size)


class MemoryPool:
    """The pool of the current device, or a private one, whose memory nobody else gets while it is kept.

    free    of a private one: (device, bytes, weak reference to the owner) of what it could hand out again
    """

    def __init__(self, allocator=None, private=True):
        self._allocator, self._private, self.free, self._limit = allocator, private, [], 0
        self._machine = current() if private else None

    def __del__(self):
        if self.free:
            self._machine.forget(self.free)

    def malloc(self, size):
        if not self._private or not size:
            return MemoryPointer(_Block(size), 0)
        fitting = [block for block in self.free if block[0] == current().device and block[1] >= size]
        if fitting:  # a block that was given back, of which nobody else knows
            self.free.remove(block := min(fitting, key=lambda block: block[1]))
            with current().lock:
                current().devices[block[0]].used -= block[1]
        for _ in range(3):
            try:
                found = self._allocator(size) if self._allocator else MemoryPointer(Memory(size), 0)
                found.mem._pool = weakref.ref(self)
                return found
            except CUDARuntimeError as error:
                if error.status != 2:
                    raise
                self.free_all_blocks()
        raise OutOfMemoryError(size, self._device.held)

    def used_bytes(self):
        return self._device.used

    def total_bytes(self):
        return self._device.held

    def free_bytes(self):
        return self._device.held - self._device.used

    def n_free_blocks(self):
        return int(self.free_bytes() > 0)

    def free_all_blocks(self, stream=None):
        current().forget(self.free)
        self.free = []
        self._device.held = self._device.used

    def set_limit(self, size=None, fraction=None):
        if (size is None) == (fraction is None):
            raise ValueError("size and fraction cannot be specified at one time")
        limit = int(self._device.capacity * fraction) if size is None else size
        if self._private:
            self._limit = limit
        else:
            self._device.limit = limit

    def get_limit(self):
        return self._limit if self._private else self._device.limit

    @property
    def _device(self):
        machine = current()
        return machine.devices[machine.device]


DEFAULT_POOL = MemoryPool(private=False)
_allocators = threading.local()


def alloc(size):
    """Memory from the allocator that this thread uses."""
    return getattr(_allocators, "used", DEFAULT_POOL.malloc)(size)


@contextlib.contextmanager
def using_allocator(allocator=None):
    before = getattr(_allocators, "used", DEFAULT_POOL.malloc)
    _allocators.used = allocator or DEFAULT_POOL.malloc
    try:
        yield
    finally:
        _allocators.used = before


class PinnedMemoryPointer:
    """Memory of the host that kernels reach by its address; with the buffer protocol, which ctypes lends it."""

    ptr = property(ctypes.addressof)
    mem = property(lambda self: self)

    def size(self):
        return ctypes.sizeof(self)

    def __int__(self):
        return self.ptr

    def __add__(self, offset):
        return _pinned(memoryview(self), offset)


def _pinned(memory, offset=0):
    kind = type("PinnedMemoryPointer", (PinnedMemoryPointer, ctypes.c_uint8 * (len(memory) - offset)), {})
    return kind.from_buffer(memory, offset)


def alloc_pinned_memory(size):
    memory = np.empty(size, np.uint8)
    current().pin(memory)
    return _pinned(memory.data)


class PinnedMemoryPool:
    def malloc(self, size):
        return alloc_pinned_memory(size)

    def free_all_blocks(self):
        pass

    def n_free_blocks(self):
        return 0
