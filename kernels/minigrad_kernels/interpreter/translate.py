"""Translation: every instruction once into a closure, and the closures into runs without jumps."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import tensor_core, transfers, warpgroup  # noqa: F401  (they enter their builders)
from .bulk import waiting
from .operations import CARRY, Unknown, operation
from .program import Instruction, Program, parse
from .slots import BUILDERS, Slots, compute, guarded, nothing, sequence
from .syntax import Immediate, Negated, Vector
from .warps import members_of

__all__ = ["Code", "Run", "ends_a_run", "translate"]

BRANCHES = ("bra", "brx", "ret", "exit", "trap")
BARRIERS = ("bar", "barrier")
REDUCTIONS = {"popc": lambda held: held.sum(), "and": lambda held: held.all(), "or": lambda held: held.any()}
# What reading an instruction of an unexpected form may run into.
UNREADABLE = (Unknown, ValueError, TypeError, KeyError, IndexError, AttributeError)
for _root in "membar prefetch prefetchu applypriority nanosleep pmevent griddepcontrol setmaxnreg".split():
    BUILDERS[_root] = lambda slots, instruction: nothing


def ends_a_run(instruction):
    """Whether it is a jump, a barrier of the block, or a wait for an mbarrier."""
    root, second = (*instruction.parts, "")[:2]
    return root in BRANCHES or (root in BARRIERS and second != "warp") or (root, second) == ("mbarrier", "try_wait")


class Run(NamedTuple):
    """Instructions that lanes execute one after the other.

    steps    what they do
    leave    (machine, lanes): where the lanes go on
    length   how many instructions it has
    members  of a run that begins with a .sync instruction: which lanes must meet there
    """

    steps: list[Callable]
    leave: Callable
    length: int
    members: Callable | None


class Code(NamedTuple):
    """A translated program. opened: what happens when a barrier opens, by the number of its instruction."""

    program: Program
    slots: Slots
    runs: dict[int, Run]
    opened: dict[int, Callable]


class _Translator:
    def __init__(self, program):
        self.program, self.slots = program, Slots(program)
        self.opened = {}

    # ---- one instruction -----------------------------------------------------------------------------------------

    def step(self, instruction):
        """What an instruction without jumps does."""
        root = instruction.parts[0]
        if root in BUILDERS:
            return BUILDERS[root](self.slots, instruction)
        first, *sources = instruction.operands
        targets = list(first.elements) if isinstance(first, Vector) else [first]
        found = operation(instruction.parts, len(targets) == 2)
        targets += [None] * (CARRY in found.results)
        sources += [None] * (CARRY in found.sources)
        if len(targets) != len(found.results) or len(sources) != len(found.sources):
            raise Unknown(f"has {len(sources)} sources, wants {len(found.sources)}")
        return sequence([self.half(found, targets, sources, i) for i in ((0, 1) if found.packed else (None,))])

    def half(self, found, targets, sources, part):
        """The step of an operation, or of it on one half of its registers."""
        slots, function = self.slots, found.function
        negated = [isinstance(source, Negated) for source in sources]
        sources = [source.register if isinstance(source, Negated) else source for source in sources]
        if any(negated):
            inner = function
            function = lambda *x: inner(*(~v if turn else v for v, turn in zip(x, negated, strict=True)))
        reads = [slots.source(source, kind, part or 0) for source, kind in zip(sources, found.sources, strict=True)]
        kept = [i for i, target in enumerate(targets) if target != "_"]
        writes = [slots.target(targets[i], found.results[i], part) for i in kept]
        if len(kept) < len(targets):
            both, (i,) = function, kept
            function = lambda *x: both(*x)[i]
        return compute(function, writes, reads)

    # ---- jumps ---------------------------------------------------------------------------------------------------

    def leave(self, instruction):
        """Where lanes go from an instruction that ends a run."""
        root, after = instruction.parts[0], instruction.number + 1
        if root in BARRIERS:
            jump = self.barrier(instruction)
        elif root == "bra":
            target = self.program.labels[instruction.operands[-1]]
            jump = lambda m, lanes: m.go(target, lanes)
        elif root == "brx":
            jump = self.table(instruction)
        elif root == "mbarrier":
            test, number = waiting(self.slots, instruction), instruction.number
            jump = lambda m, lanes: m.attempt(number, lanes, test)
        elif root == "trap":

            def jump(m, lanes):
                raise instruction.error(f"was executed by {m.geometry.name(int(lanes.index[0]))}")

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

    def table(self, instruction):
        index, name = instruction.operands
        slot = self.slots.source(index, "u32")
        targets = [self.program.labels[label] for label in self.program.tables[name]]

        def jump(m, lanes):
            choice = m.r[slot][lanes.at]
            for i, target in enumerate(targets):
                m.go(target, lanes.only(choice == i))

        return jump

    def barrier(self, instruction):
        """bar.sync and bar.red, also as barrier.sync and with .cta and .aligned."""
        kind, *modifiers = [part for part in instruction.parts[1:] if part not in ("cta", "aligned")]
        number, operands = instruction.number, list(instruction.operands)
        if kind == "sync" and not modifiers:
            self.opened[number] = lambda m, lanes: m.go(number + 1, lanes)
        elif kind == "red":
            self.opened[number] = self.reduction(number, modifiers[0], operands.pop(0), operands.pop())
        else:
            raise Unknown("is a barrier that is not known")
        if not all(isinstance(operand, Immediate) for operand in operands):
            raise Unknown("has a number in a register, which is not known")
        barrier, *count = (int(operand.text, 0) for operand in operands or [Immediate("0")])
        return lambda m, lanes: m.barrier(number, lanes, barrier, *count)

    def reduction(self, number, name, destination, predicate):
        """Each thread of a block gets and, or, or the number of the predicates of all."""
        target = self.slots.target(destination, "u32" if name == "popc" else "pred")
        read, reduce = self.slots.reader(predicate, "pred"), REDUCTIONS[name]

        def opened(m, lanes):
            held, block, result = read(m), m.geometry.block_of[m.at], m.get(target)
            for b in np.unique(block):
                result[block == b] = reduce(held[block == b])
            m.put(target, result)
            m.go(number + 1, lanes)

        return opened

    # ---- runs ----------------------------------------------------------------------------------------------------

    def code(self):
        instructions = self.program.instructions
        steps, leaves, meets, starts = [], {}, {}, {0, *self.program.labels.values()}
        for instruction in instructions:
            try:
                self.translate(instruction, steps, leaves, meets, starts)
            except UNREADABLE as error:
                what = str(error) if isinstance(error, Unknown) else "has a form that is not known"
                raise instruction.error(what) from error
        ends = sorted({*starts, len(instructions)})
        runs = {len(instructions): Run([], lambda m, lanes: m.end(lanes), 0, None)}
        for start, end in zip(ends, ends[1:], strict=False):
            leave = leaves.get(end - 1) or (lambda m, lanes, end=end: m.go(end, lanes))
            runs[start] = Run([s for s in steps[start:end] if s], leave, end - start, meets.get(start))
        return Code(self.program, self.slots, runs, self.opened)

    def translate(self, instruction: Instruction, steps, leaves, meets, starts):
        number = instruction.number
        if ends_a_run(instruction):
            leaves[number] = self.leave(instruction)
            starts.add(number + 1)
            return steps.append(None)
        members = members_of(self.slots, instruction)
        if members is not None:
            if instruction.guard is not None:
                raise Unknown("stands under a predicate, which is not known")
            meets[number] = members
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
    return _Translator(parse(ptx)).code()
