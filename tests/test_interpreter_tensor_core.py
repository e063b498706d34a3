"""mma, ldmatrix, stmatrix and movmatrix of the PTX interpreter against the fragment formulas of the PTX manual.

A formula gives row or column of element i of the lane with groupID g = lane >> 2 and threadID_in_group t = lane % 4.
"""

import numpy as np
import pytest

from minigrad_kernels.errors import ShapeError, StateError
from minigrad_kernels.interpreter import tensor_core

WARPS = 3
generator = np.random.default_rng(20240614)

# (shape, type): (m, n, k), then elements in a lane's fragment and their row and column, for A, B, and C and D.
LAYOUTS = {
    ("m16n8k16", "16 bits"): (
        (16, 8, 16),
        (
            8,
            lambda g, t, i: g if 0 <= i < 2 or 4 <= i < 6 else g + 8,
            lambda g, t, i: t * 2 + (i & 1) if i < 4 else t * 2 + (i & 1) + 8,
        ),
        (4, lambda g, t, i: t * 2 + (i & 1) if i < 2 else t * 2 + (i & 1) + 8, lambda g, t, i: g),
        (4, lambda g, t, i: g if i < 2 else g + 8, lambda g, t, i: t * 2 + (i & 1)),
    ),
    ("m16n8k8", "16 bits"): (
        (16, 8, 8),
        (4, lambda g, t, i: g if i in (0, 1) else g + 8, lambda g, t, i: t * 2 + (i & 1)),
        (2, lambda g, t, i: t * 2 + i, lambda g, t, i: g),
        (4, lambda g, t, i: g if i in (0, 1) else g + 8, lambda g, t, i: t * 2 + (i & 1)),
    ),
    ("m16n8k8", "wide"): (
        (16, 8, 8),
        (4, lambda g, t, i: g if i in (0, 2) else g + 8, lambda g, t, i: t if i in (0, 1) else t + 4),
        (2, lambda g, t, i: t if i == 0 else t + 4, lambda g, t, i: g),
        (4, lambda g, t, i: g if i in (0, 1) else g + 8, lambda g, t, i: t * 2 + (i & 1)),
    ),
    ("m16n8k4", "wide"): (
        (16, 8, 4),
        (2, lambda g, t, i: g if i == 0 else g + 8, lambda g, t, i: t),
        (1, lambda g, t, i: t, lambda g, t, i: g),
        (4, lambda g, t, i: g if i in (0, 1) else g + 8, lambda g, t, i: t * 2 + (i & 1)),
    ),
    ("m16n8k16", "wide"): (
        (16, 8, 16),
        (
            8,
            lambda g, t, i: g if i % 2 == 0 else g + 8,
            lambda g, t, i: i * 2 + t if i % 2 == 0 else i * 2 - 2 + t,
        ),
        (4, lambda g, t, i: t + i * 4, lambda g, t, i: g),
        (4, lambda g, t, i: g if i < 2 else g + 8, lambda g, t, i: t * 2 + (i & 1)),
    ),
    ("m8n8k4", "wide"): (
        (8, 8, 4),
        (1, lambda g, t, i: g, lambda g, t, i: t),
        (1, lambda g, t, i: t, lambda g, t, i: g),
        (2, lambda g, t, i: g, lambda g, t, i: t * 2 + (i & 1)),
    ),
}
CASES = [
    ("m16n8k16", "f16", "f32"),
    ("m16n8k16", "f16", "f16"),
    ("m16n8k16", "bf16", "f32"),
    ("m16n8k8", "f16", "f32"),
    ("m16n8k8", "f16", "f16"),
    ("m16n8k8", "bf16", "f32"),
    ("m16n8k8", "tf32", "f32"),
    ("m16n8k4", "tf32", "f32"),
    ("m8n8k4", "f64", "f64"),
    ("m16n8k4", "f64", "f64"),
    ("m16n8k8", "f64", "f64"),
    ("m16n8k16", "f64", "f64"),
]
each_case = pytest.mark.parametrize("shape, kind, d_kind", CASES)


def layout(shape, kind):
    return LAYOUTS[shape, "16 bits" if kind in ("f16", "bf16") else "wide"]


