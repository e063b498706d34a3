"""Arrays in global memory as lanes see them."""

import numpy as np

from .access import READ, WRITE, Memory
from .array import START, WINDOW_BITS
from .memory import Space
from .races import BlockRaces
from .traffic import sectors

__all__ = ["Region"]


class Region(Memory):
    """One allocation in global memory.

    ranges  (first byte, end, whether it may be written, name): what pointers into it may reach
    """

    def __init__(self, machine, number, memory, written, ranges):
        self.machine, self.base, self.ranges = machine, (number << WINDOW_BITS) + START, ranges
        self.space = Space(memory, written)
        self.reach = _merged((low, high) for low, high, _, _ in ranges)
        writable = memory.flags.writeable
        self.open = _merged((low, high) for low, high, may, _ in ranges if may and writable)
        self.races = BlockRaces(len(memory)) if machine.several_blocks else None
        self.touched = set()

    def locate(self, addresses, lanes):
        return addresses - self.base

    def outside(self, addresses, size):
        outside = _outside(self.reach, addresses - self.base, size)
        return outside if outside.any() else None

    def nearest(self, offset):
        """The range that an offset lies in, or the nearest."""
        return min(self.ranges, key=lambda r: max(r[0] - offset, offset - r[1] + 1, 0))

    def where(self, address):
        offset = address - self.base
        low, high, _, name = self.nearest(offset)
        return f"byte {offset - low} of {name}, which has {high - low}"

    def check(self, instruction, lanes, addresses, offsets, size, access):
        self.count(lanes, addresses, offsets, size, access)
        if self.races is not None:
            self.check_races(instruction, lanes, addresses, offsets, size, access)
        if access == READ:
            return None
        sealed = _outside(self.open, offsets, size)
        for low, high, writable, name in self.ranges:
            if writable and name not in self.touched and ((offsets >= low) & (offsets < high)).any():
                self.touched.add(name)
        if not sealed.any():
            return None
        text = lambda i: f"{access} {self.where(int(addresses[i]))} and is read-only"
        self.machine.fault("read-only", instruction, lanes, sealed, text)
        return ~sealed

    def count(self, lanes, addresses, offsets, size, access):
        counts = self.machine.counts
        touched, least = sectors(lanes, addresses, size)
        if access == READ:
            counts.global_load_sectors += touched
            counts.global_load_sectors_ideal += least
            asked, moved = counts.bytes_loaded, counts.sector_bytes_loaded
        else:
            counts.global_store_sectors += touched
            counts.global_store_sectors_ideal += least
            asked, moved = counts.bytes_stored, counts.sector_bytes_stored
        for name, here in self.by_array(offsets):
            if not here.all():
                touched, _ = sectors(lanes.only(here), addresses[here], size)
            asked[name] += int(np.count_nonzero(here)) * size
            moved[name] += touched * 32

    def by_array(self, offsets):
        """(name, which accesses) for each array that some lie in: several may be parts of one allocation."""
        left = np.ones(len(offsets), np.bool_)
        for low, high, _, name in self.ranges:
            here = left & (offsets >= low) & (offsets < high)
            if here.any():
                yield name, here
                left &= ~here
                if not left.any():
                    return

    def check_races(self, instruction, lanes, addresses, offsets, size, access):
        block = self.machine.geometry.block_of[lanes.at] + self.machine.geometry.first_block
        if access == READ:
            found = ((self.races.read(block, offsets, size), "wrote it"),)
        else:
            call = self.races.write if access == WRITE else self.races.update
            after_write, after_read = call(block, offsets, size)
            found = ((after_write, "writes it too"), (after_read, "read it"))
        for bad, did in found:
            if bad.any():
                text = lambda i, did=did: f"{access} {self.where(int(addresses[i]))}: another block of the launch {did}"
                self.machine.fault("global race", instruction, lanes, bad.any(axis=1), text)


def _merged(ranges):
    """Ranges that touch become one: arrays of their beginnings and ends."""
    merged = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return np.array(merged, np.int64).reshape(-1, 2)


def _outside(ranges, offsets, size):
    """Which accesses do not lie wholly in one range."""
    if len(ranges) == 1:
        low, high = ranges[0]
        return (offsets < low) | (offsets > high - size)
    at = np.searchsorted(ranges[:, 0], offsets, "right") - 1
    if not len(ranges):
        return np.ones(len(offsets), np.bool_)
    return (at < 0) | (offsets + size > ranges[at, 1])
