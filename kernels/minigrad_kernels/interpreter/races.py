"""Who touched which unit of memory last: races between threads of a block, and between blocks.

A unit is a word of 4 bytes; the first access to less than a word makes it a byte.
"""

import numpy as np

__all__ = ["BlockRaces", "ThreadRaces"]

NOBODY, MANY = -1, np.iinfo(np.int32).max  # the highest and the lowest block where there is none yet


class _Units:
    """Arrays over the units of some memory, made finer when need be."""

    def __init__(self, size, **initial):
        self.grain, self.names = 4, tuple(initial)
        for name, value in initial.items():
            setattr(self, name, np.full(-(-size // 4), value, np.int32))

    def units(self, offsets, size):
        """The units that accesses touch: one row for each access."""
        if size < self.grain:
            for name in self.names:
                setattr(self, name, getattr(self, name).repeat(4))
            self.grain = 1
        first = offsets // self.grain
        count = size // self.grain
        return first[:, None] if count == 1 else first[:, None] + np.arange(count)

    def _assign(self, lowest, highest, unit, low, high):
        """Lanes go up, and where they share a unit the last assignment stays: the highest, or backwards the lowest."""
        getattr(self, highest)[unit] = high
        # Copies, because NumPy walks views with negative strides in the order of memory.
        getattr(self, lowest)[unit[::-1].copy()] = low[::-1].copy()


class ThreadRaces(_Units):
    """Races in shared memory: accesses of two threads, one a write, with no barrier between.

    Time is a clock that barriers advance. Readers since a barrier are kept as the lowest and the highest lane, and so
    are writers: several only where all are atomic. Threads of one warp are ordered by bar.warp.sync too.
    """

    def __init__(self, geometry, size):
        reads = {"lowest_reader": 0, "highest_reader": 0, "read_time": 0}
        writes = {"lowest_writer": 0, "highest_writer": 0, "write_time": 0, "write_step": 0, "atomic": 0}
        super().__init__(size, **reads, **writes)
        self.geometry = geometry
        self.clock = 1
        self.since_block = np.ones(geometry.lanes, np.int32)  # the time of each lane's last barrier
        self.since_warp = np.ones(geometry.lanes, np.int32)  # of its last bar.sync or bar.warp.sync
        self.since_fence = np.zeros(geometry.lanes, np.int32)  # of its last fence.proxy.async

    def barrier(self, lanes):
        self.clock += 1
        self.since_block[lanes.at] = self.since_warp[lanes.at] = self.clock

    def warp_barrier(self, lanes):
        self.clock += 1
        self.since_warp[lanes.at] = self.clock

    def fence(self, lanes):
        self.clock += 1
        self.since_fence[lanes.at] = self.clock

    # ---- accesses ------------------------------------------------------------------------------------------------

    def before_proxy(self, unit, lane):
        """(unordered, unfenced): what threads wrote, before the asynchronous proxy reads it at the wish of a lane."""
        time, writer = self.write_time[unit], self.lowest_writer[unit]
        return time >= self.since_block[lane], (time > 0) & (time >= self.since_fence[writer])

    def read(self, lanes, offsets, size):
        """(after_write, None, None, steps): reads of what another thread wrote, and the steps that wrote it."""
        unit = self.units(offsets, size)
        bad = self._after_write(unit, lanes)
        low, high = self._joined(self.lowest_reader[unit], self.highest_reader[unit], self.read_time[unit], lanes)
        self._assign("lowest_reader", "highest_reader", unit, low, high)
        self.read_time[unit] = self.clock
        return bad, None, None, (self.write_step[unit] if bad is not None else None)

    def write(self, lanes, offsets, size, step, atomic):
        """(after_write, after_read, together, steps): writes that race with a write, a read, within the instruction.

        An atomic operation races with what is not atomic.
        """
        unit = self.units(offsets, size)
        after_write, after_read = self._after_write(unit, lanes), self._after_read(unit, lanes)
        steps = self.write_step[unit]
        if not atomic:
            return after_write, after_read, self.wrote(unit, lanes.index[:, None], step), steps
        was_atomic = self.atomic[unit] > 0
        own = (self.lowest_writer[unit] == lanes.index[:, None]) & (self.write_time[unit] >= self._since_warp(lanes))
        if after_write is not None:
            after_write &= ~was_atomic
        time = np.where(was_atomic, self.write_time[unit], 0)
        low, high = self._joined(self.lowest_writer[unit], self.highest_writer[unit], time, lanes)
        self._assign("lowest_writer", "highest_writer", unit, low, high)
        self.write_time[unit] = self.clock
        self.write_step[unit] = step
        self.atomic[unit] = np.where(own & ~was_atomic, 0, 1)  # its own plain write goes on to count
        return after_write, after_read, None, steps

    def wrote(self, unit, lane, step):
        """Remember a write; gives which lanes lost a unit to another one."""
        self.lowest_writer[unit] = self.highest_writer[unit] = lane
        self.write_time[unit] = self.clock
        self.write_step[unit] = step
        self.atomic[unit] = 0
        return self.highest_writer[unit] != lane

    # ---- their order ---------------------------------------------------------------------------------------------

    def _after_write(self, unit, lanes):
        return self._unordered(self.lowest_writer[unit], self.highest_writer[unit], self.write_time[unit], lanes)

    def _after_read(self, unit, lanes):
        return self._unordered(self.lowest_reader[unit], self.highest_reader[unit], self.read_time[unit], lanes)

    def _unordered(self, low, high, time, lanes):
        """Whether nothing orders accesses at a time by lanes low to high before these; None if all is well."""
        recent = time >= self.since_block[lanes.at][:, None]
        if not recent.any():
            return None
        lane = lanes.index[:, None]
        bad = recent & ((low != lane) | (high != lane))
        return bad & ~self._in_warp_before(low, high, time, lanes) if bad.any() else None

    def _since_warp(self, lanes):
        return self.since_warp[lanes.at][:, None]

    def _in_warp_before(self, low, high, time, lanes):
        """Whether accesses by lanes low to high were all of the lane's own warp, and before its last barrier."""
        warp = self.geometry.warp
        own = warp[lanes.at][:, None]
        return (warp[low] == own) & (warp[high] == own) & (time < self._since_warp(lanes))

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
        reads = {"lowest_reader": MANY, "highest_reader": NOBODY}
        writes = {"lowest_writer": MANY, "highest_writer": NOBODY, "atomic": 1}
        super().__init__(size, **reads, **writes)

    def read(self, block, offsets, size):
        """Which reads race with another block's write."""
        unit, block = self.units(offsets, size), block[:, None]
        self._join("lowest_reader", "highest_reader", unit, block)
        return self._others("lowest_writer", "highest_writer", unit, block)

    def write(self, block, offsets, size, atomic):
        """(after another block's write, after another block's read)"""
        unit, block = self.units(offsets, size), block[:, None]
        self._join("lowest_writer", "highest_writer", unit, block)
        after_write = self._others("lowest_writer", "highest_writer", unit, block)
        if atomic:
            after_write &= self.atomic[unit] == 0
        else:
            self.atomic[unit] = 0
        return after_write, self._others("lowest_reader", "highest_reader", unit, block)

    def _join(self, lowest, highest, unit, block):
        low, high = np.minimum(getattr(self, lowest)[unit], block), np.maximum(getattr(self, highest)[unit], block)
        self._assign(lowest, highest, unit, low, high)

    def _others(self, lowest, highest, unit, block):
        """Where another block than this one has had access."""
        low, high = getattr(self, lowest)[unit], getattr(self, highest)[unit]
        return (high != NOBODY) & ((low != block) | (high != block))