def bits(values, kind):
    """Numbers that the type holds exactly, as the bits of its elements."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return values.astype(np.float32).view(np.uint32) >> np.uint32(16 if kind == "bf16" else 0)


def to_registers(matrices, fragment, kind):
    """Matrices (warps, rows, columns) to registers as the manual says: elements from low to high."""
    count, row, column = fragment
    elements = [
        np.stack([matrices[:, row(lane >> 2, lane % 4, i), column(lane >> 2, lane % 4, i)] for lane in range(32)], 1)
        for i in range(count)
    ]
    if kind in ("f32", "f64"):
        return [element.astype(kind.replace("f32", "float32").replace("f64", "float64")) for element in elements]
    if kind == "tf32":
        return [bits(element, kind) for element in elements]
    return [
        bits(low, kind) | bits(high, kind) << np.uint32(16)
        for low, high in zip(elements[::2], elements[1::2], strict=True)
    ]


def integers(*shape):
    return generator.integers(-8, 9, (WARPS, *shape)).astype(np.float64)


def operands(shape, kind, d_kind, a, b, c):
    _, of_a, of_b, of_c = layout(shape, kind)
    return to_registers(a, of_a, kind), to_registers(b, of_b, kind), to_registers(c, of_c, d_kind)


def assert_product(shape, kind, d_kind, a, b, c, wanted):
    result = tensor_core.mma(shape, kind, kind, d_kind, *operands(shape, kind, d_kind, a, b, c))
    expected = to_registers(wanted, layout(shape, kind)[3], d_kind)
    assert len(result) == len(expected)
    for register, other in zip(result, expected, strict=True):
        assert register.dtype == other.dtype
        np.testing.assert_array_equal(register, other)


def test_the_formulas_name_every_element_once():
    for (m, n, k), *fragments in LAYOUTS.values():
        for (count, row, column), (rows, columns) in zip(fragments, [(m, k), (k, n), (m, n)], strict=True):
            seen = {(row(g, t, i), column(g, t, i)) for g in range(8) for t in range(4) for i in range(count)}
            assert seen == {(r, c) for r in range(rows) for c in range(columns)}
            assert 32 * count == rows * columns


@each_case
def test_product_of_integer_matrices(shape, kind, d_kind):
    m, n, k = layout(shape, kind)[0]
    a, b, c = integers(m, k), integers(k, n), integers(m, n)
    assert_product(shape, kind, d_kind, a, b, c, a @ b + c)


@each_case
def test_each_element_of_a_and_b_meets_its_partner(shape, kind, d_kind):
    """One element of A and one of B are not zero: every pair, each in a warp of its own."""
    m, n, k = layout(shape, kind)[0]
    a, b = np.zeros((m * k, m, k)), np.zeros((m * k, k, n))
    row, inner = np.divmod(np.arange(m * k), k)
    a[np.arange(m * k), row, inner] = 2.0
    b[:] = 1 + np.arange(k)[:, None] + 16 * np.arange(n)
    wanted = np.zeros((m * k, m, n))
    wanted[np.arange(m * k), row] = 2.0 * (1 + inner[:, None] + 16 * np.arange(n))
    assert_product(shape, kind, d_kind, a, b, np.zeros((m * k, m, n)), wanted)


@each_case
def test_a_permuted_layout_is_noticed(shape, kind, d_kind):
    """Two registers or two lanes of one operand change places: the product is another one."""
    m, n, k = layout(shape, kind)[0]
    a, b, c = integers(m, k), integers(k, n), integers(m, n)
    registers = operands(shape, kind, d_kind, a, b, c)
    right = np.stack(tensor_core.mma(shape, kind, kind, d_kind, *registers))
    for operand in range(3):
        for lane in (1, 4):
            changed = [list(r) for r in registers]
            changed[operand] = [np.roll(r, lane, axis=1) for r in registers[operand]]
            assert (np.stack(tensor_core.mma(shape, kind, kind, d_kind, *changed)) != right).any()
        if len(registers[operand]) > 1:
            changed = [list(r) for r in registers]
            changed[operand] = registers[operand][::-1]
            assert (np.stack(tensor_core.mma(shape, kind, kind, d_kind, *changed)) != right).any()


def test_products_and_sums_are_rounded_once():
    """2048 + 1 + ... is lost in float16 and kept in float32; a sum beyond float16 is infinite; NaN and 0 * inf stay."""
    a, b, c = np.zeros((1, 16, 16)), np.zeros((1, 16, 8)), np.zeros((1, 16, 8))
    a[0, 0], b[0, :, 0] = 1.0, 1.0
    c[0, 0, 0] = 2048.0
    for d_kind in ("f32", "f16"):
        assert_product("m16n8k16", "f16", d_kind, a, b, c, a @ b + c)
    a[0, 1], b[0, :, 1] = 256.0, 256.0
    a[0, 2, 0], b[0, 0, 2] = np.inf, 0.0
    registers = operands("m16n8k16", "f16", "f16", a, b, c)
    first, second = (r[0] for r in tensor_core.mma("m16n8k16", "f16", "f16", "f16", *registers))
    halves = np.stack([first, second]).view(np.float16).reshape(2, 32, 2)
    assert halves[0, 0].tolist() == [2064.0, 16 * 256.0]  # lane 0 holds row 0, columns 0 and 1
    assert halves[0, 4, 1] == np.inf
    assert np.isnan(halves[0, 9, 0])


def test_tf32_drops_the_lower_13_bits():
    a, b, c = integers(16, 8), integers(8, 8), integers(16, 8)
    left, right, start = operands("m16n8k8", "tf32", "f32", a, b, c)
    left, right = ([r | np.uint32(0x1FFF) for r in registers] for registers in (left, right))
    result = tensor_core.mma("m16n8k8", "tf32", "tf32", "f32", left, right, start)
    np.testing.assert_array_equal(result, to_registers(a @ b + c, layout("m16n8k8", "tf32")[3], "f32"))
    as_floats = [r.view(np.float32) for r in left]
    np.testing.assert_array_equal(result, tensor_core.mma("m16n8k8", "tf32", "tf32", "f32", as_floats, right, start))


def test_float64_is_fused():
    """(1 + e)(1 - e) - 1 = -e * e, which a rounded product loses."""
    e = 2.0**-30
    a, b, c = np.zeros((1, 8, 4)), np.zeros((1, 4, 8)), np.zeros((1, 8, 8))
    a[0, 3, 1], b[0, 1, 5], c[0, 3, 5] = 1 + e, 1 - e, -1.0
    wanted = np.zeros((1, 8, 8))
    wanted[0, 3, 5] = -e * e
    assert_product("m8n8k4", "f64", "f64", a, b, c, wanted)


@pytest.mark.parametrize(
    "shape, a_kind, b_kind, d_kind",
    [
        ("m16n8k16", "tf32", "tf32", "f32"),
        ("m16n8k16", "f16", "bf16", "f32"),
        ("m16n8k16", "bf16", "bf16", "f16"),
        ("m8n8k4", "f16", "f16", "f32"),
        ("m16n8k32", "s8", "s8", "s32"),
    ],
)
def test_unknown_products_are_refused(shape, a_kind, b_kind, d_kind):
    with pytest.raises(StateError, match=f"mma: got {shape}"):
        tensor_core.mma(shape, a_kind, b_kind, d_kind, [], [], [])


def test_a_wrong_number_of_registers_is_refused():
    a, b, c = operands("m16n8k16", "f16", "f32", integers(16, 16), integers(16, 8), integers(16, 8))
    with pytest.raises(ShapeError, match="b: got 1 registers, wanted 2"):
        tensor_core.mma("m16n8k16", "f16", "f16", "f32", a, b[:1], c)


# ---- ldmatrix, stmatrix, movmatrix: thread 8m + r gives the address of row r of matrix m; lane l holds elements
# 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4, with .trans of column l / 4.


def halves_of(register, warp, lane):
    return int(register[warp, lane]) & 0xFFFF, int(register[warp, lane]) >> 16


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count, transposed):
    rows = generator.integers(0, 2**16, (WARPS, 32, 8), dtype=np.uint16)
    registers = tensor_core.ldmatrix(rows, count, transposed)
    assert len(registers) == count and all(r.shape == (WARPS, 32) and r.dtype == np.uint32 for r in registers)
    for warp in range(WARPS):
        for m in range(count):
            for lane in range(32):
                places = [(lane // 4, 2 * (lane % 4)), (lane // 4, 2 * (lane % 4) + 1)]
                if transposed:
                    places = [(column, row) for row, column in places]
                wanted = tuple(int(rows[warp, 8 * m + row, column]) for row, column in places)
                assert halves_of(registers[m], warp, lane) == wanted
    np.testing.assert_array_equal(tensor_core.stmatrix(registers, transposed), rows[:, : 8 * count])


def test_movmatrix_transposes():
    rows = generator.integers(0, 2**16, (WARPS, 32, 8), dtype=np.uint16)
    moved = tensor_core.movmatrix(tensor_core.ldmatrix(rows, 1)[0])
    for warp in range(WARPS):
        for lane in range(32):
            wanted = (rows[warp, 2 * (lane % 4), lane // 4], rows[warp, 2 * (lane % 4) + 1, lane // 4])
            assert halves_of(moved, warp, lane) == wanted
