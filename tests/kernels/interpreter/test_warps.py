"""Instructions of whole warps, executed from PTX, against the manual's rules, one lane at a time.

Of tensor cores the manual gives formulas: row and column of element i of the lane with groupID g = lane >> 2 and
threadID_in_group t = lane % 4.
"""

import functools
import operator

import numpy as np
import pytest

from minigrad_kernels.errors import StateError
from minigrad_kernels.interpreter import interpret

from .ptx import kernel

THREADS = 64
generator = np.random.default_rng(20240615)


def run(body, *arrays, threads=THREADS):
    """Execute lines of PTX by one block; %rd30, %rd31 ... point at this thread's row of each array (threads, ...)."""
    lines = ["mov.u32 %r50, %tid.x; mov.u32 %r51, %laneid;"]
    for i, array in enumerate(arrays):
        lines.append(f"mad.wide.u32 %rd{30 + i}, %r50, {array.itemsize * (array.size // threads)}, %rd{i};")
    text = kernel("\n".join([*lines, body]), "u64 " * len(arrays), ".shared .align 16 .b8 tile[4096];")
    report = interpret(text, (1,), (threads,), arrays)
    assert not report.faults, [str(fault) for fault in report.faults]


def random_bits(*shape):
    return generator.integers(0, 2**32, shape, dtype=np.uint32)


# ---- shuffles, votes, reductions -------------------------------------------------------------------------------------


def shuffle_by_the_manual(mode, a, b, c):
    """The pseudo-code of shfl: one warp, lists of 32 numbers."""
    results, predicates = [], []
    for lane in range(32):
        bval, cval, mask = b[lane] & 31, c[lane] & 31, (c[lane] >> 8) & 31
        max_lane, min_lane = (lane & mask) | (cval & ~mask & 31), lane & mask
        j = {"up": lane - bval, "down": lane + bval, "bfly": lane ^ bval, "idx": min_lane | (bval & ~mask & 31)}[mode]
        pval = j >= max_lane if mode == "up" else j <= max_lane
        results.append(a[j if pval else lane])
        predicates.append(int(pval))
    return results, predicates


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(mode):
    """With any operands; and in segments of each width, as CUDA uses it: c = (32 - width) << 8 | 31."""
    body = f"""ld.global.u32 %r1, [%rd30]; ld.global.u32 %r2, [%rd31]; ld.global.u32 %r3, [%rd32];
    shfl.sync.{mode}.b32 %r4|%p1, %r1, %r2, %r3, 0xffffffff;
    selp.u32 %r5, 1, 0, %p1; st.global.v2.u32 [%rd33], {{%r4, %r5}};"""
    a, b, c = random_bits(3, THREADS * 16)
    widths = np.repeat([1, 2, 4, 8, 16, 32], 64).astype(np.uint32)
    c[: len(widths)] = (32 - widths) << 8 | (0 if mode == "up" else 31)
    for first in range(0, len(a), THREADS):
        part = [x[first : first + THREADS] for x in (a, b, c)]
        result = np.zeros((THREADS, 2), np.uint32)
        run(body, *part, result)
        for warp in (slice(0, 32), slice(32, 64)):
            wanted = shuffle_by_the_manual(mode, *(x[warp].tolist() for x in part))
            assert (result[warp, 0].tolist(), result[warp, 1].tolist()) == wanted


REDUCTIONS = {
    "add": (operator.add, "u32 s32"), "min": (min, "u32 s32"), "max": (max, "u32 s32"), "and": (operator.and_, "b32"),
    "or": (operator.or_, "b32"), "xor": (operator.xor, "b32"),
}  # fmt: skip


