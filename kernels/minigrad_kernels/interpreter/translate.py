"""Translation: every instruction once into a closure, and the closures into runs without jumps."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from . import tensor_core, transfers, warpgroup  # noqa: F401  (they enter their builders)
from .bulk import phase_gate
from .operations import Unknown, operation
from .program import Instruction, Program
from .slots import BUILDERS, Gate, Slots, builder, compute, guarded, nothing
from .warps import ALIGNED, BARRIERS, gate

BRANCHES = ("bra", "ret", "exit")
GATES = {"mbarrier": phase_gate} | dict.fromkeys((*BARRIERS, "shfl", *ALIGNED), gate)
# What reading an instruction of an unexpected form may run into.
UNREADABLE = (Unknown, ValueError, TypeError, KeyError, IndexError, AttributeError)
for _root in "membar prefetch prefetchu applypriority nanosleep pmevent griddepcontrol setmaxnreg".split():
    BUILDERS[_root] = lambda slots, instruction: nothing


@builder("trap")
def trap(slots, instruction):
    def step(m):
        raise instruction.error(f"was executed by {m.geometry.name(int(m.lanes.index[0]))}")

    return step


class Run(NamedTuple):
    """Instructions that lanes execute one after the other.

    steps    what they do
    leave    (machine, lanes): where the lanes go on
    length   how many instructions it has
    gate     where lanes wait for others before its first instruction
    """

    steps: list[Callable]
    leave: Callable
    length: int
    gate: Gate | None


class Code:
    """A translated program: its runs by the number of their first instruction."""

    def __init__(self, program):
        self.program, self.slots, self.runs = program, Slots(program), {}
        self.translate()

    # ---- one instruction -----------------------------------------------------------------------------------------

    def step(self, instruction):
        """What an instruction without jumps does."""
        root = instruction.parts[0]
        if root in BUILDERS:
            return BUILDERS[root](self.slots, instruction)
        found, slots = operation(instruction.parts), self.slots
        target, *sources = instruction.operands
        if len(sources) != len(found.sources):
            raise Unknown(f"has {len(sources)} sources, wants {len(found.sources)}")
        reads = [slots.source(*pair) for pair in zip(sources, found.sources, strict=True)]
        return compute(found.function, slots.target(target, found.result), reads)

    # ---- jumps ---------------------------------------------------------------------------------------------------

    def leave(self, instruction):
        """Where lanes go from an instruction that ends a run."""
        root, after = instruction.parts[0], instruction.number + 1
        if root == "bra":
            (target,) = instruction.operands
            jump = lambda m, lanes: m.go(target, lanes)
        else:
            jump = lambda m, lanes: m.end(lanes)
        if instruction.guard is None:
            return jump
        read = self.slots.reader(instruction.guard, "pred")

        def leave(m, lanes):
            m.enter(lanes)
            held = read(m)
            going, staying = lanes.only(held), lanes.only(~held)
            if going is not None:
                jump(m, going)
            m.go(after, staying)

        return leave

    # ---- runs ----------------------------------------------------------------------------------------------------

    def translate(self):
        instructions = self.program.instructions
        steps, leaves, gates, starts = [], {}, {}, {0, *self.program.targets}
        for instruction in instructions:
            try:
                self.enter(instruction, steps, leaves, gates, starts)
            except UNREADABLE as error:
                what = str(error) if isinstance(error, Unknown) else "has a form that is not known"
                raise instruction.error(what) from error
        ends = sorted({*starts, len(instructions)})
        self.runs[len(instructions)] = Run([], lambda m, lanes: m.end(lanes), 0, None)
        for start, end in zip(ends, ends[1:], strict=False):
            leave = leaves.get(end - 1) or (lambda m, lanes, end=end: m.go(end, lanes))
            self.runs[start] = Run([s for s in steps[start:end] if s], leave, end - start, gates.get(start))

    def enter(self, instruction: Instruction, steps, leaves, gates, starts):
        number = instruction.number
        if instruction.parts[0] in BRANCHES:
            leaves[number] = self.leave(instruction)
            starts.add(number + 1)
            return steps.append(None)
        make = GATES.get(instruction.parts[0])
        if make is not None and (found := make(self.slots, instruction)) is not None:
            if instruction.guard is not None:
                raise Unknown("stands under a predicate, which is not known")
            gates[number] = found
            starts.add(number)
        step = self.step(instruction)
        if instruction.guard is not None:
            step = guarded(step, number, self.slots.reader(instruction.guard, "pred"))
        return steps.append(step)


@lru_cache(maxsize=64)
def translate(ptx):
    """The Code of PTX text.

    Errors  RuntimeError for an instruction, modifier or operand that is not known, with its line
    """
    return Code(Program(ptx))
