"""Instructions of whole warps and conversions, executed from PTX: shfl, vote, match, redux, mma, ldmatrix, cvt."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import formats, interpret

from .test_interpreter_tensor_core import layout, to_registers
from .test_interpreter_warp import shuffle_by_the_manual

THREADS = 64
generator = np.random.default_rng(20240615)
HEAD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel({parameters})
{{
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<40>;
.reg .f32 %f<20>;
.reg .f64 %d<20>;
.reg .b64 %a<40>;
.shared .align 16 .b8 tile[4096];
"""


def run(body, *arrays, threads=THREADS):
    """Execute lines of PTX by one block; %a0, %a1 ... point at this thread's row of each array (threads, ...)."""
    lines = [
        HEAD.format(parameters=", ".join(f".param .u64 q{i}" for i in range(len(arrays)))),
        "mov.u32 %r39, %tid.x;",
    ]
    for i, array in enumerate(arrays):
        step = array.itemsize * (array.size // threads)
        lines += [f"ld.param.u64 %a{i}, [q{i}];", f"mad.wide.u32 %a{i}, %r39, {step}, %a{i};"]
    report = interpret("\n".join([*lines, body, "ret;", "}"]), (1,), (threads,), arrays)
    assert not report.faults


def random_bits(*shape):
    return generator.integers(0, 2**32, shape, dtype=np.uint32)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(mode):
    a, b, c = random_bits(THREADS), random_bits(THREADS), random_bits(THREADS)
    result, predicate = np.zeros((2, THREADS), np.uint32)
    body = f"""
    ld.global.u32 %r1, [%a0];
    ld.global.u32 %r2, [%a1];
    ld.global.u32 %r3, [%a2];
    shfl.sync.{mode}.b32 %r4|%p1, %r1, %r2, %r3, 0xffffffff;
    selp.u32 %r5, 1, 0, %p1;
    st.global.u32 [%a3], %r4;
    st.global.u32 [%a4], %r5;
    """
    run(body, a, b, c, result, predicate)
    for first in range(0, THREADS, 32):
        warp = slice(first, first + 32)
        wanted = shuffle_by_the_manual(mode, *(array[warp].tolist() for array in (a, b, c)))
        assert (result[warp].tolist(), predicate[warp].astype(bool).tolist()) == wanted


def test_vote_match_and_redux_of_the_two_sides_of_a_branch():
    """Lanes below 20 and the others meet apart, each side with its own member mask."""
    x = generator.integers(0, 3, THREADS).astype(np.uint32)
    results = np.zeros((THREADS, 8), np.uint32)
    side = """
    setp.eq.u32 %p1, %r1, 1;
    vote.sync.ballot.b32 %r2, %p1, {mask};
    vote.sync.any.pred %p2, %p1, {mask};
    vote.sync.all.pred %p3, !%p1, {mask};
    vote.sync.uni.pred %p4, %p1, {mask};
    match.any.sync.b32 %r3, %r1, {mask};
    match.all.sync.b32 %r4|%p5, %r5, {mask};
    redux.sync.add.s32 %r6, %r1, {mask};
    redux.sync.max.u32 %r7, %r1, {mask};
    """
    body = f"""
    ld.global.u32 %r1, [%a0];
    mov.u32 %r8, %laneid;
    setp.lt.u32 %p0, %r8, 20;
    selp.u32 %r5, 7, 8, %p0;
    @%p0 bra LOW;
    {side.format(mask="0xfff00000")}
    bra END;
LOW:
    {side.format(mask="0x000fffff")}
END:
    selp.u32 %r10, 1, 0, %p2;
    selp.u32 %r11, 1, 0, %p3;
    selp.u32 %r12, 1, 0, %p4;
    st.global.v4.u32 [%a1], {{%r2, %r10, %r11, %r12}};
    st.global.v4.u32 [%a1+16], {{%r3, %r4, %r6, %r7}};
    """
    run(body, x, results)
    for thread in range(THREADS):
        start = thread // 32 * 32
        lanes = range(20) if thread % 32 < 20 else range(20, 32)
        values = {lane: int(x[start + lane]) for lane in lanes}
        ones = sum(1 << lane for lane, value in values.items() if value == 1)
        members = sum(1 << lane for lane in lanes)
        same = sum(1 << lane for lane, value in values.items() if value == x[thread])
        votes = [ones != 0, ones == 0, ones in (0, members)]
        assert results[thread].tolist() == [ones, *votes, same, members, sum(values.values()), max(values.values())]


def test_match_of_64_bits():
    x = generator.integers(0, 2, THREADS).astype(np.uint64) << np.uint64(40)
    result = np.zeros(THREADS, np.uint32)
    body = """
    ld.global.u64 %a9, [%a0];
    match.any.sync.b64 %r1, %a9, 0xffffffff;
    st.global.u32 [%a1], %r1;
    """
    run(body, x, result)
    for thread in range(THREADS):
        warp = x[thread // 32 * 32 :][:32]
        assert result[thread] == sum(1 << lane for lane in range(32) if warp[lane] == x[thread])


def names(prefix, registers, first):
    return [f"%{prefix}{first + i}" for i in range(len(registers))]


@pytest.mark.parametrize(
    "shape, kind, d_kind",
    [
        ("m16n8k16", "f16", "f32"),
        ("m16n8k16", "f16", "f16"),
        ("m16n8k8", "bf16", "f32"),
        ("m16n8k8", "tf32", "f32"),
        ("m16n8k8", "f64", "f64"),
    ],
)
def test_mma(shape, kind, d_kind):
    (m, n, k), of_a, of_b, of_c = layout(shape, kind)
    a, b, c = (generator.integers(-8, 9, (2, *size)).astype(float) for size in ((m, k), (k, n), (m, n)))
    operands = [to_registers(a, of_a, kind), to_registers(b, of_b, kind), to_registers(c, of_c, d_kind)]
    wanted = to_registers(a @ b + c, of_c, d_kind)
    inputs, outputs = ("d", "d") if kind == "f64" else ("r", "r" if d_kind == "f16" else "f")
    operand_names = [names(inputs, operands[0], 0), names(inputs, operands[1], 8), names(outputs, operands[2], 12)]
    d_names = names(outputs, wanted, 16)
    width = 8 if kind == "f64" else 4
    body = []
    for i, registers in enumerate(operand_names):
        body += [f"ld.global.b{8 * width} {name}, [%a{i}+{j * width}];" for j, name in enumerate(registers)]
    lists = ", ".join("{" + ", ".join(registers) + "}" for registers in (d_names, *operand_names))
    body += [f"mma.sync.aligned.{shape}.row.col.{d_kind}.{kind}.{kind}.{d_kind} {lists};"]
    body += [f"st.global.b{8 * width} [%a3+{j * width}], {name};" for j, name in enumerate(d_names)]
    arrays = [np.stack([register.reshape(-1) for register in operand], axis=1) for operand in operands]
    result = np.zeros((THREADS, len(wanted)), wanted[0].dtype)
    run("\n".join(body), *arrays, result)
    np.testing.assert_array_equal(result, np.stack([register.reshape(-1) for register in wanted], axis=1))


def test_ldmatrix_feeds_mma():
    """A lies in shared memory by rows and is loaded as it lies; B too, and is transposed on the way."""
    a, b = (generator.integers(-8, 9, shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    result = np.zeros((16, 8), np.float32)
    # Each lane copies 16 bytes of A and 8 of B. Lane l gives the row l % 16 of A from column 8 * (l / 16) on; the
    # accumulators go to row l / 4 and l / 4 + 8, columns 2 * (l % 4) and the next.
    body = """
    mov.u32 %r20, tile;
    shl.b32 %r21, %r39, 4;
    add.u32 %r21, %r21, %r20;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a0];
    st.shared.v4.u32 [%r21], {%r1, %r2, %r3, %r4};
    shl.b32 %r22, %r39, 3;
    add.u32 %r22, %r22, %r20;
    ld.global.v2.u32 {%r1, %r2}, [%a1];
    st.shared.v2.u32 [%r22+512], {%r1, %r2};
    bar.sync 0;
    and.b32 %r23, %r39, 15;
    shl.b32 %r24, %r23, 5;
    shr.u32 %r25, %r39, 4;
    shl.b32 %r25, %r25, 4;
    add.u32 %r24, %r24, %r25;
    add.u32 %r24, %r24, %r20;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r24];
    shl.b32 %r26, %r23, 4;
    add.u32 %r26, %r26, %r20;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r5, %r6}, [%r26+512];
    mov.f32 %f0, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f0, %f0, %f0, %f0};
    ld.param.u64 %a2, [q2];
    mad.wide.u32 %a2, %r39, 8, %a2;
    st.global.v2.f32 [%a2], {%f1, %f2};
    st.global.v2.f32 [%a2+256], {%f3, %f4};
    """
    run(body, a, b, result, threads=32)
    np.testing.assert_array_equal(result, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_and_movmatrix(count):
    """Fragments are transposed in registers and stored transposed: the rows come out as they went in."""
    rows = generator.integers(0, 2**16, (THREADS, 8), dtype=np.uint16)
    result = np.zeros((THREADS, 8), np.uint16)
    registers = [f"%r{1 + i}" for i in range(count)]
    fragment = "{" + ", ".join(registers) + "}"
    moves = "\n".join(f"movmatrix.sync.aligned.m8n8.trans.b16 {r}, {r};" for r in registers)
    body = f"""
    mov.u32 %r20, tile;
    shl.b32 %r21, %r39, 4;
    add.u32 %r21, %r21, %r20;
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%a0];
    st.shared.v4.u32 [%r21], {{%r10, %r11, %r12, %r13}};
    st.shared.v4.u32 [%r21+2048], {{%r10, %r11, %r12, %r13}};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {fragment}, [%r21];
    {moves}
    stmatrix.sync.aligned.m8n8.x{count}.trans.shared.b16 [%r21+2048], {fragment};
    bar.sync 0;
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r21+2048];
    st.global.v4.u32 [%a1], {{%r10, %r11, %r12, %r13}};
    """
    run(body, rows, result)
    np.testing.assert_array_equal(result, rows)


def test_cvt_between_floats():
    x = np.concatenate(
        [generator.standard_normal(56) * 1e4, [0.5, 65520, 1e-40, 3.4e38, np.inf, -np.inf, np.nan, -0.0]]
    )
    x = x.astype(np.float32)
    results = np.zeros((THREADS, 8), np.uint32)
    body = """
    ld.global.f32 %f1, [%a0];
    neg.f32 %f2, %f1;
    cvt.rn.bf16x2.f32 %r1, %f1, %f2;
    cvt.rz.f16x2.f32 %r2, %f1, %f2;
    cvt.rna.tf32.f32 %r3, %f1;
    cvt.rn.bf16.f32 %h1, %f1;
    cvt.u32.u16 %r4, %h1;
    cvt.rn.satfinite.f16.f32 %h2, %f1;
    cvt.u32.u16 %r5, %h2;
    cvt.rzi.s32.f32 %r6, %f1;
    cvt.rpi.u32.f32 %r7, %f1;
    cvt.f64.f32 %d1, %f1;
    mul.rn.f64 %d1, %d1, 0d3FF0000000000001;
    cvt.rp.f32.f64 %f3, %d1;
    st.global.v4.u32 [%a1], {%r1, %r2, %r3, %r4};
    st.global.v4.b32 [%a1+16], {%r5, %r6, %r7, %f3};
    """
    run(body, x, results)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) * (1 + 2.0**-52)
        bfloat = [formats.round_to_bfloat16(v).astype(np.uint32) for v in (x, -x)]
        half = [formats.round_to_float16(v, "rz").view(np.uint16).astype(np.uint32) for v in (x, -x)]
    wanted = [
        bfloat[0] << np.uint32(16) | bfloat[1],
        half[0] << np.uint32(16) | half[1],
        formats.round_to_tf32(x),
        bfloat[0],
        formats.round_to_float16(x, "rn", saturate=True).view(np.uint16),
        formats.round_to_integer(x, np.int32, "rzi").view(np.uint32),
        formats.round_to_integer(x, np.uint32, "rpi"),
    ]
    for column, expected in enumerate(wanted):
        np.testing.assert_array_equal(results[:, column], expected)
    np.testing.assert_array_equal(results[:, 7].view(np.float32), formats.round_to_float32(wide, "rp"))
