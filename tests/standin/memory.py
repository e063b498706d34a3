"""cupy.cuda.memory and pinned_memory: blocks, pointers and pools."""

import contextlib
import ctypes
import threading
import weakref

import numpy as np

from minigrad_kernels import interpreter

from .graphs import noted
from .machine import NO_MEMORY, CUDARuntimeError, OutOfMemoryError, current, mark, owner_at

TAKEN = 1 << 16  # bytes that the driver takes from the host before a call returns, wherever they lie


class Memory:
    """A block of a device's memory; its bytes come back when the last pointer to it is gone."""

    def __init__(self, size):
        self.machine, self.size, self._pool = current(), size, None
        self.owner = self.machine.allocate(size)
        self.device_id = self.owner.home

    def __del__(self):
        if hasattr(self, "owner"):
            self.machine.release(self.owner, self.size, self._pool)

    @property
    def ptr(self):
        return interpreter.address(self.owner) if self.size else 0


class UnownedMemory(Memory):
    """Memory that something else owns, by its address."""

    def __init__(self, ptr, size, owner, device_id=-1):
        self._kept = owner
        found, offset = owner_at(ptr)
        if found is None:
            found, offset = current().pinned_at(ptr), 0
        if found is None:
            raise ValueError(f"stand-in: UnownedMemory at {ptr:#x}, where neither a device nor pinned memory is")
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

    device_id = property(lambda self: self.mem.device_id)

    def __add__(self, offset):
        return MemoryPointer(self.mem, self._offset + offset)

    def _bytes(self, size):
        if self._offset + size > self.mem.size:
            raise ValueError(f"stand-in: {size} bytes at byte {self._offset} of a block of {self.mem.size}")
        return self.mem.owner[self._offset : self._offset + size]

    def _copy(self, size, values, stream):
        """An operation on a stream that writes the bytes of an array."""
        there, machine = self._bytes(size), current()

        def write():
            machine.access("memcpy", [values], [there], stream)
            there.view(np.ndarray)[...] = values
            mark(there)

        if not noted("memcpy", write, [there, values], stream):
            write()

    def copy_from_host_async(self, mem, size, stream=None):
        values = current().pinned_at(int(mem))
        if values is None and size <= TAKEN:
            values = np.frombuffer(ctypes.string_at(int(mem), size), np.uint8)
        if values is None or values.nbytes < size:
            raise ValueError(f"stand-in: {size} bytes at {mem:#x} of the host are not pinned: they may be paged out")
        self._copy(size, values[:size], stream)

    def copy_from_device_async(self, src, size, stream=None):
        self._copy(size, src._bytes(size), stream)


class MemoryPool:
    """The pool of the current device, or a private one, whose memory nobody else gets while it is kept.

    free    of a private one: (device, bytes, weak reference to the owner) of what was given back
    """

    def __init__(self, allocator=None, private=True):
        self._allocator, self.free = allocator or _from_driver, []
        self._machine, self._itself = (current(), weakref.ref(self)) if private else (None, None)

    def __del__(self):
        if self.free:
            self._machine.forget(self.free)

    def malloc(self, size):
        for _ in range(3):
            try:
                found = self._allocator(size)
            except CUDARuntimeError as error:
                if error.status != NO_MEMORY:
                    raise
                self.free_all_blocks()
            else:
                found.mem._pool = self._itself
                return found
        raise OutOfMemoryError(size, self._device.held)

    def used_bytes(self):
        return self._device.used

    def total_bytes(self):
        return self._device.held

    def free_bytes(self):
        return self._device.held - self._device.used

    def free_all_blocks(self, stream=None):
        current().forget(self.free)
        self.free = []
        self._device.held = self._device.used

    def set_limit(self, size=None, fraction=None):
        """None is kept."""

    @property
    def _device(self):
        machine = current()
        return machine.devices[machine.device]


def _from_driver(size):
    return MemoryPointer(Memory(size), 0)


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


def alloc_pinned_memory(size):
    """Memory of the host that kernels reach by its address; with the buffer protocol, which ctypes lends it."""
    memory = np.empty(size, np.uint8)
    current().pinned[memory.ctypes.data] = memory
    kind = type("PinnedMemoryPointer", (ctypes.c_uint8 * size,), {"ptr": property(ctypes.addressof)})
    return kind.from_buffer(memory.data)
