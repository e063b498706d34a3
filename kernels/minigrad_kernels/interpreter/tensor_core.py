"""Tensor cores: mma and ldmatrix on fragments, lists of registers of shape (warps, 32).

Layouts stand in one place, `places`. A warp is 8 groups of 4 lanes. A matrix is cut into blocks of 8 rows; in each,
group g holds row g, and its lanes hold runs of the row in order: 2 elements of 16 bits, or 1 of 32 bits, so that
a block has 8 or 4 columns. The blocks follow one another down the rows first, then to the right. A lies so; B lies so
when transposed (group g holds column g); accumulators lie so with runs of 2, whatever their type. Elements of 16 bits
share a register, the lower half first.

Arithmetic: products are exact, they and c are summed in float64 and rounded once to d. Hardware sums in an order of its
own and truncates some bits: it agrees on numbers whose sums are exact, and otherwise to about the precision of d.

Source  PTX ISA: Matrix Fragments for mma.m16n8k4 ... mma.m16n8k16, ldmatrix
"""

from functools import lru_cache

import numpy as np

from .formats import bfloat16_to_float32, round_to_float
from .operations import Unknown
from .slots import address_of, builder
from .warps import put

__all__ = ["places"]

SIZES = {"m16n8k4": (16, 8, 4), "m16n8k8": (16, 8, 8), "m16n8k16": (16, 8, 16)}
# Element type of A and B -> elements in a register, shapes, types of C and D.
TYPES = {
    "f16": (2, ("m16n8k8", "m16n8k16"), ("f32", "f16")),
    "bf16": (2, ("m16n8k8", "m16n8k16"), ("f32",)),
    "tf32": (1, ("m16n8k4", "m16n8k8"), ("f32",)),
}
TF32_BITS = np.uint32(0xFFFFE000)


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
    """The matrix (warps, rows, columns) in float64 whose fragments the registers hold."""
    row, column = places(rows, columns, run)
    if kind in ("f16", "bf16"):
        halves = _unpack(registers)
        elements = halves.view(np.float16) if kind == "f16" else bfloat16_to_float32(halves)
    else:
        elements = np.stack(registers, axis=1)
        if kind == "tf32":
            elements = (elements & TF32_BITS).view(np.float32)
    matrix = np.empty((len(elements), rows, columns))
    matrix[:, row, column] = elements
    return matrix


def _unpack(registers):
    """Registers of 32 bits to their halves, the lower first: (warps, 2 * registers, 32) uint16."""
    words = np.stack(registers, axis=1).view(np.uint32)
    halves = np.stack([words, words >> np.uint32(16)], axis=2).astype(np.uint16)
    return halves.reshape(len(words), -1, 32)


def _pack(halves):
    """The inverse of _unpack: a list of registers (warps, 32) uint32."""
    words = halves[:, 0::2].astype(np.uint32) | halves[:, 1::2].astype(np.uint32) << np.uint32(16)
    return list(words.swapaxes(0, 1))


# ---- steps -----------------------------------------------------------------------------------------------------------


@builder("mma")
def multiply_matrices(slots, instruction):
    parts = instruction.parts
    if parts[1:3] != ("sync", "aligned") or parts[4:6] != ("row", "col") or len(parts) != 10:
        raise Unknown("is a matrix product that is not known")
    shape, (d_type, a_type, b_type, c_type) = parts[3], parts[6:]
    run, shapes, results = TYPES[a_type]
    if c_type != d_type or b_type != a_type or shape not in shapes or d_type not in results:
        raise Unknown("has a shape or types that are not known")
    m_, n, k = SIZES[shape]
    results = "b32" if d_type == "f16" else d_type
    operands = zip(instruction.operands, (results, "b32", "b32", results), strict=True)
    targets, *reads = [[slots.source(e, kind) for e in operand.elements] for operand, kind in operands]
    wanted = [m_ * n // (64 if d_type == "f16" else 32), m_ * k // 32 // run, n * k // 32 // run]
    if [len(targets), *map(len, reads)] != [*wanted, wanted[0]]:
        raise Unknown(f"has a list of registers that is too long or too short, wants {wanted} for d, a and b")
    row, column = places(m_, n, 2)

    def step(m):
        a, b, c = ([m.lanes.to_warps(m.get(slot)) for slot in operand] for operand in reads)
        left, right = _gather(a, a_type, m_, k, run), _gather(b, b_type, n, k, run).swapaxes(1, 2)
        elements = (left @ right + _gather(c, d_type, m_, n, 2))[:, row, column]
        if d_type == "f16":
            return put(m, targets, _pack(round_to_float(elements, np.float16).view(np.uint16)))
        return put(m, targets, round_to_float(elements, np.float32).swapaxes(0, 1))

    return step


@builder("ldmatrix")
def load_matrices(slots, instruction):
    """1, 2 or 4 matrices of 8 by 8 elements of 16 bits; lanes 8i to 8i + 7 give the addresses of rows of matrix i."""
    parts = instruction.parts
    count = next((int(part[1]) for part in parts if part in ("x1", "x2", "x4")), None)
    known = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    if count is None or set(parts[1:]) - known or "m8n8" not in parts or parts[-1] != "b16":
        raise Unknown("is a form that is not known")
    destination, place = instruction.operands
    targets = [slots.target(element, "b32") for element in destination.elements]
    address, double = address_of(slots, place), np.dtype(np.uint64)
    row, column = places(8, 8, 2)[:: -1 if "trans" in parts else 1]

    def step(m):
        giving = m.geometry.lane[m.at] < 8 * count
        rows = np.zeros((m.lanes.count, 2), np.uint64)
        found = m.shared.access(instruction, m.lanes.only(giving), address(m)[giving], double, 2)
        rows[giving] = np.stack(found, axis=1)
        halves = np.stack([m.lanes.to_warps(rows[:, i]) for i in range(2)], axis=2).view(np.uint16)
        matrices = np.split(halves[:, : 8 * count], count, axis=1)
        put(m, targets, [_pack(matrix[:, row, column])[0] for matrix in matrices])

    return step
