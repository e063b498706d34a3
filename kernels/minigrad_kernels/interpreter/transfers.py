"""Instructions that move data between registers and memory: mov, ld, st, atom, red, cp.async.

A cp.async arrives at the wait that covers it, and not before. Each thread puts its copies into groups. Until a thread
waits for the group, the destination holds a NaN pattern, and any access to it, by whichever thread, is a fault.
"""

import numpy as np

from .bulk import BULK, copy_box
from .memory import WRITE, filled, words_of
from .operations import DTYPES, Unknown
from .slots import address_of, builder, copy, sequence
from .syntax import Address, Symbol, Vector

MEMORIES = {"global": "everywhere", "const": "everywhere", "shared": "shared", "local": "local", "param": "local"}
HINTS = tuple(
    "weak volatile relaxed acquire release acq_rel nc cta cluster gpu sys ca cg cs lu cv wb wt noftz unified".split()
)
ATOMIC = {
    "add": lambda old, x: old + x,
    "min": lambda old, x: x if x < old or old != old else old,
    "max": lambda old, x: x if x > old or old != old else old,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda old, x: x,
    "inc": lambda old, x: old.dtype.type(0) if old >= x else old + old.dtype.type(1),
    "dec": lambda old, x: x if old == 0 or old > x else old - old.dtype.type(1),
    "cas": lambda old, x, y: y if old == x else old,
}


def _read_modifiers(instruction, known=()):
    """(space, number of elements, type, the modifiers that are in `known`)"""
    space, count, kind, found = "everywhere", 1, None, []
    for part in instruction.parts[1:]:
        root, _, detail = part.partition("::")
        if root in MEMORIES and detail in ("", "cta", "entry", "func"):
            space = MEMORIES[root]
        elif part in DTYPES:
            kind = part
        elif part in ("v2", "v4", "v8"):
            count = int(part[1:])
        elif part in known:
            found.append(part)
        elif root not in HINTS and root not in ("L1", "L2"):
            raise Unknown(f"has the modifier .{part}, which is not known")
    return space, count, kind, found


def _elements(operand, count):
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        raise Unknown(f"has {len(elements)} registers, wants {count}")
    return elements


@builder("ld", "ldu")
def load(slots, instruction):
    space, count, kind, _ = _read_modifiers(instruction)
    destination, place = instruction.operands[:2]
    dtype = np.dtype(DTYPES[kind])
    targets = [None if d == "_" else slots.target(d, kind) for d in _elements(destination, count)]
    if isinstance(place.base, Symbol) and place.base.space == "kernel":
        first, size = place.offset + place.base.offset, dtype.itemsize
        sources = [slots.parameter(place.base.address, kind, first + i * size) for i in range(count)]
        return sequence([copy(*pair) for pair in zip(targets, sources, strict=True) if pair[0] is not None])
    address = address_of(slots, place)

    def step(m):
        values = getattr(m, space).access(instruction, m.lanes, address(m), dtype, count)
        r, at = m.r, m.at
        for target, value in zip(targets, values, strict=True):
            if target is not None:
                r[target][at] = value

    return step


@builder("st")
def store(slots, instruction):
    space, count, kind, _ = _read_modifiers(instruction)
    place, source = instruction.operands
    dtype = np.dtype(DTYPES[kind])
    address = address_of(slots, place)
    sources = [slots.source(element, kind) for element in _elements(source, count)]

    def step(m):
        r, at = m.r, m.at
        values = [r[source][at] for source in sources]
        getattr(m, space).access(instruction, m.lanes, address(m), dtype, count, values)

    return step


@builder("atom", "red")
def atomic(slots, instruction):
    space, count, kind, (name,) = _read_modifiers(instruction, ATOMIC)
    if count != 1 or kind in ("f16x2", "bf16x2", "bf16"):
        raise Unknown("is an atomic operation that is not known")
    operands = instruction.operands
    destination = operands[0] if instruction.parts[0] == "atom" else "_"
    place, *values = operands[instruction.parts[0] == "atom" :]
    dtype, address = np.dtype(DTYPES[kind]), address_of(slots, place)
    target = None if destination == "_" else slots.target(destination, kind)
    sources = [slots.source(value, kind) for value in values]

    def step(m):
        arrays = [m.get(source) for source in sources]
        (old,) = getattr(m, space).access(instruction, m.lanes, address(m), dtype, 1, arrays, ATOMIC[name])
        if target is not None:
            m.put(target, old)

    return step


@builder("mov")
def move(slots, instruction):
    """Between registers; or a register and its parts, the lowest first."""
    kind = instruction.parts[-1]
    target, source = instruction.operands
    vector = next((operand for operand in (target, source) if isinstance(operand, Vector)), None)
    if vector is None:
        return copy(slots.target(target, kind), slots.source(source, kind))
    part, steps = f"b{np.dtype(DTYPES[kind]).itemsize * 8 // len(vector.elements)}", []
    for i, element in enumerate(vector.elements):
        if vector is source:
            steps.append(copy(slots.target(target, part, i), slots.source(element, part)))
        elif element != "_":
            steps.append(copy(slots.target(element, part), slots.source(source, part, i)))
    return sequence(steps)


# ---- asynchronous copies ---------------------------------------------------------------------------------------------


