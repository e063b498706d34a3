"""Instructions of whole warps: shfl, vote, match, redux, elect, activemask, bar.warp.sync, mma, ldmatrix, stmatrix."""

from collections.abc import Callable

import numpy as np

from . import tensor_core, warp
from .array import FILL
from .lanes import WARP
from .operations import Unknown
from .steps import address_of
from .syntax import Pair

__all__ = ["COLLECTIVE", "members_of"]

COLLECTIVE: dict[str, Callable] = {}
POISON = np.array([FILL, FILL]).view(np.uint32)[0]


def collective(*names):
    def enter(build):
        for name in names:
            COLLECTIVE[name] = build
        return build

    return enter


def members_of(slots, instruction):
    """A function that gives, for each lane that executes it, the lanes that must meet, as bits; None if none must."""
    root, parts = instruction.parts[0], instruction.parts
    if root in ("mma", "ldmatrix", "stmatrix", "movmatrix", "wgmma"):
        return lambda m: np.full(m.lanes.count, 0xFFFFFFFF, np.uint32)
    if parts[:3] == ("bar", "warp", "sync"):
        mask = slots.source(instruction.operands[0], "u32")
    elif root in ("shfl", "vote", "match", "redux", "elect"):
        if "sync" not in parts:
            raise Unknown("lacks .sync")
        mask = slots.source(instruction.operands[-1], "u32")
    else:
        return None
    return lambda m: m.get(mask)


def _destinations(operand):
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, "_")


def _targets(slots, operand, *kinds):
    """Slots of one destination or of a pair; None for those that are not wanted."""
    return [
        None if part == "_" else slots.target(part, kind)
        for part, kind in zip(_destinations(operand), kinds, strict=False)
    ]


def _put(m, targets, tables):
    for target, table in zip(targets, tables, strict=False):
        if target is not None:
            m.put(target, m.lanes.from_warps(np.ascontiguousarray(table)))


def _by_mask(m, instruction, mask):
    """For each member mask among the lanes that execute: the table (warps, 32) of those that take part with it."""
    masks = m.get(mask)
    own = masks >> m.geometry.lane[m.at].astype(np.uint32) & np.uint32(1) != 0
    if not own.all():
        text = lambda i: f"has the member mask {int(masks[i]):#010x}, which leaves out the lane itself"
        m.fault("divergent warp", instruction, m.lanes, ~own, text)
    for value in np.unique(masks):
        yield m.lanes.to_warps((masks == value) & own, False)


def _per_group(slots, instruction, kinds, function, sources):
    """A step that calls function(members, *tables of the sources) for each group of lanes with one member mask."""
    targets = _targets(slots, instruction.operands[0], *kinds)
    mask = slots.source(instruction.operands[-1], "u32")

    def step(m):
        tables = [m.lanes.to_warps(read(m)) for read in sources]
        results = None
        for members in _by_mask(m, instruction, mask):
            found = function(members, *tables)
            if results is None:
                results = [np.array(table) for table in found]
            else:
                for result, table in zip(results, found, strict=True):
                    result[members] = table[members]
        _put(m, targets, results)

    return step


def _known(part, names):
    if part not in names:
        raise Unknown(f"has .{part}, which is not known")
    return part


def _predicate(slots, operand):
    slot, negated = slots.predicate(operand)
    return lambda m: ~m.get(slot) if negated else m.get(slot)


def _value(slots, operand, kind):
    slot = slots.source(operand, kind)
    return lambda m: m.get(slot)


@collective("shfl")
def shuffle(slots, instruction):
    mode = _known(instruction.parts[2], ("up", "down", "bfly", "idx"))
    _, value, b, c, _ = instruction.operands

    def function(members, value, b, c):
        found, in_range = warp.shuffle(mode, value, b, c)
        there, _ = warp.shuffle(mode, members, b, c)
        return np.where(there, found, POISON), in_range

    sources = [_value(slots, operand, "b32") for operand in (value, b, c)]
    return _per_group(slots, instruction, ("b32", "pred"), function, sources)


@collective("vote")
def vote(slots, instruction):
    mode = _known(instruction.parts[2], ("all", "any", "uni", "ballot"))
    function = lambda members, predicate: (warp.vote(mode, predicate, members),)
    sources = [_predicate(slots, instruction.operands[1])]
    return _per_group(slots, instruction, ("b32" if mode == "ballot" else "pred",), function, sources)


@collective("match")
def match(slots, instruction):
    kind = instruction.parts[-1]
    if _known(instruction.parts[1], ("any", "all")) == "any":
        function = lambda members, value: (warp.match_any(value, members),)
    else:
        function = lambda members, value: warp.match_all(value, members)
    return _per_group(slots, instruction, ("b32", "pred"), function, [_value(slots, instruction.operands[1], kind)])


