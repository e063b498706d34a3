"""Products of warpgroups, four warps: wgmma.mma_async and its fence, groups and waits.

Each warp of the four gives the 16 rows of its number; they read both operands from shared memory, as descriptors say.
Results are in their registers at once: that nobody reads those before wgmma.wait_group is not looked at. Arithmetic is
that of tensor_core.

A descriptor (64 bits) holds a start address, an offset SBO in bits 32 to 45, both in units of 16 bytes, and a mode. An
operand has lines, rows of A or columns of B, and 16 steps of k. Known is the mode of boxes of tensor maps: eight
elements of 16 bits along k are a chunk of 16 bytes, chunk j of a line i lies at i % 8 * 128 + i // 8 * SBO + 16 j, and
bits 7 to 9 of an address then turn bits 4 to 6.

Source  NVIDIA, "Parallel Thread Execution ISA", wgmma: Shared Memory Matrix Layout, Strides, Matrix Descriptor
"""

import re

import numpy as np

from . import tensor_core
from .operations import Unknown
from .program import SHARED_START
from .slots import builder
from .warps import put

ROWS = 64
MODE, TURNED = np.uint64(7 << 49 | 3 << 62), np.uint64(1 << 62)  # bits of descriptors, and what they must be
KINDS = ("f32", "f16", "f16"), ("f32", "bf16", "bf16")
STEPS, CHUNK = 16, 8  # steps of k in a product, and elements in a chunk


def swizzled(addresses):
    """Addresses with the bits 4 to 6 turned by those from bit 7 on."""
    return addresses ^ (addresses >> 7 & 7) << 4


def _chunk_addresses(descriptors, lines):
    """Where the chunks of operands lie: (descriptors, lines * 2) int64."""
    start, stride = (16 * (descriptors >> np.uint64(low) & np.uint64(0x3FFF)).astype(np.int64) for low in (0, 32))
    line, chunk = np.divmod(np.arange(lines * STEPS // CHUNK), STEPS // CHUNK)
    return swizzled(start[:, None] + line // 8 * stride[:, None] + line % 8 * 128 + chunk * 16)


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
    if kind == "commit_group":
        return lambda m: m.proxy.commit(_warps(m))
    if kind != "fence":
        raise Unknown("is a form that is not known")
    return lambda m: m.proxy.fenced.put(_warps(m), True)


def _warps(m):
    """The warps that execute, in order."""
    return np.unique(m.geometry.warp[m.at])


def _product(slots, instruction):
    shape, types = re.fullmatch(r"m64n(\d+)k16", instruction.parts[4]), instruction.parts[5:]
    if len(instruction.operands) != 8 or not shape or types not in KINDS:
        raise Unknown("has a shape, types or operands that are not known")
    d, a, b, keep, *settings = instruction.operands
    columns = int(shape[1])
    if [operand.text for operand in settings] != ["1", "1", "0", "0"] or len(d.elements) != columns // 2:
        raise Unknown("negates or transposes an operand, or has too few registers, which is not known")
    targets = [slots.target(element, "f32") for element in d.elements]
    descriptors, kept = [slots.source(operand, "u64") for operand in (a, b)], slots.reader(keep, "pred")
    row, column = tensor_core.places(16, columns, 2)

    def step(m):
        warps = _warps(m)
        unfenced = ~m.proxy.fenced[m.geometry.warp[m.at]]
        m.fault("wgmma fence", instruction, m.lanes, unfenced, lambda i: "follows no wgmma.fence")
        tables = [m.lanes.to_warps(m.get(slot)) for slot in descriptors]
        other = m.lanes.from_warps(np.logical_or(*(table != table[:, :1] for table in tables)))
        m.fault("divergent warp", instruction, m.lanes, other, lambda i: "has descriptors that differ within the warp")
        if any((table & MODE != TURNED).any() for table in tables):
            raise instruction.error("has a descriptor of another mode than that of 128 bytes, which is not known")
        product = _multiply(m, instruction, warps, [table[:, 0] for table in tables], columns, types[-1])
        if product is None:
            return
        add = m.lanes.to_warps(kept(m))
        total = np.stack([m.lanes.to_warps(m.get(slot)) for slot in targets], axis=1)
        total = np.where(add[:, None, :], total, np.float32(0)).astype(np.float64)
        put(m, targets, (product[:, row, column] + total).astype(np.float32).swapaxes(0, 1))

    return step


def _multiply(m, instruction, warps, descriptors, columns, kind):
    """(warps, 16, columns) float64: what each warp has of the product of its group; None where it cannot be read."""
    own = m.geometry.warps_per_block
    places = [_chunk_addresses(*pair) for pair in zip(descriptors, (ROWS, columns), strict=True)]
    addresses = np.concatenate(places, axis=1)
    offsets = addresses + (warps // own * m.shared.stride - SHARED_START)[:, None]
    if not m.proxy.read(instruction, warps, addresses, offsets):
        return None
    # Warps of a group mostly have the same operands: each pair is read and multiplied once.
    keys = np.stack([warps // own, *(d.astype(np.int64) for d in descriptors)])
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    chunks = m.shared.rows(np.dtype(np.uint16), 8)[offsets[first] // 16]
    lines = tensor_core.TYPES[kind][2](chunks.reshape(len(first), -1, STEPS)).astype(np.float64)
    product = (lines[:, :ROWS] @ lines[:, ROWS:].swapaxes(1, 2)).reshape(len(first), 4, 16, -1)
    return product[group.reshape(-1), warps % own % 4]
