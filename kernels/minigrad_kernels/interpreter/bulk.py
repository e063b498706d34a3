"""mbarriers, phases that end when all have arrived and all bytes have come; and bulk copies, whose bytes these are.

cp.async.bulk.tensor brings boxes of matrices to shared memory, as tensor maps say. What a box has outside of its matrix
is zero; it counts among the bytes. A copy arrives when somebody waits for its mbarrier, and not before.

Source  PTX ISA: mbarrier, cp.async.bulk.tensor, fence.proxy
"""

from dataclasses import dataclass, field

import numpy as np

from . import tensor_map
from .lanes import Repeated
from .memory import ATOMIC, WRITE
from .operations import Unknown
from .program import SHARED_START
from .proxy import MOST
from .slots import Gate, address_of, builder, nothing
from .warpgroup import swizzled

BULK = np.iinfo(np.int32).max  # the group of bulk copies among those of cp.async: nobody waits for it
SIZE, ALIGNMENT = 8, 128  # bytes of an mbarrier; what a box in shared memory begins at multiples of


@dataclass
class Barrier:
    """phases: how many are over; pending and missing: arrivals and bytes that the one under way lacks.

    column  its place in what warps have seen; gathered: what those have seen who arrived for this phase; told: what
            those get to know who wait for the last one
    copies  bulk copies under way to it; lane, made: who made it, and when
    """

    count: int
    pending: int
    column: int
    lane: int
    made: int
    gathered: np.ndarray
    told: np.ndarray
    phases: int = 0
    missing: int = 0
    copies: list = field(default_factory=list)

    def settle(self):
        """The phase is over if nothing is lacking."""
        if not self.pending and not self.missing:
            self.phases += 1
            self.pending = self.count
            np.maximum(self.told, self.gathered, out=self.told)
            self.told[self.column] = self.phases


@dataclass
class Copy:
    """words: where its bytes go, in 32 bits; column, phase: of the mbarrier, when it has come."""

    words: np.ndarray
    size: int
    column: int
    number: int  # among all copies
    phase: int = 0


# ---- mbarriers -------------------------------------------------------------------------------------------------------


@builder("mbarrier")
def mbarrier(slots, instruction):
    """mbarrier.init, and arrive, also with expect_tx; try_wait, which has waited by now."""
    kind, *more = instruction.parts[1:]
    operands = list(instruction.operands)
    if kind == "try_wait":
        result = slots.target(operands[0], "pred")
        return lambda m: m.put(result, True)
    if kind not in ("init", "arrive") or set(more) - {"shared", "shared::cta", "b64", "release", "cta", "expect_tx"}:
        raise Unknown("is a form that is not known")
    if kind == "arrive" and operands.pop(0) != "_":
        raise Unknown("gives a state, which is not known")
    expects = "expect_tx" in more
    place, *amounts = operands
    if len(amounts) != (kind == "init" or expects):
        raise Unknown("counts arrivals, which is not known")
    address = address_of(slots, place)
    amount = slots.source(amounts[0], "u32") if amounts else None

    def step(m):
        numbers = np.zeros(m.lanes.count, np.int64) if amount is None else m.get(amount).astype(np.int64)
        if kind == "init":
            return _make(m, instruction, address(m), numbers)
        found = _find(m, instruction, m.lanes, address(m))
        for lane, barrier, number in zip(m.lanes.index, found, numbers.tolist(), strict=True):
            if barrier is not None:
                barrier.missing += number
                _arrive(m, instruction, lane, barrier)
        return None

    return step


