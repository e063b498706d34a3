"""Who touched which unit of memory last: races between threads of a block, and between blocks.

A unit is a word of 4 bytes; the first access to less than a word makes it a byte. Of each unit there is kept who read
it, the lowest and the highest, and who wrote it.
"""

import numpy as np

NOBODY, MANY = -1, np.iinfo(np.int32).max  # the highest and the lowest block where there is none yet


class _Units:
    """Tables over the units of some memory, made finer when need be: rows of both begin with the lowest and highest."""

    def __init__(self, size, readers, writers):
        self.grain, count = 4, -(-size // 4)
        self.readers, self.writers = (np.array(row, np.int32)[:, None].repeat(count, 1) for row in (readers, writers))

    def units(self, offsets, size):
        """The units that accesses touch: one row for each access."""
        if size < self.grain:
            self.readers, self.writers = self.readers.repeat(4, axis=1), self.writers.repeat(4, axis=1)
            self.grain = 1
        first, count = offsets // self.grain, size // self.grain
        return first[:, None] if count == 1 else first[:, None] + np.arange(count)


def _at(table, unit):
    """The columns of units, row by row: faster than both at once."""
    return [row[unit] for row in table]


def _assign(table, unit, low, high):
    """Lanes go up, and where they share a unit the last assignment stays: the highest, or backwards the lowest."""
    table[1][unit] = high
    # Copies, because NumPy walks views with negative strides in the order of memory.
    table[0][unit[::-1].copy()] = low[::-1].copy()


class ThreadRaces(_Units):
    """Races in shared memory: accesses of two threads, one a write, with no barrier between.

    Time is a clock that barriers advance. Readers since a barrier are kept as the lowest and the highest lane, with the
    time, and so are writers, with the step and whether it was atomic: several only where all are atomic. Threads of one
    warp are ordered by bar.warp.sync too.
    """

    def __init__(self, geometry, size):
        super().__init__(size, (0,) * 3, (0,) * 5)
        self.geometry, self.clock = geometry, 1
        self.since_block = np.ones(geometry.lanes, np.int32)  # the time of each lane's last barrier
        self.since_warp = np.ones(geometry.lanes, np.int32)  # of its last bar.sync or bar.warp.sync
        self.since_fence = np.zeros(geometry.lanes, np.int32)  # of its last fence.proxy.async

    def advance(self, lanes, *since):
        """These lanes pass what `since` keeps the time of."""
        self.clock += 1
        for times in since:
            times[lanes.at] = self.clock

    # ---- accesses ------------------------------------------------------------------------------------------------

    def before_proxy(self, unit, lane):
        """(unordered, unfenced): what threads wrote, before the asynchronous proxy reads it at the wish of a lane."""
        writer, _, time, _, _ = _at(self.writers, unit)
        return time >= self.since_block[lane], (time > 0) & (time >= self.since_fence[writer])

    def read(self, lanes, offsets, size):
        """(after_write, None, None, steps): reads of what another thread wrote, and the steps that wrote it."""
        unit = self.units(offsets, size)
        bad = self._unordered(*_at(self.writers[:3], unit), lanes)
        _assign(self.readers, unit, *self._joined(*_at(self.readers, unit), lanes))
        self.readers[2][unit] = self.clock
        return bad, None, None, (self.writers[3][unit] if bad is not None else None)

    def write(self, lanes, offsets, size, step, atomic):
        """(after_write, after_read, together, steps): writes that race with a write, a read, within the instruction.

        An atomic operation races with what is not atomic.
        """
        unit, lane = self.units(offsets, size), lanes.index[:, None]
        low, high, time, steps, atomics = _at(self.writers, unit)
        after_write = self._unordered(low, high, time, lanes)
        after_read = self._unordered(*_at(self.readers, unit), lanes)
        if not atomic:
            return after_write, after_read, self.wrote(unit, lane, step), steps
        own = (low == lane) & (time >= self.since_warp[lanes.at][:, None])
        if after_write is not None:
            after_write &= atomics == 0
        _assign(self.writers, unit, *self._joined(low, high, np.where(atomics > 0, time, 0), lanes))
        self.writers[2][unit], self.writers[3][unit] = self.clock, step
        self.writers[4][unit] = np.where(own & (atomics == 0), 0, 1)  # its own plain write goes on to count
        return after_write, after_read, None, steps

    def wrote(self, unit, lane, step):
        """Remember a write; gives which lanes lost a unit to another one."""
        self.writers[0][unit] = self.writers[1][unit] = lane
        self.writers[2][unit], self.writers[3][unit], self.writers[4][unit] = self.clock, step, 0
        return self.writers[1][unit] != lane

    # ---- their order ---------------------------------------------------------------------------------------------

    def _unordered(self, low, high, time, lanes):
        """Whether nothing orders accesses at a time by lanes low to high before these; None if all is well."""
        recent = time >= self.since_block[lanes.at][:, None]
        if not recent.any():
            return None
        lane = lanes.index[:, None]
        bad = recent & ((low != lane) | (high != lane))
        return bad & ~self._in_warp_before(low, high, time, lanes) if bad.any() else None

    def _in_warp_before(self, low, high, time, lanes):
        """Whether accesses by lanes low to high were all of the lane's own warp, and before its last barrier."""
        warp = self.geometry.warp
        own = warp[lanes.at][:, None]
        return (warp[low] == own) & (warp[high] == own) & (time < self.since_warp[lanes.at][:, None])

    def _joined(self, low, high, time, lanes):
        """The range of lanes that have had access since the last barrier, these included."""
        lane = lanes.index[:, None]
        recent = time >= self.since_block[lanes.at][:, None]
        if not recent.any():
            lane = np.broadcast_to(lane, low.shape)
            return lane, lane
        recent &= ~self._in_warp_before(low, high, time, lanes)
        return np.where(recent, np.minimum(low, lane), lane), np.where(recent, np.maximum(high, lane), lane)


class BlockRaces(_Units):
    """Races in global memory: accesses of two blocks of a launch, one a write, not both atomic."""

    def __init__(self, size):
        super().__init__(size, (MANY, NOBODY), (MANY, NOBODY, 1))

    def read(self, block, offsets, size):
        """Which reads race with another block's write."""
        unit, block = self.units(offsets, size), block[:, None]
        _join(self.readers, unit, block)
        return _others(self.writers, unit, block)

    def write(self, block, offsets, size, atomic):
        """(after another block's write, after another block's read)"""
        unit, block = self.units(offsets, size), block[:, None]
        _join(self.writers, unit, block)
        after_write = _others(self.writers, unit, block)
        if atomic:
            after_write &= self.writers[2][unit] == 0
        else:
            self.writers[2][unit] = 0
        return after_write, _others(self.readers, unit, block)


def _join(table, unit, block):
    _assign(table, unit, np.minimum(table[0][unit], block), np.maximum(table[1][unit], block))


def _others(table, unit, block):
    """Where another block than this one has had access."""
    low, high = table[0][unit], table[1][unit]
    return (high != NOBODY) & ((low != block) | (high != block))
