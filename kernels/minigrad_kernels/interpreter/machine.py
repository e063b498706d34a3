"""The machine: runs a batch of blocks, all their threads at once, those with the lowest instruction first.

Threads that stand at different instructions are kept as sets of lanes; a set runs up to a branch or to where others may
join it. Threads that must meet (at barriers, and lanes of a warp at .sync instructions) wait until the others come, or
until nobody else can go on: that is a fault, and then they are let go.
"""

import numpy as np

from ..errors import StateError
from .memory import Owned, Shared
from .program import LOCAL_START
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
        self.local = Owned(self, "local", LOCAL_START, self.code.program.local, geometry.everyone.index)
        self.copies = Copies(self, len(self.shared.bytes))
        self.proxy = Proxy(self, self.shared.stride)
        self.live = np.ones(self.geometry.lanes, np.bool_)
        self.waiting = {}  # instruction -> lanes that wait there for others
        self.ready = {0: self.geometry.everyone}
        self.steps = 0
        while self.ready or self.waiting:
            for start, lanes in self.going().items():
                if lanes is not None:
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
            self.ready[number] = lanes.with_(self.ready.get(number))

    def end(self, lanes):
        self.live[lanes.at] = False

    def admitted(self, start, lanes):
        """Lanes come to a run of instructions; gives those that need not wait there for others."""
        gate = self.code.runs[start].gate
        if gate is None:
            return lanes
        lanes = lanes.with_(self.waiting.pop(start, None))
        self.enter(lanes)
        may = gate.opens(self)
        if may is None or may.all():
            return lanes
        self.waiting[start] = lanes.only(~may)
        return lanes.only(may)

    def going(self):
        """Lanes to execute, by instruction: the first; where there are none, those that wait are asked again, and if
        they wait in vain some are let go, which is a fault.
        """
        if self.ready:
            start = min(self.ready)
            return {start: self.admitted(start, self.ready.pop(start))}
        asked, self.waiting = self.waiting, {}
        going = {start: self.admitted(start, lanes) for start, lanes in asked.items()}
        if self.waiting and not any(going.values()):
            gates = {start: self.code.runs[start].gate for start in sorted(self.waiting)}
            first = min(gates, key=lambda start: gates[start].rank)
            self.enter(self.waiting[first])
            gates[first].complain(self)
            going = {start: self.waiting.pop(start) for start in gates if gates[start].rank == gates[first].rank}
        return going

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