class Copies:
    """All copies of a batch of blocks that are on their way, word by word of shared memory; also bulk copies."""

    def __init__(self, machine, size):
        self.machine, words = machine, -(-size // 4)
        self.flying = np.zeros(0, np.int64)  # the words that are under way
        self.step = np.zeros(words, np.int32)  # the number of the instruction that brings each, plus 1, else 0
        self.lane, self.group = np.zeros((2, words), np.int32)  # that it did so for, and the copy's group
        self.data = np.zeros(words, np.uint32)
        self.open_group = np.zeros(machine.geometry.lanes, np.int32)  # the number of each lane's

    def check(self, instruction, lanes, addresses, offsets, size, access):
        """An access to shared memory must not touch what is still on its way."""
        if not len(self.flying):
            return
        words = words_of(offsets, size)
        late = self.step[words] > 0
        where = lambda i: self.machine.shared.where(int(addresses[i]))
        for kind, bad in (("bulk wait", late & (self.group[words] == BULK)), ("cp.async wait", late)):
            text = lambda i, bad=bad: f"{access} {where(i)}, to which {self.under_way(words[i, bad[i].argmax()])}"
            self.machine.fault(kind, instruction, lanes, bad.any(axis=1), text)
            late &= ~bad

    def under_way(self, word):
        """Which copy is under way to a word, and which wait would cover it."""
        lane, location = self.lane[word], self.machine.location(self.step[word] - 1)
        if self.group[word] == BULK:
            return f"the bulk copy of {self.machine.geometry.name(lane)} is under way ({location})"
        text = f"the cp.async of {self.machine.geometry.name(lane)} is under way ({location})"
        later = self.open_group[lane] - self.group[word]
        if not later:
            return f"{text}; it is in no committed group yet"
        return f"{text}; wants cp.async.wait_group {later - 1} or less"

    def start(self, instruction, lanes, words, data, group):
        """Copies of words: lanes, words, data and group go together."""
        shared = self.machine.shared
        shared.rows(np.dtype(np.uint32), 1)[words] = filled(4).view(np.uint32)[0]
        shared.mark(words * 4, 4)  # reading it too early is a fault of its own kind
        self.step[words], self.data[words] = instruction.number + 1, data
        self.lane[words], self.group[words] = lanes, group
        self.flying = np.concatenate([self.flying, words.reshape(-1)])

    def arrive(self, words):
        self.machine.shared.rows(np.dtype(np.uint32), 1)[words] = self.data[words]
        self.step[words] = 0
        self.flying = self.flying[self.step[self.flying] > 0]

    def commit(self, lanes):
        self.open_group[lanes.at] += 1

    def wait(self, lanes, pending):
        """All but the last `pending` committed groups of these lanes arrive."""
        limit = np.full(self.machine.geometry.lanes, -1)  # the first group that may stay under way
        limit[lanes.at] = self.open_group[lanes.at] - pending
        words = self.flying[self.group[self.flying] < limit[self.lane[self.flying]]]
        races = self.machine.shared.races
        races.wrote(races.units(words * 4, 4), self.lane[words][:, None], self.step[words][:, None] - 1)
        self.arrive(words)


# ---- their steps -----------------------------------------------------------------------------------------------------


@builder("cp")
def copy_asynchronously(slots, instruction):
    parts, operands = instruction.parts, instruction.operands
    if parts[:3] == ("cp", "async", "bulk"):
        return copy_box(slots, instruction)
    if parts[:2] != ("cp", "async") or "mbarrier" in parts:
        raise Unknown("is a copy that is not known")
    commit = lambda m: m.copies.commit(m.lanes)
    if "commit_group" in parts:
        return commit
    if "wait_group" in parts or "wait_all" in parts:
        pending = int(operands[0].text, 0) if operands else 0
        wait = lambda m: m.copies.wait(m.lanes, pending)
        return sequence([commit, wait]) if "wait_all" in parts else wait
    _read_modifiers(instruction, ("async",))
    to, source, size, *rest = operands
    size = int(size.text, 0)
    if size not in (4, 8, 16):
        raise Unknown(f"copies {size} bytes, wants 4, 8 or 16")
    target, origin = address_of(slots, to), address_of(slots, source)
    given = slots.source(rest[0], "u32") if rest and not isinstance(rest[0], Address) else None

    def step(m):
        _copy(m, instruction, target(m), origin(m), size, None if given is None else m.get(given))

    return step


def _copy(m, instruction, targets, origins, size, given):
    """given: how many bytes of the source each lane reads; the rest becomes zero."""
    lanes = m.lanes
    bent = origins & size - 1 != 0
    text = lambda i: f"reads {size} bytes at {int(origins[i]):#x}, which is no multiple of {size}"
    m.fault("misaligned", instruction, lanes, bent, text)
    amounts = np.full(lanes.count, size) if given is None else np.minimum(given, size).astype(np.int64)
    data = np.zeros((lanes.count, size), np.uint8)
    for width in (16, 8, 4, 2, 1):  # an amount is a sum of these, the largest first
        here = amounts & width != 0
        if here.any():
            word, first = np.dtype(f"u{min(width, 8)}"), amounts[here] & -2 * width
            count = width // word.itemsize
            found = m.everywhere.access(instruction, lanes.only(here), origins[here] + first, word, count)
            data.view(word).reshape(lanes.count, -1, count)[here, first // width] = np.stack(found, axis=1)
    good = m.shared.good(instruction, lanes, targets, size, WRITE)
    if good is not None:
        lanes, targets, data = lanes.only(good), targets[good], data[good]
    if lanes is not None:
        offsets = m.shared.locate(targets, lanes)
        m.shared.check(instruction, lanes, targets, offsets, size, WRITE)
        groups = m.copies.open_group[lanes.at][:, None]
        m.copies.start(instruction, lanes.index[:, None], words_of(offsets, size), data.view(np.uint32), groups)
