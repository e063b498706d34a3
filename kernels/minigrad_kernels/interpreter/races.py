"""Who touched which unit of memory last: races between threads of a block, and between blocks.

A unit is a word of 4 bytes; the first access to less than a word makes it a byte. Of each unit there is kept who read
it since the last barrier, the lowest and the highest, and when; and so who wrote it, with the step and whether it was
atomic: several only where all are atomic.
"""

import numpy as np


def _at(table, unit):
    """The columns of units, row by row: faster than both at once."""
    return [row[unit] for row in table]


def _assign(table, unit, low, high):
    """Lanes go up, and where they share a unit the last assignment stays: the highest, or backwards the lowest."""
    table[1][unit] = high
    # Copies, because NumPy walks views with negative strides in the order of memory.
    table[0][unit[::-1].copy()] = low[::-1].copy()


class BlockRaces:
    """Races in global memory: accesses of two blocks of a launch, one a write, not both atomic; nothing orders them."""

    who, apart = "block", "in the same launch"
    clock = 1

    def __init__(self, size):
        self.grain, count = 4, -(-size // 4)
        self.readers, self.writers = np.zeros((3, count), np.int32), np.zeros((5, count), np.int32)

    def units(self, offsets, size):
        """The units that accesses touch: one row for each access."""
        if size < self.grain:
            self.readers, self.writers = self.readers.repeat(4, axis=1), self.writers.repeat(4, axis=1)
            self.grain = 1
        first, count = offsets // self.grain, size // self.grain
        return first[:, None] if count == 1 else first[:, None] + np.arange(count)

    def read(self, lanes, offsets, size):
        """(after_write, None, None, steps): reads of what others wrote, and the steps that wrote it."""
        unit = self.units(offsets, size)
        bad = self._unordered(*_at(self.writers[:3], unit), lanes)
        self._join(self.readers, unit, *_at(self.readers, unit), lanes)
        return bad, None, None, (self.writers[3][unit] if bad is not None else None)

    def write(self, lanes, offsets, size, step, atomic):
        """(after_write, after_read, together, steps): writes that race with a write, a read, within the instruction.

        An atomic operation races with what is not atomic.
        """
        unit, own = self.units(offsets, size), self.numbers(lanes)
        low, high, time, steps, atomics = _at(self.writers, unit)
        after_write = self._unordered(low, high, time, lanes)
        after_read = self._unordered(*_at(self.readers, unit), lanes)
        if not atomic:
            return after_write, after_read, self.wrote(unit, own, step), steps
        if after_write is not None:
            after_write &= atomics == 0
        recent = self._recent(low, high, time, lanes)
        plain = False if recent is None else recent & (low == own) & (atomics == 0)  # its own, which goes on to count
        self._join(self.writers, unit, low, high, np.where(atomics > 0, time, 0), lanes)
        self.writers[3][unit], self.writers[4][unit] = step, np.where(plain, 0, 1)
        return after_write, after_read, None, steps

    def wrote(self, unit, own, step):
        """Remember a write; gives who lost a unit to another one."""
        self.writers[0][unit] = self.writers[1][unit] = own
        self.writers[2][unit], self.writers[3][unit], self.writers[4][unit] = self.clock, step, 0
        return self.writers[1][unit] != own

    def _recent(self, low, high, time, lanes):
        """Where accesses at a time by numbers low to high stand in no order with these; None if nowhere."""
        recent = time >= self.since(lanes)
        return recent & ~self.ordered(low, high, time, lanes) if recent.any() else None

    def _unordered(self, low, high, time, lanes):
        """Where accesses by others stand in no order with these; None if nowhere."""
        own, recent = self.numbers(lanes), self._recent(low, high, time, lanes)
        return None if recent is None else recent & ((low != own) | (high != own))

    def _join(self, table, unit, low, high, time, lanes):
        """Enter these accesses, together with those that stand in no order with them."""
        own, recent = np.broadcast_to(self.numbers(lanes), low.shape), self._recent(low, high, time, lanes)
        if recent is None:
            low = high = own
        else:
            low, high = np.where(recent, np.minimum(low, own), own), np.where(recent, np.maximum(high, own), own)
        _assign(table, unit, low, high)
        table[2][unit] = self.clock

    # ---- whose accesses are in order -----------------------------------------------------------------------------

    def numbers(self, lanes):
        """Whose accesses these are: the number of each lane's block in the grid."""
        return lanes.geometry.block_in_grid[lanes.at][:, None]

    def since(self, lanes):
        """The time from which on accesses of others stand in no order with those of each lane."""
        return 1

    def ordered(self, low, high, time, lanes):
        """Which later accesses do so all the same."""
        return np.False_


class ThreadRaces(BlockRaces):
    """Races in shared memory: accesses of two threads, one a write, with no barrier between.

    Time is a clock that barriers advance. Threads of one warp are ordered by bar.warp.sync too.
    """

    who, apart = "thread", "with no barrier between"

    def __init__(self, geometry, size):
        super().__init__(size)
        self.geometry = geometry
        self.since_block = np.ones(geometry.lanes, np.int32)  # the time of each lane's last barrier
        self.since_warp = np.ones(geometry.lanes, np.int32)  # of its last bar.sync or bar.warp.sync
        self.since_fence = np.zeros(geometry.lanes, np.int32)  # of its last fence.proxy.async

    def advance(self, lanes, *since):
        """These lanes pass what `since` keeps the time of."""
        self.clock += 1
        for times in since:
            times[lanes.at] = self.clock

    def before_proxy(self, unit, lane):
        """(unordered, unfenced): what threads wrote, before the asynchronous proxy reads it at the wish of a lane."""
        writer, _, time, _, _ = _at(self.writers, unit)
        return time >= self.since_block[lane], (time > 0) & (time >= self.since_fence[writer])

    def numbers(self, lanes):
        return lanes.index[:, None]

    def since(self, lanes):
        return self.since_block[lanes.at][:, None]

    def ordered(self, low, high, time, lanes):
        """Those by threads of the lane's own warp, before its last barrier."""
        warp = self.geometry.warp
        own = warp[lanes.at][:, None]
        return (warp[low] == own) & (warp[high] == own) & (time < self.since_warp[lanes.at][:, None])
