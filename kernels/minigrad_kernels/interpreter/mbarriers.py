"""mbarriers: phases that end when all have arrived and all bytes have come; threads that wait for them stand still."""

from dataclasses import dataclass, field

import numpy as np

from .access import ATOMIC, WRITE
from .names import SHARED_START
from .operations import Unknown
from .proxy import MOST
from .steps import address_of

__all__ = ["Barrier", "expected", "find", "mbarrier", "waiting"]

SIZE = 8


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


def mbarrier(slots, instruction):
    """mbarrier.init, expect_tx and arrive, also with expect_tx; try_wait is `waiting`."""
    kind, *more = instruction.parts[1:]
    known = {"shared", "shared::cta", "b64", "release", "relaxed", "cta", "expect_tx"}
    if kind not in ("init", "arrive", "expect_tx") or set(more) - known:
        raise Unknown("is a form that is not known")
    operands = list(instruction.operands)
    if kind == "arrive" and operands.pop(0) != "_":
        raise Unknown("gives a state, which is not known")
    place, *amounts = operands
    address = address_of(slots, place)
    amount = slots.source(amounts[0], "u32") if amounts else None
    arrives, expects = kind == "arrive", "expect_tx" in (kind, *more)

    def step(m):
        numbers = np.ones(m.lanes.count, np.int64) if amount is None else m.get(amount).astype(np.int64)
        if kind == "init":
            return _make(m, instruction, address(m), numbers)
        for lane, barrier, number in zip(
            m.lanes.index, find(m, instruction, m.lanes, address(m)), numbers, strict=True
        ):
            if barrier is not None:
                _arrive(m, instruction, lane, barrier, number if expects else 0, 1 if expects else number, arrives)
        return None

    return step


def _make(m, instruction, addresses, counts):
    m.proxy.begin()
    zeros = np.zeros(m.lanes.count, np.uint64)
    if m.shared.good(instruction, m.lanes, addresses, SIZE, WRITE) is not None:
        return
    m.shared.store(instruction, m.lanes, addresses, [zeros], np.dtype(np.uint64))
    own = m.geometry.warps_per_block
    offsets = m.shared.locate(addresses, m.lanes)
    for lane, offset, count in zip(m.lanes.index, offsets.tolist(), counts.tolist(), strict=True):
        block = m.geometry.block_of[lane]
        column = own + sum(key // m.shared.stride == block for key in m.proxy.barriers)
        if column == own + MOST:
            raise instruction.error(f"makes more than {MOST} mbarriers in a block, which is not known")
        nobody = np.zeros(own + MOST, np.int32)
        made = m.shared.races.clock
        m.proxy.barriers[offset] = Barrier(count, count, column, int(lane), made, nobody, nobody.copy())


def find(m, instruction, lanes, addresses):
    """The Barrier at each address; None, and a fault, where nobody has made one."""
    good = m.shared.good(instruction, lanes, addresses, SIZE, ATOMIC)
    if good is not None:
        return [None] * lanes.count
    m.proxy.begin()
    offsets = m.shared.locate(addresses, lanes)
    m.shared.check_races(instruction, lanes, addresses, offsets, SIZE, ATOMIC)
    found = [m.proxy.barriers.get(offset) for offset in offsets.tolist()]
    none = np.array([barrier is None for barrier in found])
    if none.any():
        text = lambda i: f"has no mbarrier at {m.shared.where(int(addresses[i]))}: nobody made one with mbarrier.init"
        m.fault("mbarrier", instruction, lanes, none, text)
    return found


def _arrive(m, instruction, lane, barrier, expected, arrivals, arrives):
    barrier.missing += int(expected)
    if not arrives:
        return
    if barrier.pending < arrivals:
        bad = m.lanes.index == lane
        text = lambda i: f"is one arrival too many for the phase of an mbarrier made for {barrier.count}"
        m.fault("mbarrier", instruction, m.lanes, bad, text)
        return
    warp = m.geometry.warp[lane]
    np.maximum(barrier.gathered, m.proxy.seen[warp], out=barrier.gathered)
    barrier.pending -= int(arrivals)
    barrier.settle()


# ---- waiting ---------------------------------------------------------------------------------------------------------


def waiting(slots, instruction):
    """A function (machine, whether to let all go): which of the lanes that execute have seen their phase end."""
    if instruction.parts[1:3] != ("try_wait", "parity") or len(instruction.operands) != 3:
        raise Unknown("is a form that is not known")
    target, place, parity = instruction.operands
    result, address, wanted = slots.target(target, "pred"), address_of(slots, place), slots.source(parity, "u32")

    def test(m, force):
        addresses, parities = address(m), m.get(wanted) & 1
        over = np.ones(m.lanes.count, np.bool_)
        for i, barrier in enumerate(find(m, instruction, m.lanes, addresses)):
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
        if force and not over.all():
            text = lambda i: expected(m, int(addresses[i]), m.lanes.index[i])
            m.fault("mbarrier wait", instruction, m.lanes, ~over, text)
            over[:] = True
        m.put(result, over)
        return over

    return test


def expected(m, address, lane):
    """What the phase that a lane waits for lacks, in words."""
    where = m.shared.where(address)
    barrier = m.proxy.barriers[int(address + m.geometry.block_of[lane] * m.shared.stride - SHARED_START)]
    return (
        f"waits for ever for the mbarrier at {where}: {barrier.phases} phases are over, the next one lacks "
        f"{barrier.pending} arrivals and {barrier.missing} bytes"
    )