def test_the_two_sides_of_a_branch_vote_match_and_reduce_apart():
    """Lanes below 20 and the others have their own member masks; one value for all, for some, and different ones."""
    reductions = [(name, kind) for name, (_, kinds) in REDUCTIONS.items() for kind in kinds.split()]
    side = """
    vote.sync.ballot.b32 %r2, %p1, {mask}; vote.sync.any.pred %p2, %p1, {mask}; vote.sync.all.pred %p3, !%p1, {mask};
    vote.sync.uni.pred %p4, %p1, {mask}; match.any.sync.b32 %r3, %r1, {mask}; mov.u32 %r42, 0;
    match.all.sync.b32 %r4|%p5, %r1, {mask}; elect.sync %r5|%p6, {mask};
    mov.b64 %rd9, {{%r42, %r1}}; match.any.sync.b64 %r6, %rd9, {mask};"""
    for i, (name, kind) in enumerate(reductions):
        side += f"redux.sync.{name}.{kind} %r10, %r1, {{mask}}; st.global.u32 [%rd31+{4 * i}], %r10;\n"
    body = f"""
    ld.global.u32 %r1, [%rd30]; setp.eq.u32 %p1, %r1, 1; setp.lt.u32 %p0, %r51, 20; @%p0 bra LOW;
    {side.format(mask="0xfff00000")} bra END;
    LOW: {side.format(mask="0x000fffff")}
    END: selp.u32 %r7, 1, 0, %p2; selp.u32 %r8, 1, 0, %p3; selp.u32 %r9, 1, 0, %p4; selp.u32 %r40, 1, 0, %p5;
    selp.u32 %r41, 1, 0, %p6; st.global.v4.u32 [%rd32], {{%r2, %r7, %r8, %r9}};
    st.global.v4.u32 [%rd32+16], {{%r3, %r4, %r40, %r6}}; st.global.v2.u32 [%rd32+32], {{%r5, %r41}};"""
    for top in (1, 2, 3, 1 << 32):
        x = generator.integers(0, top, THREADS, dtype=np.uint64).astype(np.uint32)
        reduced, results = np.zeros((THREADS, 9), np.uint32), np.zeros((THREADS, 12), np.uint32)
        run(body, x, reduced, results)
        for thread in range(THREADS):
            lanes = range(20) if thread % 32 < 20 else range(20, 32)
            values = {lane: int(x[thread // 32 * 32 + lane]) for lane in lanes}
            ones, members = (sum(1 << lane for lane in lanes if test(values[lane])) for test in (
                lambda v: v == 1, lambda v: True))  # fmt: skip
            same = sum(1 << lane for lane, value in values.items() if value == x[thread])
            every = len(set(values.values())) == 1
            assert results[thread, :8].tolist() == [
                ones, ones != 0, ones == 0, ones in (0, members), same, members * every, every, same,
            ]  # fmt: skip
            assert results[thread, 8:10].tolist() == [lanes[0], thread % 32 == lanes[0]]
            signed = [v - (1 << 32) * (v >> 31) for v in values.values()]
            numbers = {"u32": values.values(), "s32": signed, "b32": values.values()}
            wanted = [functools.reduce(REDUCTIONS[name][0], numbers[kind]) % 2**32 for name, kind in reductions]
            assert reduced[thread].tolist() == wanted


def test_which_lanes_are_active():
    body = """and.b32 %r1, %r51, 3; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0; @%p1 bra OUT; activemask.b32 %r2;
    OUT: st.global.u32 [%rd30], %r2;"""
    out = np.zeros(32, np.uint32)
    run(body, out, threads=32)
    assert out.tolist() == [0 if i % 4 == 0 else 0xEEEEEEEE for i in range(32)]


# ---- tensor cores ----------------------------------------------------------------------------------------------------

ACCUMULATOR = (4, lambda g, t, i: g if i < 2 else g + 8, lambda g, t, i: t * 2 + (i & 1))
# (shape, bits): (m, n, k), then elements in a lane's fragment and their row and column, for A and B.
LAYOUTS = {
    ("m16n8k16", 16): (
        (16, 8, 16),
        (8, lambda g, t, i: g + 8 * (i // 2 % 2), lambda g, t, i: t * 2 + (i & 1) + 8 * (i >= 4)),
        (4, lambda g, t, i: t * 2 + (i & 1) + 8 * (i >= 2), lambda g, t, i: g),
    ),
    ("m16n8k8", 16): (
        (16, 8, 8),
        (4, lambda g, t, i: g if i in (0, 1) else g + 8, lambda g, t, i: t * 2 + (i & 1)),
        (2, lambda g, t, i: t * 2 + i, lambda g, t, i: g),
    ),
    ("m16n8k8", 32): (
        (16, 8, 8),
        (4, lambda g, t, i: g if i in (0, 2) else g + 8, lambda g, t, i: t if i in (0, 1) else t + 4),
        (2, lambda g, t, i: t if i == 0 else t + 4, lambda g, t, i: g),
    ),
    ("m16n8k4", 32): (
        (16, 8, 4),
        (2, lambda g, t, i: g if i == 0 else g + 8, lambda g, t, i: t),
        (1, lambda g, t, i: t, lambda g, t, i: g),
    ),
}  # fmt: skip
CASES = [
    ("m16n8k16", "f16", "f32"), ("m16n8k16", "f16", "f16"), ("m16n8k16", "bf16", "f32"), ("m16n8k8", "f16", "f32"),
    ("m16n8k8", "f16", "f16"), ("m16n8k8", "bf16", "f32"), ("m16n8k8", "tf32", "f32"), ("m16n8k4", "tf32", "f32"),
]  # fmt: skip


def to_registers(matrices, fragment, kind):
    """Matrices (warps, rows, columns) as (threads, registers): elements from low to high, of 16 bits two in each."""
    count, row, column = fragment
    places = [[[at(lane >> 2, lane % 4, i) for i in range(count)] for lane in range(32)] for at in (row, column)]
    elements = matrices[:, *map(np.array, places)].reshape(-1, count)
    with np.errstate(all="ignore"):
        if kind == "f16":
            return elements.astype(np.float16).view(np.uint32)
    words = elements.astype(np.float32).view(np.uint32)
    return (words >> 16).astype(np.uint16).view(np.uint32) if kind == "bf16" else words


def product(shape, kind, d_kind, a, b, c):
    """(registers of d, the layout): what mma makes of matrices (warps, ...)."""
    _, of_a, of_b = LAYOUTS[shape, 32 if kind == "tf32" else 16]
    operands = [to_registers(*x) for x in ((a, of_a, kind), (b, of_b, kind), (c, ACCUMULATOR, d_kind))]
    columns = [x.shape[1] for x in operands]
    starts = zip((0, 8, 12, 16), (*columns, columns[2]), strict=True)
    names = [[f"%x{first + i}" for i in range(count)] for first, count in starts]
    body = [".reg .b32 %x<24>;"]
    for i, row in enumerate(names[:3]):
        body += [f"ld.global.b32 {name}, [%rd{30 + i}+{4 * j}];" for j, name in enumerate(row)]
    lists = ["{" + ", ".join(row) + "}" for row in names]
    body.append(f"mma.sync.aligned.{shape}.row.col.{d_kind}.{kind}.{kind}.{d_kind} {lists[3]}, {', '.join(lists[:3])};")
    body += [f"st.global.b32 [%rd33+{4 * j}], {name};" for j, name in enumerate(names[3])]
    result = np.zeros_like(operands[2])
    run("\n".join(body), *operands, result, threads=32 * len(a))
    return result


@pytest.mark.parametrize("shape, kind, d_kind", CASES)
def test_mma(shape, kind, d_kind):
    """Small whole numbers; and every element of A by itself meets its partners in B, each pair in a warp of its own."""
    (m, n, k), *_ = LAYOUTS[shape, 32 if kind == "tf32" else 16]
    a, b, c = (generator.integers(-8, 9, (3, *size)).astype(float) for size in ((m, k), (k, n), (m, n)))
    assert np.array_equal(product(shape, kind, d_kind, a, b, c), to_registers(a @ b + c, ACCUMULATOR, d_kind))
    for first in range(0, m * k, 32):
        number = np.arange(first, min(first + 32, m * k))
        a, b = np.zeros((len(number), m, k)), np.zeros((len(number), k, n))
        a[np.arange(len(number)), number // k, number % k] = 2.0
        b[:] = 1 + np.arange(k)[:, None] + 16 * np.arange(n)
        none = np.zeros((len(number), m, n))
        assert np.array_equal(product(shape, kind, d_kind, a, b, none), to_registers(a @ b, ACCUMULATOR, d_kind))


def test_products_are_rounded_once():
    """2048 + 1 + ... is lost in float16 and kept in float32; a sum beyond float16 is infinite; 0 * inf is NaN.

    TF32 drops the lower 13 bits of its operands.
    """
    a, b, c = np.zeros((1, 16, 16)), np.zeros((1, 16, 8)), np.zeros((1, 16, 8))
    a[0, 0], b[0, :, 0], c[0, 0, 0] = 1.0, 1.0, 2048.0
    a[0, 1], b[0, :, 1] = 256.0, 256.0
    a[0, 2, 0] = np.inf
    with np.errstate(all="ignore"):
        exact = a @ b + c
        wanted = exact.astype(np.float16)
    for d_kind in ("f32", "f16"):
        found = product("m16n8k16", "f16", d_kind, a, b, c).view(np.float32 if d_kind == "f32" else np.float16)
        expected = to_registers(exact, ACCUMULATOR, d_kind).view(found.dtype)
        np.testing.assert_array_equal(found, expected)
    assert wanted[0, 0, 0] == 2064 and wanted[0, 1, 1] == np.inf and np.isnan(wanted[0, 2, 2])
    a, b = (generator.integers(-8, 9, (1, *size)).astype(np.float32) for size in ((16, 8), (8, 8)))
    noisy = [(x.view(np.uint32) | np.uint32(0x1FFF) * (x != 0)).view(np.float32) for x in (a, b)]
    zeros = np.zeros((1, 16, 8))
    assert np.array_equal(*(product("m16n8k8", "tf32", "f32", *pair, zeros) for pair in ((a, b), noisy)))


@pytest.mark.parametrize("form, message", [
    ("m16n8k16.row.col.f32.tf32.tf32.f32", "shape or types"), ("m16n8k16.row.col.f32.f16.bf16.f32", "shape or types"),
    ("m16n8k16.row.col.f32.f16.f16.f32", "list of registers"), ("m16n8k16.col.row.f32.f16.f16.f32", "not known"),
])  # fmt: skip
def test_unknown_products_are_refused(form, message):
    with pytest.raises(StateError, match=message):
        run(f"mma.sync.aligned.{form} {{%r1}}, {{%r2}}, {{%r3}}, {{%r4}};")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, transposed):
    """Thread 8m + r gives the address of row r of matrix m; lane l gets elements 2 * (l % 4) and the next of row l / 4,
    with .trans of column l / 4.
    """
    rows, result = (
        generator.integers(0, 2**16, (THREADS, 8), dtype=np.uint16),
        np.zeros((THREADS, 2 * count), np.uint16),
    )
    names = ", ".join(f"%r{i}" for i in range(count))
    body = f"""
    mov.u32 %r20, tile; shl.b32 %r21, %r50, 4; add.u32 %r21, %r21, %r20;
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd30];
    st.shared.v4.u32 [%r21], {{%r10, %r11, %r12, %r13}}; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{count}{".trans" * transposed}.shared.b16 {{{names}}}, [%r21];
    """ + "".join(f"st.global.u32 [%rd31+{4 * i}], %r{i};" for i in range(count))
    run(body, rows, result)
    matrices = rows.reshape(2, 4, 8, 8)[:, :count]
    wanted = (matrices.swapaxes(2, 3) if transposed else matrices).reshape(2, count, 32, 2)
    np.testing.assert_array_equal(result.reshape(2, 32, count, 2), wanted.swapaxes(1, 2))