@collective("redux")
def redux(slots, instruction):
    _, _, name, kind = instruction.parts
    _known(name, ("add", "min", "max", "and", "or", "xor"))
    _known(kind, ("u32", "s32", "b32"))
    function = lambda members, value: (warp.redux(name, value, members),)
    kind = "u32" if kind == "b32" else kind
    return _per_group(slots, instruction, (kind,), function, [_value(slots, instruction.operands[1], kind)])


@collective("elect")
def elect(slots, instruction):
    def function(members):
        first = members.argmax(axis=1)[:, None]
        return np.broadcast_to(first, members.shape).astype(np.uint32), np.arange(WARP) == first

    return _per_group(slots, instruction, ("b32", "pred"), function, [])


@collective("activemask")
def active_mask(slots, instruction):
    target = slots.target(instruction.operands[0], "b32")

    def step(m):
        here = m.lanes.to_warps(np.ones(m.lanes.count, np.bool_), False)
        _put(m, [target], [warp.vote("ballot", here, here)])

    return step


@collective("bar")
def warp_barrier(slots, instruction):
    return lambda m: m.shared.races.warp_barrier(m.lanes)


@collective("mma")
def multiply_matrices(slots, instruction):
    parts = instruction.parts
    if parts[1:3] != ("sync", "aligned") or parts[4:6] != ("row", "col") or len(parts) != 10:
        raise Unknown("is a matrix product that is not known")
    shape, (d_type, a_type, b_type, c_type) = parts[3], parts[6:]
    _, shapes, results = tensor_core.TYPES[a_type]
    if c_type != d_type or b_type != a_type or shape not in shapes or d_type not in results:
        raise Unknown("has a shape or types that are not known")
    register = {"f32": "f32", "f64": "f64", "f16": "b32"}[d_type]
    inputs = "f64" if a_type == "f64" else "b32"
    d, *sources = instruction.operands
    targets = [slots.target(element, register) for element in d.elements]
    kinds = (inputs, inputs, register)
    reads = [[slots.source(e, kind) for e in operand.elements] for operand, kind in zip(sources, kinds, strict=True)]

    def step(m):
        a, b, c = ([m.lanes.to_warps(m.get(slot)) for slot in operand] for operand in reads)
        _put(m, targets, tensor_core.mma(shape, a_type, b_type, d_type, a, b, c))

    return step


def _matrices(instruction):
    """(number of matrices, whether they are transposed)"""
    parts = instruction.parts
    count = next((int(part[1]) for part in parts if part in ("x1", "x2", "x4")), None)
    known = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    if count is None or set(parts[1:]) - known or "m8n8" not in parts or parts[-1] != "b16":
        raise Unknown("is a form that is not known")
    return count, "trans" in parts


@collective("ldmatrix")
def load_matrices(slots, instruction):
    count, transposed = _matrices(instruction)
    destination, place = instruction.operands
    targets = [slots.target(element, "b32") for element in destination.elements]
    address = address_of(slots, place)

    def step(m):
        giving = m.geometry.lane[m.at] < 8 * count  # the lanes whose addresses count
        lanes = m.lanes.only(giving)
        pairs = m.shared.load(instruction, lanes, address(m)[giving], np.dtype(np.uint64), 2)
        rows = np.zeros((m.lanes.count, 2), np.uint64)
        rows[giving] = np.stack(pairs, axis=1)
        tables = [m.lanes.to_warps(rows[:, i]) for i in range(2)]
        halves = np.stack(tables, axis=2).view(np.uint16)
        _put(m, targets, tensor_core.ldmatrix(halves, count, transposed))

    return step


@collective("stmatrix")
def store_matrices(slots, instruction):
    count, transposed = _matrices(instruction)
    place, source = instruction.operands
    sources = [slots.source(element, "b32") for element in source.elements]
    address = address_of(slots, place)

    def step(m):
        tables = [m.lanes.to_warps(m.get(slot)) for slot in sources]
        rows = np.zeros((m.lanes.warps, WARP, 8), np.uint16)
        rows[:, : 8 * count] = tensor_core.stmatrix(tables, transposed)
        taking = m.geometry.lane[m.at] < 8 * count
        wide = rows.view(np.uint64)
        pairs = [m.lanes.from_warps(np.ascontiguousarray(wide[:, :, i]))[taking] for i in range(2)]
        m.shared.store(instruction, m.lanes.only(taking), address(m)[taking], pairs, np.dtype(np.uint64))

    return step


@collective("movmatrix")
def move_matrix(slots, instruction):
    if instruction.parts[1:] != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise Unknown("is a form that is not known")
    target, source = instruction.operands
    to, slot = slots.target(target, "b32"), slots.source(source, "b32")
    return lambda m: _put(m, [to], [tensor_core.movmatrix(m.lanes.to_warps(m.get(slot)))])
