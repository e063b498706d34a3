"""What the lanes of a warp do together: shfl, vote, match, redux, elect, activemask, bar.warp.sync.

Functions take tables of shape (warps, 32). `members` (bool) names the lanes that take part: active, and in the member
mask. What a lane that is no member gets is without meaning.

Source  PTX ISA: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync
"""

import numpy as np

from .array import FILL
from .lanes import BIT, WARP
from .operations import Unknown
from .slots import builder
from .syntax import Vector

__all__ = ["members_of", "put"]

LANE = np.arange(WARP)
POISON = np.array([FILL, FILL]).view(np.uint32)[0]
TOGETHER = ("shfl", "vote", "match", "redux", "elect")
ALIGNED = ("mma", "ldmatrix", "wgmma")


def members_of(slots, instruction):
    """A function that gives, for each lane that executes it, the lanes that must meet, as bits; None if none must."""
    root, parts = instruction.parts[0], instruction.parts
    if root in ALIGNED:
        return lambda m: np.full(m.lanes.count, 0xFFFFFFFF, np.uint32)
    if root not in TOGETHER and parts[:3] != ("bar", "warp", "sync"):
        return None
    if "sync" not in parts:
        raise Unknown("lacks .sync")
    mask = slots.source(instruction.operands[-1], "u32")
    return lambda m: m.get(mask)


# ---- functions of tables ---------------------------------------------------------------------------------------------


def _source_lane(mode, b, c):
    """The lane that each lane reads in a shuffle, and whether the one that it asked for lies in its segment.

    b: lane or offset; c: clamp in bits 0-4, segment mask in bits 8-12
    """
    b, c = b.astype(np.int64), c.astype(np.int64)
    offset, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    first = LANE & segment
    last = first | (clamp & ~segment)
    lane = {"up": LANE - offset, "down": LANE + offset, "bfly": LANE ^ offset, "idx": first | (offset & ~segment)}[mode]
    in_range = lane >= last if mode == "up" else lane <= last
    return np.where(in_range, lane, LANE), in_range


def _shuffle(mode):
    def function(members, value, b, c):
        lane, in_range = _source_lane(mode, b, c)
        there = np.take_along_axis(members, lane, axis=1)
        return np.where(there, np.take_along_axis(value, lane, axis=1), POISON), in_range

    return function


def _mask(lanes):
    """Bit l of every lane's number is lane l."""
    masks = np.where(lanes, BIT, np.uint32(0)).sum(axis=1, keepdims=True, dtype=np.uint32)
    return np.broadcast_to(masks, lanes.shape)


def _every(held):
    return held.all(axis=1, keepdims=True)


VOTES = {
    "all": lambda members, p: _every(p | ~members),
    "any": lambda members, p: ~_every(~p | ~members),
    "uni": lambda members, p: _every(p | ~members) | _every(~p | ~members),
    "ballot": lambda members, p: _mask(p & members),
}


def _match_any(members, value):
    """For each lane the mask of the members that hold its value."""
    equal = (value[:, :, None] == value[:, None, :]) & members[:, None, :]
    return np.where(equal, BIT, np.uint32(0)).sum(axis=2, dtype=np.uint32)


def _match_all(members, value):
    """The mask of all members and True where all of them hold one value, else 0 and False."""
    first = np.take_along_axis(value, members.argmax(axis=1)[:, None], axis=1)
    same = np.broadcast_to(_every((value == first) | ~members), members.shape)
    return np.where(same, _mask(members), np.uint32(0)), same


REDUCTIONS = {  # the function, and what changes nothing, of a type's limits
    "add": (np.add, lambda limits: 0),
    "min": (np.minimum, lambda limits: limits.max),
    "max": (np.maximum, lambda limits: limits.min),
    "and": (np.bitwise_and, lambda limits: -1 if limits.min else limits.max),
    "or": (np.bitwise_or, lambda limits: 0),
    "xor": (np.bitwise_xor, lambda limits: 0),
}


def _reduce(name):
    combine, neutral = REDUCTIONS[name]

    def function(members, value):
        values = np.where(members, value, value.dtype.type(neutral(np.iinfo(value.dtype))))
        return combine.reduce(values, axis=1, keepdims=True, dtype=value.dtype)

    return function


def _elect(members):
    first = members.argmax(axis=1)[:, None]
    return np.broadcast_to(first, members.shape).astype(np.uint32), first == LANE


def _rule(root, parts):
    """(types of the results, types of the sources, function) of an instruction."""
    if root == "shfl":
        return ("b32", "pred"), ["b32"] * 3, _shuffle(parts[2])
    if root == "vote":
        return ("b32" if parts[2] == "ballot" else "pred",), ["pred"], VOTES[parts[2]]
    if root == "match":
        return ("b32", "pred"), [parts[-1]], {"any": _match_any, "all": _match_all}[parts[1]]
    if root == "redux":
        kind = {"b32": "u32", "u32": "u32", "s32": "s32"}[parts[3]]
        return (kind,), [kind], _reduce(parts[2])
    return ("b32", "pred"), [], _elect


# ---- steps -----------------------------------------------------------------------------------------------------------


def put(m, targets, tables):
    """Write tables of warps to slots; a slot that is None is not wanted."""
    for target, table in zip(targets, tables, strict=False):
        if target is not None:
            m.put(target, m.lanes.from_warps(np.ascontiguousarray(table)))


@builder(*TOGETHER)
def together(slots, instruction):
    """Each group of lanes with one member mask is served by itself."""
    kinds, wanted, function = _rule(instruction.parts[0], instruction.parts)
    first, *operands, members = instruction.operands
    destinations = first.elements if isinstance(first, Vector) else (first,)
    targets = [None if d == "_" else slots.target(d, kind) for d, kind in zip(destinations, kinds, strict=False)]
    mask = slots.source(members, "u32")
    sources = [slots.reader(operand, kind) for operand, kind in zip(operands, wanted, strict=True)]

    def step(m):
        tables = [m.lanes.to_warps(read(m)) for read in sources]
        masks = m.get(mask)
        own = masks >> m.geometry.lane[m.at].astype(np.uint32) & np.uint32(1) != 0
        if not own.all():
            text = lambda i: f"has the member mask {int(masks[i]):#010x}, which leaves out the lane itself"
            m.fault("divergent warp", instruction, m.lanes, ~own, text)
        results = None
        for value in np.unique(masks):
            here = m.lanes.to_warps((masks == value) & own, False)
            found = function(here, *tables)
            found = found if isinstance(found, tuple) else (found,)
            found = [np.broadcast_to(table, here.shape) for table in found]
            results = [np.where(here, *pair) for pair in zip(found, results or found, strict=True)]
        put(m, targets, results)

    return step


@builder("activemask")
def active_mask(slots, instruction):
    target = slots.target(instruction.operands[0], "b32")
    return lambda m: put(m, [target], [_mask(m.lanes.to_warps(np.ones(m.lanes.count, np.bool_), False))])


@builder("bar")
def warp_barrier(slots, instruction):
    return lambda m: m.shared.races.advance(m.lanes, m.shared.races.since_warp)
