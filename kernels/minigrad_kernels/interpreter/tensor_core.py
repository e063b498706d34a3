"""Tensor cores: mma and ldmatrix on fragments, lists of registers of shape (warps, 32).

Layouts stand in one place, `places`. A warp is 8 groups of 4 lanes. A matrix is cut into blocks of 8 rows; in each,
group g holds row g, and its lanes hold runs of the row in order: 2 elements of 16 bits, or 1 of 32 bits, so that
a block has 8 or 4 columns. The blocks follow one another down the rows first, then to the right. A lies so; B lies so
when transposed (group g holds column g); accumulators lie so with runs of 2, whatever their type. Elements of 16 bits
share a register, the lower half first.

Arithmetic: products are exact, they and c are summed in float64 and rounded once to d. Hardware sums in an order of its
own and truncates some bits: it agrees on numbers whose sums are exact, and otherwise to about the precision of d.

Source  PTX ISA: Matrix Fragments for mma.m16n8k8 and mma.m16n8k16, ldmatrix
"""

from functools import lru_cache

import numpy as np

from .formats import bfloat16_to_float32
from .operations import Unknown
from .slots import address_of, builder
from .warps import put

ROWS, COLUMNS = 16, 8  # of the result
# Type of A and B -> steps of k, elements in a register, and what reads elements (warps, ..., 32) from its bits.
TYPES = {
    "f16": (16, 2, lambda bits: bits.view(np.float16)),
    "bf16": (16, 2, bfloat16_to_float32),
    "tf32": (8, 1, lambda bits: (bits & np.uint32(0xFFFFE000)).view(np.float32)),
    "f32": (None, 1, lambda bits: bits.view(np.float32)),  # of C and D
}


@lru_cache
def places(rows, columns, run):
    """(row, column), each of shape (elements, 32): where the elements of each lane's fragment lie in the matrix."""
    lane, width = np.arange(32), 4 * run
    group, member = lane >> 2, lane & 3
    order = [
        (row + group, column + member * run + element)
        for column in range(0, columns, width)
        for row in range(0, rows, 8)
        for element in range(run)
    ]
    row, column = (np.array(index) for index in zip(*order, strict=True))
    return row, column


def _gather(registers, kind, rows, columns, run):
    """The matrix (warps, rows, columns) in float64 whose fragments the registers hold; halves lie the lower first."""
    row, column = places(rows, columns, run)
    bits, (_, count, widen) = np.stack(registers, axis=1), TYPES[kind]
    if count == 2:
        bits = np.stack([bits, bits >> np.uint32(16)], axis=2).astype(np.uint16).reshape(len(bits), -1, 32)
    matrix = np.empty((len(bits), rows, columns))
    matrix[:, row, column] = widen(bits)
    return matrix


# ---- steps -----------------------------------------------------------------------------------------------------------


@builder("mma")
def multiply_matrices(slots, instruction):
    parts = instruction.parts
    kind = parts[7] if len(parts) == 10 else None
    steps, run, _ = TYPES.get(kind, (None, None, None))
    if steps is None or parts[1:] != ("sync", "aligned", f"m16n8k{steps}", "row", "col", "f32", kind, kind, "f32"):
        raise Unknown("has a shape or types that are not known")
    targets, *reads = [[slots.source(e, "b32") for e in operand.elements] for operand in instruction.operands]
    wanted = [4, ROWS * steps // 32 // run, COLUMNS * steps // 32 // run, 4]
    if [len(targets), *map(len, reads)] != wanted:
        raise Unknown(f"has a list of registers that is too long or too short, wants {wanted[:3]} for d, a and b")
    row, column = places(ROWS, COLUMNS, 2)

    def step(m):
        a, b, c = ([m.lanes.to_warps(m.get(slot)) for slot in operand] for operand in reads)
        left, right = _gather(a, kind, ROWS, steps, run), _gather(b, kind, COLUMNS, steps, run).swapaxes(1, 2)
        elements = (left @ right + _gather(c, "f32", ROWS, COLUMNS, 2))[:, row, column]
        put(m, targets, elements.astype(np.float32).view(np.uint32).swapaxes(0, 1))

    return step


@builder("ldmatrix")
def load_matrices(slots, instruction):
    """Four matrices of 8 by 8 elements of 16 bits; lanes 8i to 8i + 7 give the addresses of rows of matrix i."""
    parts = instruction.parts
    if parts[1:5] != ("sync", "aligned", "m8n8", "x4") or set(parts[5:]) - {"trans", "shared", "shared::cta", "b16"}:
        raise Unknown("is a form that is not known")
    destination, place = instruction.operands
    targets = [slots.target(element, "b32") for element in destination.elements]
    address, double = address_of(slots, place), np.dtype(np.uint64)
    row, column = places(8, 8, 2)[:: -1 if "trans" in parts else 1]

    def step(m):
        found = m.shared.access(instruction, m.lanes, address(m), double, 2)
        halves = np.stack([m.lanes.to_warps(rows) for rows in found], axis=2).view(np.uint16)
        words = [matrix[:, row, column].astype(np.uint32) for matrix in np.split(halves, 4, axis=1)]
        put(m, targets, [pair[:, 0] | pair[:, 1] << np.uint32(16) for pair in words])

    return step
