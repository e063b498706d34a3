"""cp.async.bulk.tensor: boxes of matrices that travel to shared memory, as tensor maps say, and complete an mbarrier.

What a box has outside of its matrix is zero; it counts among the bytes that arrive. A copy arrives when somebody waits
for its mbarrier, and not before.
"""

from dataclasses import dataclass

import numpy as np

from . import tensor_map
from .matrix_layout import swizzled
from .mbarriers import find
from .operations import Unknown
from .region import Region
from .steps import address_of
from .syntax import Cell

__all__ = ["copy_box", "fence"]

SECTOR, ALIGNMENT = 32, 128


@dataclass
class Copy:
    """words: where it goes, places of 32 bits in shared memory; column, phase: of the mbarrier, when it has come."""

    words: np.ndarray
    data: np.ndarray
    column: int
    phase: int = 0
    number: int = 0  # among all copies


def fence(slots, instruction):
    """fence.proxy of the asynchronous kind, and of tensor maps; also for mbarriers that were just made."""
    parts = instruction.parts
    if parts[1] == "mbarrier_init" or parts[1:3] == ("proxy", "async"):
        return lambda m: m.shared.races.fence(m.lanes)
    if parts[1:2] != ("proxy",) or "acquire" not in parts:
        return lambda m: None
    address = address_of(slots, instruction.operands[0])

    def acquire(m):
        m.proxy.begin()
        m.proxy.maps.update(zip(m.lanes.index.tolist(), address(m).tolist(), strict=True))

    return acquire


def copy_box(slots, instruction):
    if instruction.parts[2:] != ("bulk", "tensor", "2d", "shared::cluster", "global", "mbarrier::complete_tx::bytes"):
        raise Unknown("is a copy that is not known")
    to, cell, barrier = instruction.operands
    if not isinstance(cell, Cell):
        raise Unknown("has no coordinates, which is not known")
    target, map_at, gate = (address_of(slots, operand) for operand in (to, (cell.base, 0), barrier))
    places = [slots.source(operand, "s32") for operand in cell.place]

    def step(m):
        whole = m.lanes
        at = [m.get(slot).astype(np.int64) for slot in places]
        values = zip(target(m), map_at(m), find(m, instruction, whole, gate(m)), *at, strict=True)
        for i, (to, address, barrier, column, row) in enumerate(values):
            lanes = whole.only(np.arange(whole.count) == i)
            if barrier is not None:
                _copy(m, instruction, lanes, int(to), int(address), barrier, int(row), int(column))
        m.enter(whole)

    return step


def _copy(m, instruction, lanes, to, address, barrier, row, column):
    """The copy of one lane."""
    m.enter(lanes)
    fault = lambda kind, text: m.fault(kind, instruction, lanes, np.ones(1, np.bool_), lambda i: text)
    at = np.array([address])
    words = [m.everywhere.load(instruction, lanes, at + 16 * i, np.dtype(np.uint64), 2) for i in range(8)]
    map_ = tensor_map.decode(np.concatenate([part for pair in words for part in pair]))
    if map_ is None or address % 64:
        return fault("tensor map", f"has no tensor map at {address:#x}, a multiple of 64")
    if (int(lanes.index[0]), address) not in m.proxy.maps:
        fault("proxy fence", "reads a tensor map in global memory that fence.proxy.tensormap has not acquired before")
    if m.shared.races.since_fence[barrier.lane] <= barrier.made:
        fault("proxy fence", "uses an mbarrier whose maker has executed no fence.proxy.async since")
    size = map_.box_rows * map_.box_columns * map_.size
    if to % ALIGNMENT:
        return fault("misaligned", f"writes to {m.shared.where(to)}, which is no multiple of {ALIGNMENT}")
    if m.shared.outside(np.array([to]), size) is not None:
        return fault("out of bounds", f"writes {size} bytes at {m.shared.where(to)}")
    data = _read(m, instruction, lanes, map_, row, column, fault)
    lines = np.arange(map_.box_rows)[:, None] * (map_.box_columns * map_.size)
    places = swizzled(to + lines + np.arange(0, map_.box_columns * map_.size, 4), 3).reshape(-1)
    words = m.shared.locate(places, lanes) // 4
    _check_target(m, words, lanes, to, fault)
    copy = Copy(words, data.reshape(-1).view(np.uint32), barrier.column)
    barrier.copies.append(copy)
    m.proxy.start(copy)
    return None


def _check_target(m, words, lanes, to, fault):
    """A copy must not write what others still use."""
    where = f"writes {m.shared.where(to)}"
    if m.proxy.flying[words].any() or (m.copies.owner[words] > 0).any():
        fault("bulk wait", f"{where}, to which another copy is under way")
    if m.proxy.still_read(m.geometry.warp[lanes.at], words[None]).any():
        fault("wgmma wait", f"{where}, which a product may still read")


def _read(m, instruction, lanes, map_, row, column, fault):
    """The box (rows, bytes) of a matrix that begins at that row and column."""
    data = np.zeros((map_.box_rows, map_.box_columns * map_.size), np.uint8)
    first, end = max(column, 0), min(column + map_.box_columns, map_.columns)
    rows = np.arange(max(row, 0), min(row + map_.box_rows, map_.rows))
    if end <= first or not len(rows):
        return data
    size = (end - first) * map_.size
    addresses = map_.address + rows * map_.stride + first * map_.size
    region, _ = m.everywhere.memory(map_.address >> 32)
    outside = np.ones(1, np.bool_) if not isinstance(region, Region) else region.outside(addresses, size)
    if outside is not None:
        fault("out of bounds", f"reads {size} bytes at {region.where(int(addresses[outside.argmax()]))}")
        return data
    offsets = region.locate(addresses, lanes)
    bytes_ = offsets[:, None] + np.arange(size)
    if region.space.written is not None and not region.space.written[bytes_].all():
        fault("unwritten read", f"reads bytes of {region.nearest(int(offsets[0]))[3]} that nobody wrote")
    if region.races is not None:
        block = m.geometry.block_of[lanes.at] + m.geometry.first_block
        width = 4 if size % 4 == 0 and not (addresses % 4).any() else map_.size
        units = bytes_[:, ::width].reshape(-1)
        if region.races.read(block.repeat(len(units)), units, width).any():
            fault("global race", f"reads {region.where(int(addresses[0]))}: another block of the launch wrote it")
    name = region.nearest(int(offsets[0]))[3]
    counts, touched = m.counts, int(((addresses + size - 1) // SECTOR - addresses // SECTOR + 1).sum())
    counts.bytes_loaded[name] += size * len(rows)
    counts.sector_bytes_loaded[name] += touched * SECTOR
    counts.global_load_sectors += touched
    counts.global_load_sectors_ideal += len(rows) * -(-size // SECTOR)
    at = (first - column) * map_.size
    data[rows - row, at : at + size] = region.space.bytes[bytes_]
    return data
