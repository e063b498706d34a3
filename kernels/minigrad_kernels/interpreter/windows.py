"""Global and generic addresses: which memory each of them belongs to."""

import numpy as np

from .access import Memory
from .array import START, WINDOW_BITS, allocation
from .convert import GENERIC
from .memory import filled, poison
from .region import Region

__all__ = ["Windows"]


class Nowhere(Memory):
    """Addresses that belong to no memory."""

    def __init__(self, machine):
        self.machine = machine

    def outside(self, addresses, size):
        return np.ones(len(addresses), np.bool_)

    def where(self, address):
        if abs(address) < 1 << 20:
            return f"address {address:#x}, a null pointer or close to it"
        return f"address {address:#x}, which belongs to no array"


class Windows:
    """All memory by address: the upper half says whose it is."""

    def __init__(self, machine):
        self.machine = machine
        self.regions = {}
        self.nowhere = Nowhere(machine)
        self.owners = []  # kept alive during the launch

    def memory(self, number):
        """(memory, what to subtract from addresses) of a window."""
        for space, base in GENERIC.items():
            if number == base >> WINDOW_BITS:
                return getattr(self.machine, space), base
        region = self.regions.get(number)
        if region is None:
            found = allocation(number)
            owner = found and found.owner()
            if owner is None:
                return self.nowhere, 0
            region = self.add(found, owner, [])
        return region, 0

    def add(self, found, owner, ranges):
        """The Region of an allocation. ranges: (first byte, end, whether it may be written, name)"""
        for (low, high), writable in list(found.ranges.items()):
            ranges = [*ranges, (low, high, writable, f"the array at {(found.number << WINDOW_BITS) + START + low:#x}")]
        memory = owner.ravel(order="K").view(np.ndarray).view(np.uint8)
        written = getattr(owner, "written", None)
        if written is not None:
            # An element counts as written by the host where it differs at all: some of its bytes may be those of FILL.
            differs = (memory != filled(len(memory))[: len(memory)]).reshape(-1, owner.itemsize).any(axis=1)
            written[differs.repeat(owner.itemsize)] = 255
        self.owners.append(owner)
        region = self.regions[found.number] = Region(self.machine, found.number, memory, written, ranges)
        return region

    def add_variable(self, number, name, data):
        """A variable of the module."""
        memory = np.frombuffer(bytearray(data), np.uint8)
        self.regions[number] = Region(self.machine, number, memory, None, [(0, len(memory), True, name)])

    def parts(self, lanes, addresses):
        """(memory, which lanes or None for all, lanes, addresses in it)"""
        numbers = addresses >> WINDOW_BITS
        if (numbers == numbers[0]).all():
            memory, base = self.memory(int(numbers[0]))
            yield memory, slice(None), lanes, addresses - base if base else addresses
            return
        for number in np.unique(numbers):
            here = numbers == number
            memory, base = self.memory(int(number))
            yield memory, here, lanes.only(here), addresses[here] - base

    def load(self, instruction, lanes, addresses, dtype, count):
        values = None
        for memory, here, some, places in self.parts(lanes, addresses):
            found = memory.load(instruction, some, places, dtype, count)
            if some is lanes:
                return found
            values = values or [poison(dtype, lanes.count) for _ in range(count)]
            for value, part in zip(values, found, strict=True):
                value[here] = part
        return values

    def store(self, instruction, lanes, addresses, values, dtype):
        for memory, here, some, places in self.parts(lanes, addresses):
            memory.store(instruction, some, places, [value[here] for value in values], dtype)

    def update(self, instruction, lanes, addresses, dtype, change):
        old = poison(dtype, lanes.count)
        for memory, here, some, places in self.parts(lanes, addresses):
            number = np.arange(lanes.count)[here]
            old[here] = memory.update(
                instruction, some, places, dtype, lambda i, x, number=number: change(number[i], x)
            )
        return old
