"""What lanes do together, shfl and barriers, and where they wait for one another.

Functions take tables of shape (warps, 32). `members` (bool) names the lanes that take part: active, and in the member
mask. What a lane that is no member gets is without meaning.

Source  PTX ISA: shfl.sync, vote.sync, activemask
"""

import numpy as np

from .array import FILL
from .lanes import BIT, WARP
from .operations import Unknown
from .slots import Gate, builder
from .syntax import Vector

LANE = np.arange(WARP)
POISON = np.array([FILL, FILL]).view(np.uint32)[0]
BARRIERS = ("bar", "barrier")
ALIGNED = ("mma", "ldmatrix", "wgmma")


def gate(slots, instruction):
    """The Gate of a barrier, or of an instruction for which lanes of a warp must meet."""
    root, parts = instruction.parts[0], instruction.parts
    if root in BARRIERS and parts[1:2] != ("warp",):
        return Gate(2, _whole_blocks, lambda m: _complain_of_barrier(m, instruction))
    if root in ALIGNED:
        members = lambda m: np.uint32(0xFFFFFFFF)
    elif "sync" in parts:
        mask = slots.source(instruction.operands[-1], "u32")
        members = lambda m: m.get(mask)
    else:
        raise Unknown("lacks .sync")

    def missing(m):
        """For each lane the lanes that its warp lacks, as bits; of lanes that have ended nothing is expected."""
        geometry, absent = m.geometry, np.zeros(m.geometry.warps * WARP, np.bool_)
        absent[geometry.place] = m.live
        absent[geometry.place[m.at]] = False
        return members(m) & (absent.reshape(-1, WARP) * BIT).sum(axis=1, dtype=np.uint32)[geometry.warp[m.at]]

    def opens(m):
        if m.lanes.whole:
            return None
        warp, waits = m.geometry.warp[m.at], np.zeros(m.geometry.warps, np.bool_)
        waits[warp[missing(m) != 0]] = True
        return ~waits[warp]

    def complain(m):
        lacks = missing(m)
        names = lambda i: ", ".join(str(lane) for lane in range(WARP) if int(lacks[i]) >> lane & 1)
        text = lambda i: f"names lanes of the warp that are not there: {names(i)}"
        m.fault("divergent warp", instruction, m.lanes, lacks != 0, text)

    return Gate(1, opens, complain)


def _whole_blocks(m):
    """Lanes of blocks of which all threads are here."""
    if m.full:
        return None
    block = m.geometry.block_of[m.at]
    return np.bincount(block)[block] == m.geometry.threads


def _complain_of_barrier(m, instruction):
    def text(i):
        others = m.geometry.block_of == m.geometry.block_of[m.lanes.index[i]]
        here, ended, threads = others[m.at].sum(), (others & ~m.live).sum(), m.geometry.threads
        there = f"is reached by {here} of {threads} threads of a block"
        return f"{there}, {threads - here - ended} wait at other barriers, {ended} have ended"

    m.fault("divergent barrier", instruction, m.lanes, np.ones(m.lanes.count, np.bool_), text)


# ---- steps -----------------------------------------------------------------------------------------------------------


def put(m, targets, tables):
    """Write tables of warps to slots; a slot that is None is not wanted."""
    for target, table in zip(targets, tables, strict=False):
        if target is not None:
            m.put(target, m.lanes.from_warps(np.ascontiguousarray(table)))


@builder("shfl")
def shuffle(slots, instruction):
    """Gives the value of the lane that each asks for, and whether that one lies in its segment; else its own.

    b: lane or offset; c: clamp in bits 0-4, segment mask in bits 8-12. A lane gets nothing from one that is not there
    or names other members.
    """
    mode = instruction.parts[2]
    first, *operands = instruction.operands
    destinations = first.elements if isinstance(first, Vector) else (first,)
    targets = [None if d == "_" else slots.target(d, k) for d, k in zip(destinations, ("b32", "pred"), strict=False)]
    sources = [slots.source(operand, "b32") for operand in operands]

    def step(m):
        masks = m.get(sources[-1])
        own = masks >> m.geometry.lane[m.at].astype(np.uint32) & np.uint32(1) != 0
        text = lambda i: f"has the member mask {int(masks[i]):#010x}, which leaves out the lane itself"
        m.fault("divergent warp", instruction, m.lanes, ~own, text)
        value, b, c, masks = (m.lanes.to_warps(m.get(source)).astype(np.int64) for source in sources)
        offset, clamp, segment = b & 31, c & 31, (c >> 8) & 31
        first = LANE & segment
        last = first | (clamp & ~segment)
        asked = {"up": LANE - offset, "down": LANE + offset, "bfly": LANE ^ offset, "idx": first | (offset & ~segment)}
        in_range = asked[mode] >= last if mode == "up" else asked[mode] <= last
        lane = np.where(in_range, asked[mode], LANE)
        members = np.where(m.lanes.to_warps(own, False), masks, -1)
        there = np.take_along_axis(members, lane, axis=1) == members
        put(m, targets, [np.where(there, np.take_along_axis(value, lane, axis=1), POISON), in_range])

    return step


@builder(*BARRIERS)
def barrier(slots, instruction):
    """bar.warp.sync and the barrier of all threads of a block."""
    if instruction.parts[1] == "warp":
        return lambda m: m.shared.races.advance(m.lanes, m.shared.races.since_warp)
    if set(instruction.parts[1:]) - {"cta", "aligned"} != {"sync"} or len(instruction.operands) > 1:
        raise Unknown("is a barrier that is not known")

    def step(m):
        m.counts.barriers += len(np.unique(m.geometry.block_of[m.at]))
        m.shared.races.advance(m.lanes, m.shared.races.since_block, m.shared.races.since_warp)
        if m.asynchronous:
            m.proxy.join(m.lanes)

    return step