def _make(m, instruction, addresses, counts):
    if m.shared.good(instruction, m.lanes, addresses, SIZE, WRITE) is not None:
        return
    m.shared.access(instruction, m.lanes, addresses, np.dtype(np.uint64), 1, [np.zeros(m.lanes.count, np.uint64)])
    own = m.geometry.warps_per_block
    offsets = m.shared.locate(addresses, m.lanes)
    for lane, offset, count in zip(m.lanes.index, offsets.tolist(), counts.tolist(), strict=True):
        block = m.geometry.block_of[lane]
        column = own + sum(key // m.shared.stride == block for key in m.proxy.barriers)
        if column == own + MOST:
            raise instruction.error(f"makes more than {MOST} mbarriers in a block, which is not known")
        nobody = np.zeros((2, own + MOST), np.int32)
        m.proxy.barriers[offset] = Barrier(count, count, column, int(lane), m.shared.races.clock, *nobody)


def _find(m, instruction, lanes, addresses):
    """The Barrier at each address; None, and a fault, where nobody has made one."""
    if m.shared.good(instruction, lanes, addresses, SIZE, ATOMIC) is not None:
        return [None] * lanes.count
    offsets = m.shared.locate(addresses, lanes)
    m.shared.check_races(instruction, lanes, addresses, offsets, SIZE, ATOMIC)
    found = [m.proxy.barriers.get(offset) for offset in offsets.tolist()]
    none = np.array([barrier is None for barrier in found])
    why = ": nobody made one with mbarrier.init"
    m.shared.tell("mbarrier", instruction, lanes, addresses, none, "has no mbarrier at", why)
    return found


def _arrive(m, instruction, lane, barrier):
    if not barrier.pending:
        text = lambda i: f"is one arrival too many for the phase of an mbarrier made for {barrier.count}"
        m.fault("mbarrier", instruction, m.lanes, m.lanes.index == lane, text)
        return
    np.maximum(barrier.gathered, m.proxy.seen[m.geometry.warp[lane]], out=barrier.gathered)
    barrier.pending -= 1
    barrier.settle()


def phase_gate(slots, instruction):
    """The Gate of mbarrier.try_wait: lanes wait until their phase is over."""
    if instruction.parts[1] != "try_wait":
        return None
    if instruction.parts[2] != "parity" or len(instruction.operands) != 3:
        raise Unknown("is a form that is not known")
    _, place, parity = instruction.operands
    address, wanted = address_of(slots, place), slots.source(parity, "u32")

    def opens(m):
        over, parities = np.ones(m.lanes.count, np.bool_), m.get(wanted) & 1
        for i, barrier in enumerate(_find(m, instruction, m.lanes, address(m))):
            if barrier is None:
                continue
            if barrier.phases & 1 == parities[i]:  # not over: what is under way arrives now, and not before
                for copy in barrier.copies:
                    m.proxy.arrive(copy, barrier)
                barrier.copies.clear()
            over[i] = barrier.phases & 1 != parities[i]
            if over[i]:
                warp = m.geometry.warp[m.lanes.index[i]]
                np.maximum(m.proxy.seen[warp], barrier.told, out=m.proxy.seen[warp])
        return over

    def complain(m):
        text = lambda i: _lacking(m, int(address(m)[i]), m.lanes.index[i])
        m.fault("mbarrier wait", instruction, m.lanes, np.ones(m.lanes.count, np.bool_), text)

    return Gate(0, opens, complain)


def _lacking(m, address, lane):
    """What the phase that a lane waits for lacks, in words."""
    barrier = m.proxy.barriers[int(address + m.geometry.block_of[lane] * m.shared.stride - SHARED_START)]
    return (
        f"waits for ever for the mbarrier at {m.shared.where(address)}: {barrier.phases} phases are over, the next one "
        f"lacks {barrier.pending} arrivals and {barrier.missing} bytes"
    )


# ---- fences and copies -----------------------------------------------------------------------------------------------


@builder("fence")
def fence(slots, instruction):
    """fence.proxy of the asynchronous kind, and of tensor maps; also for mbarriers that were just made."""
    parts = instruction.parts
    if parts[1] == "mbarrier_init" or parts[1:3] == ("proxy", "async"):
        return lambda m: m.shared.races.advance(m.lanes, m.shared.races.since_fence)
    if parts[1:2] != ("proxy",) or "acquire" not in parts:
        return nothing
    address = address_of(slots, instruction.operands[0])

    def acquire(m):
        m.proxy.maps.update(zip(m.lanes.index.tolist(), address(m).tolist(), strict=True))

    return acquire


def copy_box(slots, instruction):
    if instruction.parts[2:] != ("bulk", "tensor", "2d", "shared::cluster", "global", "mbarrier::complete_tx::bytes"):
        raise Unknown("is a copy that is not known")
    to, cell, barrier = instruction.operands
    target, map_at, gate = (address_of(slots, operand) for operand in (to, cell, barrier))
    places = [slots.source(operand, "s32") for operand in cell.place]
    if len(places) != 2:
        raise Unknown("has no two coordinates, which is not known")

    def step(m):
        whole = m.lanes
        column, row = (m.get(slot).astype(np.int64) for slot in places)
        barriers = _find(m, instruction, whole, gate(m))
        values = zip(target(m).tolist(), map_at(m).tolist(), barriers, row.tolist(), column.tolist(), strict=True)
        for i, (to, address, barrier, *place) in enumerate(values):
            if barrier is not None:
                m.enter(whole.only(np.arange(whole.count) == i))
                _copy(m, instruction, to, address, barrier, *place)
        m.enter(whole)

    return step


def _copy(m, instruction, to, address, barrier, row, column):
    """The copy of the one lane that executes."""
    lanes, shared, one = m.lanes, m.shared, np.ones(1, np.bool_)
    fault = lambda kind, text: m.fault(kind, instruction, lanes, one, lambda i: text)
    words = [
        m.everywhere.access(instruction, lanes, np.array([address + 16 * i]), np.dtype(np.uint64), 2) for i in range(8)
    ]
    map_ = tensor_map.decode(np.concatenate([part for pair in words for part in pair]))
    if map_ is None or address % 64:
        return fault("tensor map", f"has no tensor map at {address:#x}, a multiple of 64")
    if (int(lanes.index[0]), address) not in m.proxy.maps:
        fault("proxy fence", "reads a tensor map in global memory that fence.proxy.tensormap has not acquired before")
    if shared.races.since_fence[barrier.lane] <= barrier.made:
        fault("proxy fence", "uses an mbarrier whose maker has executed no fence.proxy.async since")
    width = map_.box_columns * map_.size
    where = f"at {shared.where(to)}"
    if to % ALIGNMENT:
        return fault("misaligned", f"writes {where}, which is no multiple of {ALIGNMENT}")
    if shared.outside(np.array([to]), map_.box_rows * width).any():
        return fault("out of bounds", f"writes {map_.box_rows * width} bytes {where}")
    data = _read(m, instruction, map_, row, column)
    lines = np.arange(map_.box_rows)[:, None] * width
    words = shared.locate(swizzled(to + lines + np.arange(0, width, 4)).reshape(-1), lanes) // 4
    if (m.copies.step[words] > 0).any():
        fault("bulk wait", f"writes {where}, to which another copy is under way")
    if m.proxy.still_read(m.geometry.warp[lanes.at], words[None]).any():
        fault("wgmma wait", f"writes {where}, which a product may still read")
    copy = Copy(words, data.nbytes, barrier.column, len(m.proxy.copies))
    barrier.copies.append(copy)
    m.proxy.copies.append(copy)
    m.copies.start(instruction, lanes.index[0], words, data.reshape(-1).view(np.uint32), BULK)
    return None


def _read(m, instruction, map_, row, column):
    """The box (rows, bytes) of a matrix that begins at that row and column."""
    data = np.zeros((map_.box_rows, map_.box_columns * map_.size), np.uint8)
    first, end = max(column, 0), min(column + map_.box_columns, map_.columns)
    rows = np.arange(max(row, 0), min(row + map_.box_rows, map_.rows))
    if end <= first or not len(rows):
        return data
    addresses, size = map_.address + rows * map_.stride + first * map_.size, (end - first) * map_.size
    width = map_.size if size % 4 or (addresses % 4).any() else 4
    places = addresses[:, None] + np.arange(0, size, width)
    lanes = Repeated(m.lanes, places.shape)
    (found,) = m.everywhere.access(instruction, lanes, places.reshape(-1), np.dtype(f"u{width}"), 1)
    at = (first - column) * map_.size
    data[rows - row, at : at + size] = found.view(np.uint8).reshape(len(rows), size)
    return data
