"""Products of warpgroups, four warps: wgmma.mma_async and its fence, groups and waits.

Each warp of the four gives the 16 rows of its number; they read both operands from shared memory, as descriptors say.
Results are in their registers at once: that nobody reads those before wgmma.wait_group is not looked at. Arithmetic is
that of tensor_core.

A descriptor (64 bits) holds a start address, two offsets, all in units of 16 bytes, and a mode. An operand has lines,
rows of A or columns of B, and 16 steps of k. It lies in chunks of 16 bytes, eight elements of 16 bits along k (K-major)
or along the lines (MN-major); addresses of chunks are sums of strides, of which bits 7 and up then turn bits 4 and up.

With W chunks in a piece of 16 W bytes that a mode turns, T elements in a chunk, and offsets named as in the manual:

    K-major    ((8, m), (T, 2)):((W T, SBO), (1, T))            no turning: ((8, m), (T, 2)):((T, SBO), (1, LBO))
    MN-major   ((T, W, m), (8, 2)):((1, T, LBO), (W T, SBO))    no turning: ((T, 1, m), (8, 2)):((1, T, SBO), (T, LBO))

Source  NVIDIA, "Parallel Thread Execution ISA", wgmma: Shared Memory Matrix Layout, Strides, Matrix Descriptor
"""

import re

import numpy as np

from . import tensor_core
from .formats import bfloat16_to_float32, round_to_float
from .operations import Unknown
from .program import SHARED_START
from .slots import builder
from .warps import put

__all__ = ["swizzled"]

ROWS = 64
BASE = np.uint64(7 << 49)  # bits of descriptors that say where in its period a pattern begins
WIDEN = {"f16": lambda bits: bits.view(np.float16), "bf16": bfloat16_to_float32}
STEPS, CHUNK = 16, 8  # steps of k in a product, and elements in a chunk
TURNED = np.array([0, 3, 2, 1])  # by the mode, bits 62 and 63: how many bits of an address are turned


def swizzled(addresses, bits):
    """Addresses with so many bits from bit 4 on turned by those from bit 7 on."""
    return addresses ^ (addresses >> 7 & (1 << bits) - 1) << 4


def _chunk_addresses(descriptors, lines, across):
    """Where the chunks of operands lie: (descriptors, chunks) int64, in the order that `_matrix` takes them.

    across: whether they lie along the lines (MN-major)
    """
    field = lambda low, bits: (descriptors >> np.uint64(low)).astype(np.int64)[:, None, None] & (1 << bits) - 1
    start, leading, stride = (16 * field(low, 14) for low in (0, 16, 32))
    bits = TURNED[field(62, 2)]
    width = 1 << bits
    line = np.arange(lines // CHUNK if across else lines)[:, None]
    step = np.arange(STEPS if across else STEPS // CHUNK)[None, :]
    if across:
        plain = line * stride + step // 8 * leading + step % 8 * 16
        turned = line % width * 16 + line // width * leading + step % 8 * width * 16 + step // 8 * stride
    else:
        plain = line // 8 * stride + line % 8 * 16 + step * leading
        turned = line // 8 * stride + line % 8 * width * 16 + step * 16
    addresses = swizzled(start + np.where(bits == 0, plain, turned), bits)
    return addresses.reshape(len(descriptors), -1)


def _matrix(chunks, across):
    """Operands (descriptors, lines, 16) from their chunks (descriptors, chunks, 8)."""
    if across:
        chunks = chunks.reshape(len(chunks), -1, STEPS, CHUNK).swapaxes(2, 3)
    return chunks.reshape(len(chunks), -1, STEPS)


# ---- steps -----------------------------------------------------------------------------------------------------------


@builder("wgmma")
def warpgroup(slots, instruction):
    kind, parts = instruction.parts[1], instruction.parts
    if parts[2:4] != ("sync", "aligned"):
        raise Unknown("lacks .sync.aligned")
    if kind == "mma_async":
        return _product(slots, instruction)
    if kind == "wait_group":
        pending = int(instruction.operands[0].text, 0)
        return lambda m: m.proxy.wait(_warps(m), pending)
    if kind not in ("commit_group", "fence"):
        raise Unknown("is a form that is not known")
    return lambda m: (m.proxy.commit if kind == "commit_group" else m.proxy.fence)(_warps(m))


def _warps(m):
    """The warps that execute, in order."""
    m.proxy.begin()
    return np.unique(m.geometry.warp[m.at])


def _product(slots, instruction):
    shape, types = re.fullmatch(r"m64n(\d+)k16", instruction.parts[4]), instruction.parts[5:]
    if len(instruction.operands) != 8 or not shape or types not in (("f32", "f16", "f16"), ("f32", "bf16", "bf16")):
        raise Unknown("has a shape, types or operands that are not known")
    d, a, b, keep, *signs_and_turns = instruction.operands
    columns = int(shape[1])
    *signs, a_across, b_across = (int(operand.text, 0) for operand in signs_and_turns)
    if signs != [1, 1] or columns % 8 or len(d.elements) != columns // 2:
        raise Unknown("negates an operand, or has too few registers, which is not known")
    targets = [slots.target(element, "f32") for element in d.elements]
    descriptors, kept = [slots.source(operand, "u64") for operand in (a, b)], slots.reader(keep, "pred")
    operands = [(ROWS, a_across), (columns, b_across)]
    row, column = tensor_core.places(16, columns, 2)

    def step(m):
        warps, proxy = _warps(m), m.proxy
        proxy.fault("wgmma fence", instruction, ~proxy.fenced[warps][:, None], lambda *_: "follows no wgmma.fence")
        tables = [m.lanes.to_warps(m.get(slot)) for slot in descriptors]
        same = np.stack([(table == table[:, :1]).all(axis=1) for table in tables], axis=1)
        proxy.fault("divergent warp", instruction, ~same, lambda *_: "has descriptors that differ within the warp")
        if any((table & BASE).any() for table in tables):
            raise instruction.error("has a descriptor with a base offset, which is not known")
        product = _multiply(m, instruction, warps, [table[:, 0] for table in tables], operands, WIDEN[types[-1]])
        if product is None:
            return
        add = m.lanes.to_warps(kept(m))
        total = np.stack([m.lanes.to_warps(m.get(slot)) for slot in targets], axis=1)
        total = np.where(add[:, None, :], total, np.float32(0)).astype(np.float64)
        put(m, targets, round_to_float(product[:, row, column] + total, np.float32).swapaxes(0, 1))

    return step


def _multiply(m, instruction, warps, descriptors, operands, widen):
    """(warps, 16, columns) float64: what each warp has of the product of its group; None where it cannot be read."""
    own, turns = m.geometry.warps_per_block, [across for _, across in operands]
    places = [_chunk_addresses(d, *operand) for d, operand in zip(descriptors, operands, strict=True)]
    addresses = np.concatenate(places, axis=1)
    offsets = addresses + (warps // own * m.shared.stride - SHARED_START)[:, None]
    if not m.proxy.read(instruction, warps, addresses, offsets):
        return None
    # Warps of a group mostly have the same operands: each pair is read and multiplied once.
    keys = np.stack([warps // own, *(d.astype(np.int64) for d in descriptors)])
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    chunks = m.shared.rows(np.dtype(np.uint16), 8)[offsets[first] // 16]
    parts = np.split(chunks, [places[0].shape[1]], axis=1)
    left, right = (widen(_matrix(*part)).astype(np.float64) for part in zip(parts, turns, strict=True))
    product = (left @ right.swapaxes(1, 2)).reshape(len(left), 4, 16, -1)
    return product[group.reshape(-1), warps % own % 4]
