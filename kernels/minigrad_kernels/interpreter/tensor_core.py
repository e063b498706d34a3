"""Tensor cores: mma, ldmatrix, stmatrix and movmatrix on fragments, lists of registers of shape (warps, 32).

Layouts stand in one place, `places`. A warp is 8 groups of 4 lanes. A matrix is cut into blocks of 8 rows; in each,
group g holds row g, and its lanes hold runs of the row in order: 2 elements of 16 bits, or 1 of 32 or 64 bits, so that
a block has 8 or 4 columns. The blocks follow one another down the rows first, then to the right. A lies so; B lies so
when transposed (group g holds column g); accumulators lie so with runs of 2, whatever their type. Elements of 16 bits
share a register, the lower half first.

Arithmetic: products are exact, they and c are summed in float64 and rounded once to d. Hardware sums in an order of its
own and truncates some bits: it agrees on numbers whose sums are exact, and otherwise to about the precision of d.
float64 is a chain of fused multiply-adds, as on hardware but for the order.

Source  PTX ISA: Matrix Fragments for mma.m8n8k4 ... mma.m16n8k16, ldmatrix, stmatrix, movmatrix
"""

from functools import lru_cache

import numpy as np

from ..errors import ShapeError, StateError
from .formats import bfloat16_to_float32, fma64, round_to_float16, round_to_float32

__all__ = ["mma", "ldmatrix", "stmatrix", "movmatrix"]

SIZES = {"m8n8k4": (8, 8, 4), "m16n8k4": (16, 8, 4), "m16n8k8": (16, 8, 8), "m16n8k16": (16, 8, 16)}
# Element type of A and B -> elements in a register, shapes, types of C and D.
TYPES = {
    "f16": (2, ("m16n8k8", "m16n8k16"), ("f32", "f16")),
    "bf16": (2, ("m16n8k8", "m16n8k16"), ("f32",)),
    "tf32": (1, ("m16n8k4", "m16n8k8"), ("f32",)),
    "f64": (1, tuple(SIZES), ("f64",)),
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


@np.errstate(all="ignore")
def mma(shape, a_type, b_type, d_type, a, b, c):
    """Matrix product of a warp.

    Math    d = a @ b + c
    Shapes  a, b, c, d: lists of registers (warps, 32) in the order of the PTX operands; shape as in PTX, "m16n8k16"
    Types   a, b: registers of 32 bits (tf32: the upper 19 bits count), float64 for f64; c, d: float32 for f32,
            uint32 with two halves for f16, float64 for f64; c has the type of d
    Errors  StateError for a shape or types that PTX lacks or that are not known here, ShapeError for a wrong count
    """
    run, shapes, d_types = TYPES.get(a_type, (0, (), ()))
    if shape not in shapes or b_type != a_type or d_type not in d_types:
        raise StateError(f"mma: got {shape} with types {a_type}, {b_type}, {d_type}: not known here")
    m, n, k = SIZES[shape]
    left = _gather("a", a, a_type, m, k, run)
    right = _gather("b", b, b_type, n, k, run).swapaxes(1, 2)
    total = _gather("c", c, d_type, m, n, 2)
    if d_type == "f64":
        for i in range(k):
            total = fma64(left[:, :, i, None], right[:, None, i, :], total)
    else:
        total = left @ right + total
    row, column = places(m, n, 2)
    elements = total[:, row, column]
    if d_type == "f16":
        return _pack(round_to_float16(elements).view(np.uint16))
    if d_type == "f32":
        elements = round_to_float32(elements)
    return [elements[:, i] for i in range(elements.shape[1])]


def ldmatrix(rows, count, transposed=False):
    """Fragments of 1, 2 or 4 matrices of 8 by 8 elements of 16 bits: a list of count registers (warps, 32) uint32.

    Shapes  rows (warps, 32, 8) uint16: the 8 elements at the address of each lane; lanes 8i to 8i + 7 serve matrix i
    """
    fragments = []
    for matrix in np.split(rows[:, : 8 * count], count, axis=1):
        row, column = places(8, 8, 2)
        fragments += _pack(matrix[:, column, row] if transposed else matrix[:, row, column])
    return fragments


def stmatrix(registers, transposed=False):
    """The inverse of ldmatrix: (warps, 8 * count, 8) uint16, row l of it goes to the address of lane l."""
    row, column = places(8, 8, 2)
    matrices = []
    for register in registers:
        matrix = np.empty((len(register), 8, 8), np.uint16)
        place = (column, row) if transposed else (row, column)
        matrix[:, *place] = _unpack([register])
        matrices.append(matrix)
    return np.concatenate(matrices, axis=1)


def movmatrix(register):
    """The fragment of the transposed 8 by 8 matrix of elements of 16 bits: (warps, 32) uint32."""
    return ldmatrix(stmatrix([register]), 1, transposed=True)[0]


def _gather(name, registers, kind, rows, columns, run):
    """The matrix (warps, rows, columns) in float64 whose fragments the registers hold."""
    row, column = places(rows, columns, run)
    wanted = len(row) // 2 if kind in ("f16", "bf16") else len(row)
    if len(registers) != wanted:
        raise ShapeError(f"mma: {name}: got {len(registers)} registers, wanted {wanted}")
    elements = _decode(registers, kind)
    matrix = np.empty((len(elements), rows, columns))
    matrix[:, row, column] = elements
    return matrix


def _decode(registers, kind):
    """Registers to elements: (warps, elements, 32)."""
    if kind == "f16":
        return _unpack(registers).view(np.float16)
    if kind == "bf16":
        return bfloat16_to_float32(_unpack(registers))
    stacked = np.stack(registers, axis=1)
    if kind == "tf32":
        return (stacked.view(np.uint32) & TF32_BITS).view(np.float32)
    return stacked.view({"f32": np.float32, "f64": np.float64}[kind])


def _unpack(registers):
    """Registers of 32 bits to their halves, the lower first: (warps, 2 * registers, 32) uint16."""
    words = np.stack(registers, axis=1).view(np.uint32)
    halves = np.stack([words, words >> np.uint32(16)], axis=2).astype(np.uint16)
    return halves.reshape(len(words), -1, 32)


def _pack(halves):
    """The inverse of _unpack: a list of registers (warps, 32) uint32."""
    words = halves[:, 0::2].astype(np.uint32) | halves[:, 1::2].astype(np.uint32) << np.uint32(16)
    return [words[:, i] for i in range(words.shape[1])]
