"""Memory as lanes see it: global, shared and local; every access is checked and counted.

Each memory is a row of bytes in a NumPy array, with a mark for each byte that was ever written. Accesses that are
misaligned or out of bounds are reported and left out: reads give NaN patterns there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .array import FILL, START, WINDOW_BITS, allocation
from .lanes import WARP
from .operations import GENERIC
from .program import SHARED_START
from .races import BlockRaces, ThreadRaces
from .report import SECTOR

READ, WRITE, ATOMIC = "reads", "writes", "updates"  # what an access is to the checks
BANKS = 32
NOBODY = -1  # stands for the address of a lane that takes no part


def filled(size):
    """Bytes that nobody wrote: NaN in floating types."""
    return np.full(-(-size // 8) * 4, FILL).view(np.uint8)


def words_of(offsets, size):
    """The places of 32 bits that accesses touch: one row for each."""
    return offsets[:, None] // 4 + np.arange(max(size // 4, 1))


# ---- costs -----------------------------------------------------------------------------------------------------------


def _changes(table):
    """In each sorted row: where a value stands for the first time, those of absent lanes left out."""
    new = np.empty(table.shape, np.bool_)
    new[:, 0] = table[:, 0] >= 0
    np.not_equal(table[:, 1:], table[:, :-1], out=new[:, 1:])
    return new


def sectors(lanes, addresses, size):
    """(touched, least): sectors in the requests of all warps for `size` bytes at aligned addresses."""
    table = np.sort(lanes.to_warps(addresses, NOBODY), axis=1)
    bytes_ = np.count_nonzero(_changes(table), axis=1) * size
    touched = int(np.count_nonzero(_changes(table >> 5)))
    return touched, int((-(-bytes_ // SECTOR)).sum())


def wavefronts(lanes, addresses, size):
    """(passes, least): 32 lanes share a pass at up to 4 bytes each, 16 at 8 bytes, 8 at 16 bytes.

    A bank serves one word of 4 bytes in a pass; lanes that want the same word share it.
    """
    words = max(size // 4, 1)
    table = lanes.to_warps(addresses, NOBODY).reshape(-1, WARP // words)
    present = int(np.count_nonzero((table >= 0).any(axis=1)))
    table = table >> 2
    if words > 1:
        table = np.where(table[:, :, None] >= 0, table[:, :, None] + np.arange(words), NOBODY).reshape(-1, WARP)
    table = np.sort(table, axis=1)
    bank = (np.arange(len(table)) * BANKS)[:, None] + (table & BANKS - 1)
    loads = np.bincount(bank[_changes(table)], minlength=len(table) * BANKS).reshape(-1, BANKS)
    return int(loads.max(axis=1).sum()), present


# ---- any memory ------------------------------------------------------------------------------------------------------


def _in_parts(parts, access, instruction, lanes, addresses, dtype, count, values, change):
    """Access by one part of the lanes after the other, as masks; NaN patterns for lanes that are in none."""
    result = [np.frombuffer(filled(16).tobytes(), dtype)[0].repeat(len(addresses)) for _ in range(count)]
    for here in parts:
        some = values and [value[here] for value in values]
        found = access(instruction, lanes.only(here), addresses[here], dtype, count, some, change)
        for value, part in zip(result, found or (), strict=False):
            value[here] = part
    return result


class Memory:
    """Bytes that lanes read and write by address.

    bytes    the memory itself
    written  None, or 255 for each byte that was written
    space    its name; races: None, or who touched it
    locate   (addresses, lanes): offsets in the bytes; where: an address in words
    outside  (addresses, size): which lie outside
    """

    machine: Any  # the machine.Machine
    space: str
    races: Any = None
    locate: Callable
    outside: Callable
    where: Callable

    def __init__(self, machine, memory, written=None):
        self.machine, self.bytes, self.written = machine, memory, written
        self.views = {}

    def check(self, instruction, lanes, addresses, offsets, size, access):
        """Races, counts and everything else that is not about the address itself; gives the lanes that may go on."""

    def tell(self, kind, instruction, lanes, addresses, bad, before, after=""):
        """Report bad accesses, if there are any; before, after: words around their place."""
        text = lambda i: f"{before} {self.where(int(addresses[i]))}{after}"
        self.machine.fault(kind, instruction, lanes, bad, text)

    def good(self, instruction, lanes, addresses, size, access):
        """Which accesses are aligned and within bounds, None if all; the others are reported."""
        bent, outside = addresses & (size - 1) != 0, self.outside(addresses, size)
        bad = bent | outside
        if not bad.any():
            return None
        what = f"{access} {size} bytes at"
        self.tell("misaligned", instruction, lanes, addresses, bent, what, f", which is no multiple of {size}")
        self.tell("out of bounds", instruction, lanes, addresses, outside, what)
        return ~bad

    def access(self, instruction, lanes, addresses, dtype, count, values=None, change=None):
        """Read or write `count` elements of a type side by side at the address of each lane.

        values: lists of arrays to write. change(old, *values): of atomic operations, one lane after the other.
        Gives a list of arrays: what was read, of atomic operations the old value.
        """
        access, size = READ if values is None else ATOMIC if change else WRITE, dtype.itemsize * count
        good = self.good(instruction, lanes, addresses, size, access)
        if good is not None:
            parts = [good] if good.any() else []
            return _in_parts(parts, self.access, instruction, lanes, addresses, dtype, count, values, change)
        offsets = self.locate(addresses, lanes)
        keep = self.check(instruction, lanes, addresses, offsets, size, access)
        if access != WRITE:
            self.check_written(instruction, lanes, addresses, offsets, size)
        if access == READ:
            found = self.rows(dtype, count)[offsets // size]
            return [found] if count == 1 else [found[:, i] for i in range(count)]
        if access == ATOMIC:
            return [self.update(offsets, dtype, values, change, keep)]
        if keep is not None:
            offsets, values = offsets[keep], [value[keep] for value in values]
        if not len(offsets):
            return None
        self.rows(dtype, count)[offsets // size] = values[0] if count == 1 else np.stack(values, axis=1)
        self.mark(offsets, size)
        return None

    def update(self, offsets, dtype, values, change, keep):
        cells, old = self.rows(dtype, 1), np.empty(len(offsets), dtype)
        for i, place in enumerate(offsets // dtype.itemsize):
            old[i] = cells[place]
            if keep is None or keep[i]:
                cells[place] = change(old[i], *(value[i] for value in values))
        self.mark(offsets, dtype.itemsize)
        return old

    # ---- bytes and marks ---------------------------------------------------------------------------------------------

    def rows(self, dtype, count, marks=False):
        """The memory as a table of `count` elements of a type, as many rows as there are."""
        key = dtype, count, marks
        if key not in self.views:
            memory, width = self.written if marks else self.bytes, dtype.itemsize * count
            view = memory[: len(memory) // width * width].view(dtype)
            self.views[key] = view if count == 1 else view.reshape(-1, count)
        return self.views[key]

    def marks(self, size):
        """Marks of as many bytes side by side, and what they are where all were written."""
        width = np.dtype(f"u{min(size, 8)}")
        return self.rows(width, size // width.itemsize, marks=True), np.iinfo(width).max

    def was_written(self, offsets, size):
        """Whether all bytes of each access were written."""
        marks, whole = self.marks(size)
        found = marks[offsets // size] == whole
        return found if found.ndim == 1 else found.all(axis=1)

    def check_races(self, instruction, lanes, addresses, offsets, size, access):
        races, who = self.races, self.races.who
        if access == READ:
            found = races.read(lanes, offsets, size)
        else:
            found = races.write(lanes, offsets, size, instruction.number, access == ATOMIC)
        after_write, after_read, together, steps = found
        for bad, other in (
            (together, f"which another {who} writes in the same instruction"),
            (after_write, f"which another {who} wrote ({{}}), {races.apart}"),
            (after_read, f"which another {who} read, {races.apart}"),
        ):
            if bad is not None and bad.any():
                other = f", {other.format(self.machine.location(steps[bad][0]))}"
                self.tell(f"{self.space} race", instruction, lanes, addresses, bad.any(axis=1), access, other)

    def check_written(self, instruction, lanes, addresses, offsets, size):
        if self.written is not None:
            missing, what = ~self.was_written(offsets, size), f"reads {size} bytes at"
            self.tell("unwritten read", instruction, lanes, addresses, missing, what, " that nobody wrote")

    def mark(self, offsets, size):
        """Remember that bytes were written."""
        if self.written is not None:
            marks, whole = self.marks(size)
            marks[offsets // size] = whole


# ---- of a thread, of a block -----------------------------------------------------------------------------------------


class Owned(Memory):
    """Memory of which each thread, or each block, has as much at the same addresses."""

    def __init__(self, machine, name, start, end, owner):
        """owner: for each lane, the number of the thread or block whose memory it sees."""
        self.space, self.start, self.end = name, start, end
        self.stride = -(-(end - start) // 16) * 16
        self.moved = owner * self.stride - start
        size = self.stride * (int(owner[-1]) + 1)
        super().__init__(machine, filled(size), np.zeros(size, np.uint8))

    def locate(self, addresses, lanes):
        return addresses + self.moved[lanes.at]

    def outside(self, addresses, size):
        return (addresses < self.start) | (addresses > self.end - size)

    def where(self, address):
        return f"byte {address - self.start} of {self.end - self.start} bytes of {self.space} memory"


class Shared(Owned):
    """Memory of a block."""

    def __init__(self, machine, end):
        super().__init__(machine, "shared", SHARED_START, end, machine.geometry.block_of)
        self.races = ThreadRaces(machine.geometry, len(self.bytes))

    def check(self, instruction, lanes, addresses, offsets, size, access):
        passes, least = wavefronts(lanes, addresses, size)
        self.machine.counts.shared_wavefronts += passes
        self.machine.counts.shared_wavefronts_ideal += least
        self.machine.copies.check(instruction, lanes, addresses, offsets, size, access)
        if self.machine.asynchronous:
            self.machine.proxy.check(instruction, lanes, addresses, offsets, size, access)
        self.check_races(instruction, lanes, addresses, offsets, size, access)


# ---- global ----------------------------------------------------------------------------------------------------------


class Region(Memory):
    """One allocation in global memory; or without ranges the addresses that belong to none.

    ranges  (first byte, end, whether it may be written, name): what pointers into it may reach
    """

    def __init__(self, machine, number, memory, written, ranges):
        super().__init__(machine, memory, written)
        self.space, self.base, self.ranges = "global", (number << WINDOW_BITS) + START, ranges
        self.reach = _merged((low, high) for low, high, _, _ in ranges)
        self.open = _merged((low, high) for low, high, may, _ in ranges if may and memory.flags.writeable)
        self.races = BlockRaces(len(memory)) if machine.several_blocks else None

    def locate(self, addresses, lanes):
        return addresses - self.base

    def outside(self, addresses, size):
        return _outside(self.reach, addresses - self.base, size)

    def where(self, address):
        if not self.ranges:
            near = abs(address) < 1 << 20
            return f"address {address:#x}, {'a null pointer or close to it' if near else 'which belongs to no array'}"
        offset = address - self.base
        low, high, _, name = min(self.ranges, key=lambda r: max(r[0] - offset, offset - r[1] + 1, 0))  # the nearest
        return f"byte {offset - low} of {name}, which has {high - low}"

    def check(self, instruction, lanes, addresses, offsets, size, access):
        self.count(lanes, addresses, offsets, size, access)
        if self.races is not None:
            self.check_races(instruction, lanes, addresses, offsets, size, access)
        if access == READ:
            return None
        sealed = _outside(self.open, offsets, size)
        self.tell("read-only", instruction, lanes, addresses, sealed, access, " and is read-only")
        return ~sealed if sealed.any() else None

    def count(self, lanes, addresses, offsets, size, access):
        touched, least = sectors(lanes, addresses, size)
        by_array = []  # several arrays may be parts of one allocation
        left = np.ones(len(offsets), np.bool_)
        for low, high, _, name in self.ranges:
            here = left & (offsets >= low) & (offsets < high)
            if here.any():
                moved = touched if here.all() else sectors(lanes.only(here), addresses[here], size)[0]
                by_array.append((name, int(np.count_nonzero(here)) * size, moved))
                left &= ~here
                if not left.any():
                    break
        self.machine.counts.transfer(access == READ, touched, least, by_array)


def _merged(ranges):
    """Ranges that touch become one."""
    merged = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def _outside(ranges, offsets, size):
    """Which accesses do not lie wholly in one range."""
    outside = np.ones(len(offsets), np.bool_)
    for low, high in ranges:
        outside &= (offsets < low) | (offsets > high - size)
    return outside


class Windows:
    """All memory by address, global or generic: the upper half says whose it is."""

    def __init__(self, machine, named):
        """named: for each allocation the (first byte, end, whether it may be written, name) of arrays in it."""
        self.machine, self.named = machine, named
        self.regions = {}

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
                return Region(self.machine, number, filled(0), None, []), 0
            region = self.add(found, owner, self.named.get(number, []))
        return region, 0

    def add(self, found, owner, ranges):
        """The Region of an allocation, also with what `address` gave to reach it."""
        for (low, high), writable in list(found.ranges.items()):
            ranges = [*ranges, (low, high, writable, f"the array at {(found.number << WINDOW_BITS) + START + low:#x}")]
        memory = owner.ravel(order="K").view(np.ndarray).view(np.uint8)
        written = getattr(owner, "written", None)
        if written is not None:
            # An element counts as written by the host where it differs at all: some of its bytes may be those of FILL.
            differs = (memory != filled(len(memory))[: len(memory)]).reshape(-1, owner.itemsize).any(axis=1)
            written[differs.repeat(owner.itemsize)] = 255
        region = self.regions[found.number] = Region(self.machine, found.number, memory, written, ranges)
        return region

    def add_variable(self, number, name, data):
        """A variable of the module."""
        memory = np.frombuffer(bytearray(data), np.uint8)
        self.regions[number] = Region(self.machine, number, memory, None, [(0, len(memory), True, name)])

    def access(self, instruction, lanes, addresses, dtype, count, values=None, change=None):
        """Like Memory.access, each lane in the memory that its address belongs to."""
        numbers = addresses >> WINDOW_BITS
        if (numbers != numbers[0]).any():
            parts = [numbers == number for number in np.unique(numbers)]
            return _in_parts(parts, self.access, instruction, lanes, addresses, dtype, count, values, change)
        memory, base = self.memory(int(numbers[0]))
        addresses = addresses - base if base else addresses
        return memory.access(instruction, lanes, addresses, dtype, count, values, change)
