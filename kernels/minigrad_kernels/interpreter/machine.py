"""The machine: runs a batch of blocks, all their threads at once, those with the lowest instruction first.

Threads that stand at different instructions are kept as sets of lanes; a set runs up to a branch or to where others may
join it. Threads that must meet (at barriers, and lanes of a warp at .sync instructions) wait until the others come, or
until nobody else can go on: that is a fault, and then they are let go.
"""

import numpy as np

from ..errors import StateError
from .lanes import BIT, WARP
from .memory import Local, Shared
from .proxy import Proxy
from .report import Counts, Fault
from .transfers import Copies


class Machine:
    """State of one launch.

    r                the arrays of all slots, each over all lanes
    lanes, at, full  the lanes that execute now (see lanes.Lanes), and short for lanes.at and lanes.full
    executed         how many warps executed the run of instructions that begins at each number
    guarded          the same for each instruction under a predicate
    """

    def __init__(self, code, several_blocks, budget):
        self.code, self.several_blocks, self.budget = code, several_blocks, budget
        self.counts = Counts()
        self.instructions = code.program.instructions
        self.faults = {}
        self.executed = [0] * (len(self.instructions) + 1)
        self.guarded = [0] * (len(self.instructions) + 1)
        # Whether mbarriers or products of warpgroups are used: where not, shared memory is not checked against them.
        self.asynchronous = any(instruction.parts[0] in ("mbarrier", "wgmma") for instruction in self.instructions)
        self.everywhere = None  # the windows.Windows of the launch

    # ---- one batch ---------------------------------------------------------------------------------------------------

    def run(self, geometry, registers, first_block, shared_end):
        """Run the blocks of the grid from number first_block on."""
        self.geometry, self.r = geometry, registers
        self.geometry.set_blocks(first_block)
        self.shared = Shared(self, shared_end)
        self.local = Local(self, self.code.program.local)
        self.copies = Copies(self, len(self.shared.bytes))
        self.proxy = Proxy(self, self.shared.stride)
        self.live = np.ones(self.geometry.lanes, np.bool_)
        self.barrier_pending = {}  # instruction -> lanes that wait there
        self.parked = {}  # instruction -> (lanes that wait there for mbarriers, the function that asks them)
        self.meeting = {}  # instruction -> lanes whose warp is not complete there
        self.ready = {0: self.geometry.everyone}
        self.steps = 0
        while self.ready or self.release():
            start = min(self.ready)
            lanes = self.ready.pop(start)
            run = self.code.runs[start]
            if run.members is not None and not lanes.whole:
                lanes = self.meet(start, run, lanes)
                if lanes is None:
                    continue
            self.execute(start, lanes)

    def execute(self, start, lanes):
        """Run the instructions from start on up to a branch."""
        run = self.code.runs[start]
        self.enter(lanes)
        self.executed[start] += lanes.warps
        for step in run.steps:
            step(self)
        run.leave(self, lanes)
        self.steps += run.length
        if self.steps > self.budget:
            raise StateError(
                f"{self.code.program.name}: executed {self.steps} instructions and has not ended, at "
                f"{self.location(start)}; is there an endless loop? else pass a larger budget than {self.budget}"
            )

    def enter(self, lanes):
        self.lanes, self.at, self.full = lanes, lanes.at, lanes.full

    def get(self, slot):
        """The values of a slot in the lanes that execute."""
        return self.r[slot][self.at]

    def put(self, slot, values):
        self.r[slot][self.at] = values

    # ---- where lanes go ------------------------------------------------------------------------------------------

    def go(self, number, lanes):
        """These lanes, if there are any, go on at an instruction."""
        if lanes is not None:
            _gather(self.ready, number, lanes)

    def end(self, lanes):
        self.live[lanes.at] = False

    def meet(self, start, run, lanes):
        """Lanes come to a .sync instruction with parts of warps; gives those that may go on now."""
        lanes = _gather({start: self.meeting.pop(start, None)}, start, lanes)
        _, waits = self.missing(run, lanes)
        waiting = lanes.only(waits)
        if waiting is not None:
            self.meeting[start] = waiting
        return None if waiting is lanes else lanes.only(~waits)

    def missing(self, run, lanes):
        """For each lane the lanes that its warp lacks, as bits, and whether any of its warp must wait for others."""
        self.enter(lanes)
        wanted = run.members(self)
        geometry = self.geometry
        absent = np.zeros(geometry.warps * WARP, np.bool_)
        absent[geometry.place] = self.live  # of lanes that have ended nothing is expected
        absent[geometry.place[lanes.at]] = False
        warp = geometry.warp[lanes.at]
        missing = wanted & (absent.reshape(-1, WARP) * BIT).sum(axis=1, dtype=np.uint32)[warp]
        waits = np.zeros(geometry.warps, np.bool_)
        waits[warp[missing != 0]] = True
        return missing, waits[warp]

    def release(self):
        """Nobody can go on: look again at mbarriers, and let go who waits in vain. Whether there was anybody."""
        if self.parked:
            if not self.look_again(False):
                self.look_again(True)
            return True
        if self.meeting:
            start = min(self.meeting)
            lanes = self.meeting.pop(start)
            missing, _ = self.missing(self.code.runs[start], lanes)

            def text(i):
                names = [str(lane) for lane in range(WARP) if int(missing[i]) >> lane & 1]
                return f"names lanes of the warp that are not there: {', '.join(names)}"

            if missing.any():
                self.fault("divergent warp", self.instructions[start], lanes, missing != 0, text)
            self.execute(start, lanes)
            return True
        if not self.barrier_pending:
            return False
        pending, self.barrier_pending = self.barrier_pending, {}
        start = min(pending)
        lanes = pending[start]
        text = lambda i: self.why_stuck(lanes, int(self.geometry.block_of[lanes.index[i]]))
        self.fault("divergent barrier", self.instructions[start], lanes, np.ones(lanes.count, np.bool_), text)
        for number, waiting in pending.items():
            self.pass_barrier(number, waiting)
        return True

    def attempt(self, number, lanes, test, force=False):
        """Lanes that wait for phases of mbarriers go on where those are over; whether any does. force: all do."""
        self.enter(lanes)
        over = test(self, force)
        going, staying = lanes.only(over), lanes.only(~over)
        self.go(number + 1, going)
        if staying is not None:
            self.parked[number] = _gather({number: self.parked.get(number, (None,))[0]}, number, staying), test
        return going is not None

    def look_again(self, force):
        parked, self.parked = self.parked, {}
        return any([self.attempt(number, *waiting, force) for number, waiting in parked.items()])

    def why_stuck(self, lanes, block):
        """What threads of a block do while others of it, the lanes, wait at a barrier."""
        here = int((self.geometry.block_of[lanes.at] == block).sum())
        ended = int((~self.live[self.geometry.block_of == block]).sum())
        others = self.geometry.threads - here - ended
        there = f"is reached by {here} of {self.geometry.threads} threads of a block"
        return f"{there}, {others} wait at other barriers, {ended} have ended"

    # ---- barriers ------------------------------------------------------------------------------------------------

    def barrier(self, number, lanes):
        """Lanes come to a barrier, which opens for a block when all its threads are there."""
        if not lanes.full:
            lanes = _gather(self.barrier_pending, number, lanes)
            del self.barrier_pending[number]
            block = self.geometry.block_of[lanes.at]
            here = np.bincount(block, minlength=self.geometry.blocks)[block] == self.geometry.threads
            if (waiting := lanes.only(~here)) is not None:
                self.barrier_pending[number] = waiting
            lanes = lanes.only(here)
        if lanes is not None:
            self.pass_barrier(number, lanes)

    def pass_barrier(self, number, lanes):
        self.counts.barriers += len(np.unique(self.geometry.block_of[lanes.at]))
        races = self.shared.races
        races.advance(lanes, races.since_block, races.since_warp)
        if self.asynchronous:
            self.proxy.join(lanes)
        self.go(number + 1, lanes)

    # ---- faults --------------------------------------------------------------------------------------------------

    def location(self, number):
        return self.instructions[number].location

    def fault(self, kind, instruction, lanes, bad, text):
        """Report what these lanes do wrong, if any does, once for each instruction; text(i): what the i-th does."""
        key = kind, instruction.number
        if key in self.faults or not bad.any():
            return
        first, others = int(bad.argmax()), int(np.count_nonzero(bad)) - 1
        message = f"{instruction.opcode} {text(first)}; {self.geometry.name(int(lanes.index[first]))}"
        if others:
            message += f" and {others} more"
        self.faults[key] = Fault(kind, instruction.location, message)


def _gather(sets, key, lanes):
    """Add lanes to the set of a key, which may be missing or None; gives the whole set."""
    others = sets.get(key)
    sets[key] = lanes if others is None else others.with_(lanes)
    return sets[key]
