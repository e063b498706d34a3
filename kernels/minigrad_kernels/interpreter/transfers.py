"""Instructions that move data between registers and memory: mov, ld, st, atom, red, cp.async."""

from collections.abc import Callable

import numpy as np

from .bulk import copy_box
from .operations import DTYPES, Unknown
from .steps import address_of, copy, sequence
from .syntax import Address, Symbol, Vector

__all__ = ["TRANSFERS"]

MEMORIES = {"global": "everywhere", "const": "everywhere", "shared": "shared", "local": "local", "param": "local"}
HINTS = tuple(
    "weak volatile relaxed acquire release acq_rel nc cta cluster gpu sys ca cg cs lu cv wb wt noftz unified".split()
)
TRANSFERS: dict[str, Callable] = {}


def transfer(*names):
    def enter(build):
        for name in names:
            TRANSFERS[name] = build
        return build

    return enter


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


@transfer("ld", "ldu")
def load(slots, instruction):
    space, count, kind, _ = _read_modifiers(instruction)
    destination, place = instruction.operands[:2]
    if isinstance(place.base, Symbol) and place.base.space == "kernel":
        targets = [slots.target(element, kind) for element in _elements(destination, count)]
        size = np.dtype(DTYPES[kind]).itemsize
        offset = place.offset + place.base.offset
        moves = [
            copy(target, slots.parameter(place.base.address, kind, offset + i * size))
            for i, target in enumerate(targets)
        ]
        return sequence(moves)
    dtype = np.dtype(DTYPES[kind])
    address = address_of(slots, place)
    targets = [element != "_" and slots.target(element, kind) for element in _elements(destination, count)]

    def step(m):
        values = getattr(m, space).load(instruction, m.lanes, address(m), dtype, count)
        r, at = m.r, m.at
        for target, value in zip(targets, values, strict=True):
            if target is not False:
                r[target][at] = value

    return step


@transfer("st")
def store(slots, instruction):
    space, count, kind, _ = _read_modifiers(instruction)
    place, source = instruction.operands
    dtype = np.dtype(DTYPES[kind])
    address = address_of(slots, place)
    sources = [slots.source(element, kind) for element in _elements(source, count)]

    def step(m):
        r, at = m.r, m.at
        getattr(m, space).store(instruction, m.lanes, address(m), [r[source][at] for source in sources], dtype)

    return step


@transfer("mov")
def move(slots, instruction):
    """Between registers; or a register and its parts, the lowest first."""
    kind = instruction.parts[-1]
    target, source = instruction.operands
    if isinstance(target, Vector):
        part = _part(kind, target)
        moves = [
            copy(slots.target(element, part), slots.source(source, part, i))
            for i, element in enumerate(target.elements)
            if element != "_"
        ]
    elif isinstance(source, Vector):
        part = _part(kind, source)
        moves = [
            copy(slots.target(target, part, i), slots.source(element, part))
            for i, element in enumerate(source.elements)
        ]
    else:
        return copy(slots.target(target, kind), slots.source(source, kind))
    return sequence(moves)


def _part(kind, vector):
    return f"b{np.dtype(DTYPES[kind]).itemsize * 8 // len(vector.elements)}"


# ---- atomic operations -------------------------------------------------------------------------------------------


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


@transfer("atom", "red")
def atomic(slots, instruction):
    space, count, kind, (name,) = _read_modifiers(instruction, ATOMIC)
    if count != 1 or kind in ("f16x2", "bf16x2", "bf16"):
        raise Unknown("is an atomic operation that is not known")
    operands = instruction.operands
    destination = operands[0] if instruction.parts[0] == "atom" else "_"
    place, *values = operands[instruction.parts[0] == "atom" :]
    dtype = np.dtype(DTYPES[kind])
    address = address_of(slots, place)
    target = None if destination == "_" else slots.target(destination, kind)
    sources = [slots.source(value, kind) for value in values]
    function = ATOMIC[name]

    def step(m):
        arrays = [m.get(source) for source in sources]
        change = lambda i, old: function(old, *(array[i] for array in arrays))
        old = getattr(m, space).update(instruction, m.lanes, address(m), dtype, change)
        if target is not None:
            m.put(target, old)

    return step


# ---- asynchronous copies -----------------------------------------------------------------------------------------


@transfer("cp")
def copy_asynchronously(slots, instruction):
    parts = instruction.parts
    if parts[:3] == ("cp", "async", "bulk"):
        return copy_box(slots, instruction)
    if parts[:2] != ("cp", "async") or "mbarrier" in parts:
        raise Unknown("is a copy that is not known")
    if "commit_group" in parts:
        return lambda m: m.copies.commit(m.lanes)
    if "wait_all" in parts:

        def wait_all(m):
            m.copies.commit(m.lanes)
            m.copies.wait(instruction, m.lanes, 0)

        return wait_all
    if "wait_group" in parts:
        pending = int(instruction.operands[0].text, 0)
        return lambda m: m.copies.wait(instruction, m.lanes, pending)
    _read_modifiers(instruction, ("async",))
    to, source, size, *rest = instruction.operands
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
    if bent.any():
        text = lambda i: f"reads {size} bytes at {int(origins[i]):#x}, which is no multiple of {size}"
        m.fault("misaligned", instruction, lanes, bent, text)
    amounts = np.full(lanes.count, size) if given is None else np.minimum(given, size).astype(np.int64)
    data = np.zeros((lanes.count, size), np.uint8)
    for amount in np.unique(amounts):
        here, first = amounts == amount, 0
        for width in (16, 8, 4, 2, 1):
            if amount - first >= width:
                found = _read_bytes(m, instruction, lanes.only(here), origins[here] + first, width)
                data[here, first : first + width] = found
                first += width
    good = m.shared.good(instruction, lanes, targets, size, "writes")
    if good is not None:
        lanes, targets, data = lanes.only(good), targets[good], data[good]
    if lanes is not None:
        offsets = m.shared.locate(targets, lanes)
        m.shared.check(instruction, lanes, targets, offsets, size, "writes")
        m.copies.start(instruction, lanes, offsets, data.view(np.uint32))


def _read_bytes(m, instruction, lanes, origins, amount):
    width = min(amount, 8)
    found = m.everywhere.load(instruction, lanes, origins, np.dtype(f"u{width}"), amount // width)
    return np.stack(found, axis=1).view(np.uint8)
