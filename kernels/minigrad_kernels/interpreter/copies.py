"""cp.async: copies to shared memory that arrive at the wait that covers them, and not before.

Each thread puts its copies into groups. Until a thread waits for the group, the destination holds a NaN pattern, and
any access to it, by whichever thread, is a fault.
"""

from dataclasses import dataclass

import numpy as np

from .array import FILL

__all__ = ["Copies"]


@dataclass
class Copy:
    """One cp.async of many threads. group: the number of the group of each lane's copy; alive: not yet arrived."""

    instruction: object
    lanes: object
    offsets: np.ndarray
    data: np.ndarray  # (lanes, words) of what arrives
    group: np.ndarray
    alive: np.ndarray


class Copies:
    """All copies of a batch of blocks that are on their way."""

    def __init__(self, machine, size):
        self.machine = machine
        self.number = 0  # of copies ever started, so that words can name theirs
        self.flying = {}
        lanes = machine.geometry.lanes
        self.owner = np.zeros(-(-size // 4), np.int32)  # for each word the number of the copy under way to it, or 0
        self.group = np.zeros(lanes, np.int64)  # the number of each lane's open group
        self.last_wait = np.full(lanes, -1, np.int64)  # the number of the instruction with which it last waited

    def words(self, offsets, size):
        return offsets[:, None] // 4 + np.arange(max(size // 4, 1))

    def check(self, instruction, lanes, addresses, offsets, size, access):
        """An access to shared memory must not touch what is still on its way."""
        if not self.flying:
            return
        owner = self.owner[self.words(offsets, size)].max(axis=1)
        bad = owner > 0
        if bad.any():

            def text(i):
                what = self.under_way(owner[i], offsets[i], size)
                return f"{access} {self.machine.shared.where(int(addresses[i]))}, to which {what}"

            self.machine.fault("cp.async wait", instruction, lanes, bad, text)

    def under_way(self, number, offset, size):
        """Which copy is under way to some of these bytes, and which wait would cover it."""
        copy = self.flying[int(number)]
        length = copy.data.shape[1] * 4
        meets = (copy.offsets < offset + size) & (copy.offsets + length > offset)
        at = int(np.flatnonzero(copy.alive & meets)[0])
        lane = copy.lanes.index[at]
        group, open_group = int(copy.group[at]), int(self.group[lane])
        text = f"the cp.async of {self.machine.geometry.name(lane)} is under way ({copy.instruction.location})"
        if group == open_group:
            return f"{text}; it is in no committed group yet"
        text += f"; wants cp.async.wait_group {open_group - group - 1} or less"
        last = int(self.last_wait[lane])
        if last < 0:
            return f"{text}, and that thread has not waited"
        wait = self.machine.instructions[last]
        return f"{text}, the last wait of that thread is {wait.text!r} ({wait.location})"

    def start(self, instruction, lanes, offsets, data):
        """Copies of 4, 8 or 16 bytes: data is (lanes, words) uint32."""
        self.number += 1
        words = self.words(offsets, data.shape[1] * 4)
        space = self.machine.shared.space
        space.rows(np.dtype(np.uint16), 1)[words[:, :, None] * 2 + np.arange(2)] = FILL
        space.mark(offsets, data.shape[1] * 4)  # reading it too early is a fault of its own kind
        self.owner[words] = self.number
        group = self.group[lanes.at].copy()
        self.flying[self.number] = Copy(instruction, lanes, offsets, data, group, np.ones(lanes.count, np.bool_))

    def commit(self, lanes):
        self.group[lanes.at] += 1

    def wait(self, instruction, lanes, pending):
        """All but the last `pending` committed groups of these lanes arrive."""
        self.last_wait[lanes.at] = instruction.number
        if not self.flying:
            return
        limit = np.full(self.machine.geometry.lanes, np.iinfo(np.int64).min)  # the first group that may stay under way
        limit[lanes.at] = self.group[lanes.at] - pending
        for number, copy in list(self.flying.items()):
            due = copy.alive & (copy.group < limit[copy.lanes.at])
            if due.any():
                self.arrive(number, copy, due)

    def arrive(self, number, copy, due):
        size = copy.data.shape[1] * 4
        offsets, data = copy.offsets[due], copy.data[due]
        words = self.words(offsets, size)
        mine = self.owner[words] == number  # elsewhere a later copy has the same destination, which was a fault
        shared = self.machine.shared
        shared.space.rows(np.dtype(np.uint32), 1)[words[mine]] = data[mine]
        self.owner[words[mine]] = 0
        races = shared.races
        races.wrote(races.units(offsets, size), copy.lanes.index[due][:, None], copy.instruction.number)
        copy.alive &= ~due
        if not copy.alive.any():
            del self.flying[number]
