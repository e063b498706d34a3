"""Loads and stores with all their checks; shared and local memory."""

from typing import Any

import numpy as np

from .memory import Space, filled, poison
from .names import LOCAL_START, SHARED_START
from .races import ThreadRaces
from .traffic import wavefronts

__all__ = ["ATOMIC", "READ", "WRITE", "Local", "Memory", "Shared"]

# What an access is to the checks.
READ, WRITE, ATOMIC = "reads", "writes", "updates"


class Memory:
    """Memory that lanes access by address: base of Shared, Local and Region."""

    machine: Any  # the machine.Machine
    space: Space

    def locate(self, addresses, lanes):
        """Offsets in the space."""
        raise NotImplementedError

    def outside(self, addresses, size):
        """Which addresses lie outside; None if none does."""
        raise NotImplementedError

    def where(self, address):
        """An address in words."""
        raise NotImplementedError

    # ---- checks ----------------------------------------------------------------------------------------------------

    def good(self, instruction, lanes, addresses, size, access):
        """Which accesses are aligned and within bounds, None if all; the others are reported."""
        good = None
        bent = addresses & (size - 1) != 0
        outside = self.outside(addresses, size)
        for kind, bad, why in (
            ("misaligned", bent if bent.any() else None, f", which is no multiple of {size}"),
            ("out of bounds", outside, ""),
        ):
            if bad is not None:
                text = lambda i, why=why: f"{access} {size} bytes at {self.where(int(addresses[i]))}{why}"
                self.machine.fault(kind, instruction, lanes, bad, text)
                good = ~bad if good is None else good & ~bad
        return good

    def check(self, instruction, lanes, addresses, offsets, size, access):
        """Races, counts and everything else that is not about the address itself; gives the lanes that may go on."""
        raise NotImplementedError

    def unwritten(self, instruction, lanes, addresses, offsets, size):
        if self.space.written is None:
            return
        done = self.space.was_written(offsets, size)
        if not done.all():
            text = lambda i: f"reads {size} bytes at {self.where(int(addresses[i]))} that nobody wrote"
            self.machine.fault("unwritten read", instruction, lanes, ~done, text)

    # ---- accesses ----------------------------------------------------------------------------------------------------

    def load(self, instruction, lanes, addresses, dtype, count):
        """A list of `count` arrays of a type, elements side by side at the address of each lane."""
        size = dtype.itemsize * count
        good = self.good(instruction, lanes, addresses, size, READ)
        if good is not None:
            values = [poison(dtype, lanes.count) for _ in range(count)]
            some = lanes.only(good)
            if some:
                found = self.load(instruction, some, addresses[good], dtype, count)
                for value, part in zip(values, found, strict=True):
                    value[good] = part
            return values
        offsets = self.locate(addresses, lanes)
        self.check(instruction, lanes, addresses, offsets, size, READ)
        self.unwritten(instruction, lanes, addresses, offsets, size)
        return self.space.read(offsets, dtype, count)

    def store(self, instruction, lanes, addresses, values, dtype):
        size = dtype.itemsize * len(values)
        good = self.good(instruction, lanes, addresses, size, WRITE)
        if good is not None:
            some = lanes.only(good)
            if some:
                self.store(instruction, some, addresses[good], [value[good] for value in values], dtype)
            return
        offsets = self.locate(addresses, lanes)
        keep = self.check(instruction, lanes, addresses, offsets, size, WRITE)
        if keep is None:
            self.space.write(offsets, values, dtype)
        elif keep.any():
            self.space.write(offsets[keep], [value[keep] for value in values], dtype)

    def update(self, instruction, lanes, addresses, dtype, change):
        """Atomic operations, one lane after the other: change(i, old) is the new value. Gives the old values."""
        good = self.good(instruction, lanes, addresses, dtype.itemsize, ATOMIC)
        if good is not None:
            old = poison(dtype, lanes.count)
            some = lanes.only(good)
            if some:
                number = np.flatnonzero(good)
                old[good] = self.update(instruction, some, addresses[good], dtype, lambda i, x: change(number[i], x))
            return old
        offsets = self.locate(addresses, lanes)
        keep = self.check(instruction, lanes, addresses, offsets, dtype.itemsize, ATOMIC)
        self.unwritten(instruction, lanes, addresses, offsets, dtype.itemsize)
        cells = self.space.rows(dtype, 1)
        old = np.empty(lanes.count, dtype)
        for i, place in enumerate(offsets // dtype.itemsize):
            old[i] = cells[place]
            if keep is None or keep[i]:
                cells[place] = change(i, old[i])
        self.space.mark(offsets, dtype.itemsize)
        return old


class Local(Memory):
    """Memory of a thread alone."""

    def __init__(self, machine, end):
        self.machine, self.end = machine, end
        self.stride = -(-end // 16) * 16
        size = self.stride * machine.geometry.lanes
        self.space = Space(filled(size), np.zeros(size, np.uint8))

    def locate(self, addresses, lanes):
        return addresses + lanes.index * self.stride

    def outside(self, addresses, size):
        outside = (addresses < LOCAL_START) | (addresses > self.end - size)
        return outside if outside.any() else None

    def where(self, address):
        return f"byte {address - LOCAL_START} of {self.end - LOCAL_START} bytes of local memory"

    def check(self, instruction, lanes, addresses, offsets, size, access):
        return None


class Shared(Memory):
    """Memory of a block."""

    def __init__(self, machine, end):
        self.machine, self.end = machine, end
        self.stride = -(-(end - SHARED_START) // 16) * 16
        size = self.stride * machine.geometry.blocks
        self.space = Space(filled(size), np.zeros(size, np.uint8))
        self.races = ThreadRaces(machine.geometry, size)

    def locate(self, addresses, lanes):
        return addresses + (self.machine.geometry.block_of[lanes.at] * self.stride - SHARED_START)

    def outside(self, addresses, size):
        outside = (addresses < SHARED_START) | (addresses > self.end - size)
        return outside if outside.any() else None

    def where(self, address):
        return f"byte {address - SHARED_START} of {self.end - SHARED_START} bytes of shared memory"

    def check(self, instruction, lanes, addresses, offsets, size, access):
        self.count(lanes, addresses, size)
        self.machine.copies.check(instruction, lanes, addresses, offsets, size, access)
        if self.machine.proxy.active:
            self.machine.proxy.check(instruction, lanes, addresses, offsets, size, access != READ)
        self.check_races(instruction, lanes, addresses, offsets, size, access)
        return None

    def count(self, lanes, addresses, size):
        passes, least = wavefronts(lanes, addresses, size)
        self.machine.counts.shared_wavefronts += passes
        self.machine.counts.shared_wavefronts_ideal += least

    def check_races(self, instruction, lanes, addresses, offsets, size, access):
        number = instruction.number
        if access == READ:
            after_write, steps = self.races.read(lanes, offsets, size)
            after_read = together = None
        elif access == WRITE:
            after_write, after_read, together, steps = self.races.write(lanes, offsets, size, number)
        else:
            after_write, after_read, steps = self.races.update(lanes, offsets, size, number)
            together = None
        for bad, other in (
            (together, "which another thread writes in the same instruction"),
            (after_write, "which another thread wrote"),
            (after_read, "which another thread read"),
        ):
            if bad is None or not bad.any():
                continue
            if bad is after_write:
                other += f" ({self.machine.location(steps[bad][0])})"
            if bad is not together:
                other += ", with no barrier between"
            text = lambda i, other=other: f"{access} {self.where(int(addresses[i]))}, {other}"
            self.machine.fault("shared race", instruction, lanes, bad.any(axis=1), text)
