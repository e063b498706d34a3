"""Products of warpgroups, four warps: wgmma.mma_async and its fence, groups and waits.

Each warp of the four gives the 16 rows of its number; they read both operands from shared memory, as descriptors say
(see matrix_layout.py). Results are in their registers at once: that nobody reads those before wgmma.wait_group is not
looked at. Arithmetic is that of tensor_core.mma.
"""

import re

import numpy as np

from . import tensor_core
from .collective import collective
from .formats import bfloat16_to_float32, round_to_float32
from .matrix_layout import chunk_addresses, matrix
from .names import SHARED_START
from .operations import Unknown

ROWS = 64
BASE = np.uint64(7 << 49)  # bits of descriptors that say where in its period a pattern begins
WIDEN = {"f16": lambda bits: bits.view(np.float16), "bf16": bfloat16_to_float32}


@collective("wgmma")
def warpgroup(slots, instruction):
    kind, parts = instruction.parts[1], instruction.parts
    if parts[2:4] != ("sync", "aligned"):
        raise Unknown("lacks .sync.aligned")
    if kind == "mma_async":
        return _product(slots, instruction)
    if kind == "wait_group":
        pending = int(instruction.operands[0].text, 0)
        return lambda m: _begun(m).wait(_warps(m), pending)
    if kind == "commit_group":
        return lambda m: _begun(m).commit(_warps(m))
    if kind != "fence":
        raise Unknown("is a form that is not known")

    def fence(m):
        _begun(m).fenced[_warps(m)] = True

    return fence


def _begun(m):
    m.proxy.begin()
    return m.proxy


def _warps(m):
    """The warps that execute, in order."""
    return np.unique(m.geometry.warp[m.at])


def _product(slots, instruction):
    shape = re.fullmatch(r"m64n(\d+)k16", instruction.parts[4])
    if len(instruction.operands) != 8 or not shape or instruction.parts[5:] not in (
        ("f32", "f16", "f16"), ("f32", "bf16", "bf16"),
    ):  # fmt: skip
        raise Unknown("has a shape, types or operands that are not known")
    d, a, b, keep, *signs_and_turns = instruction.operands
    columns, widen = int(shape[1]), WIDEN[instruction.parts[-1]]
    *signs, a_across, b_across = (int(operand.text, 0) for operand in signs_and_turns)
    if signs != [1, 1] or columns % 8 or len(d.elements) != columns // 2:
        raise Unknown("negates an operand, or has too few registers, which is not known")
    targets = [slots.target(element, "f32") for element in d.elements]
    descriptors = [slots.source(operand, "u64") for operand in (a, b)]
    kept, negated = slots.predicate(keep)
    row, column = tensor_core.places(16, columns, 2)

    def step(m):
        proxy, warps = _begun(m), _warps(m)
        proxy.fault("wgmma fence", instruction, ~proxy.fenced[warps][:, None], lambda *_: "follows no wgmma.fence")
        tables = [m.lanes.to_warps(m.get(slot)) for slot in descriptors]
        same = np.stack([(table == table[:, :1]).all(axis=1) for table in tables], axis=1)
        proxy.fault("divergent warp", instruction, ~same, lambda *_: "has descriptors that differ within the warp")
        if any((table & BASE).any() for table in tables):
            raise instruction.error("has a descriptor with a base offset, which is not known")
        product = _multiply(
            m, instruction, warps, [table[:, 0] for table in tables], columns, (a_across, b_across), widen
        )
        if product is None:
            return
        elements = product[:, row, column]
        add = m.lanes.to_warps(m.get(kept) ^ negated)
        total = np.stack([m.lanes.to_warps(m.get(slot)) for slot in targets], axis=1)
        elements = round_to_float32(elements + np.where(add[:, None, :], total, np.float32(0)).astype(np.float64))
        for i, target in enumerate(targets):
            m.put(target, m.lanes.from_warps(np.ascontiguousarray(elements[:, i])))

    return step


def _multiply(m, instruction, warps, descriptors, columns, across, widen):
    """(warps, 16, columns) float64: what each warp has of the product of its group; None where it cannot be read."""
    own = m.geometry.warps_per_block
    lines = (ROWS, columns)
    places = [chunk_addresses(d, n, turned) for d, n, turned in zip(descriptors, lines, across, strict=True)]
    addresses = np.concatenate(places, axis=1)
    offsets = addresses + (warps // own * m.shared.stride - SHARED_START)[:, None]
    if not m.proxy.read(instruction, warps, addresses, offsets):
        return None
    chunks = m.shared.space.rows(np.dtype(np.uint16), 8)
    # Warps of a group mostly have the same operands: each pair is read and multiplied once.
    keys, first, group = np.unique(
        np.stack([warps // own, *(d.astype(np.int64) for d in descriptors)]), axis=1, return_index=True,
        return_inverse=True,
    )  # fmt: skip
    left, right = (
        widen(matrix(chunks[part // 16], turned)).astype(np.float64)
        for part, turned in zip(np.split(offsets[first], [places[0].shape[1]], axis=1), across, strict=True)
    )
    product = left @ right.swapaxes(1, 2)
    quarter = warps % own % 4
    return product.reshape(len(left), 4, 16, columns)[group.reshape(-1), quarter]
