"""Interpreting kernels: grids, divergence, barriers, memories, atomics, calls."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import array, empty, interpret

from .ptx import kernel

GLOBAL_INDEX = """
mov.u32 %r40, %ctaid.x; mov.u32 %r41, %ntid.x; mov.u32 %r42, %tid.x;
mad.lo.u32 %r40, %r40, %r41, %r42;
"""


def at(pointer, index="%r40", size=4, to="%rd50"):
    """The address of an element."""
    return f"mad.wide.u32 {to}, {index}, {size}, {pointer};"


COPY = GLOBAL_INDEX + at("%rd0") + "ld.global.f32 %f10, [%rd50];" + at("%rd1") + "st.global.f32 [%rd50], %f10;"


def run(body, grid, block, *arguments, parameters=None, outside="", **options):
    """The report of a kernel in which nothing is wrong."""
    parameters = parameters or "u64 " * len(arguments)
    report = interpret(kernel(body, parameters, outside), grid, block, arguments, **options)
    assert not report.faults, [str(fault) for fault in report.faults]
    return report


@pytest.mark.parametrize("blocks, threads", [(1, 1), (1, 33), (3, 33), (1, 1024), (7, 1000), (300, 64), (5000, 1)])
def test_every_thread_of_every_block_runs_once(blocks, threads):
    x = np.random.default_rng(0).standard_normal(blocks * threads).astype(np.float32)
    out = empty(x.shape)
    report = run(COPY, (blocks,), (threads,), x, out)
    assert np.array_equal(out, x)
    assert list(report.outputs) == ["1"] and report.outputs["1"] is out
    warps = blocks * -(-threads // 32)
    assert report.counts.instructions["ld.global.f32"] == warps


def test_grids_and_blocks_of_three_axes():
    names = [f"%{what}.{axis}" for what in ("tid", "ctaid", "ntid", "nctaid") for axis in "xyz"]
    reads = "\n".join(f"mov.u32 %r{i}, {name};" for i, name in enumerate(names))
    number = """
    mad.lo.u32 %r20, %r5, %r10, %r4; mad.lo.u32 %r20, %r20, %r9, %r3;
    mad.lo.u32 %r20, %r20, %r8, %r2; mad.lo.u32 %r20, %r20, %r7, %r1; mad.lo.u32 %r20, %r20, %r6, %r0;
    """ + at("%rd0", "%r20", 48)
    stores = "\n".join(f"st.global.u32 [%rd50+{4 * i}], %r{i};" for i in range(12))
    grid, block = (3, 2, 4), (5, 3, 2)
    out = empty((*grid[::-1], *block[::-1], 12), np.uint32)
    run(reads + number + stores, grid, block, out)
    z, y, x, k, j, i = np.indices(out.shape[:-1], np.uint32)
    sizes = [np.full(x.shape, size, np.uint32) for size in (*block, *grid)]
    assert np.array_equal(out, np.stack([i, j, k, x, y, z, *sizes], axis=-1))


def test_lanes_and_their_masks():
    names = ["laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"]
    body = "mov.u32 %r30, %tid.x;" + at("%rd0", "%r30", 32)
    body += "".join(f"mov.u32 %r1, %{name}; st.global.u32 [%rd50+{4 * i}], %r1;" for i, name in enumerate(names))
    out = empty((70, 8), np.uint32)
    run(body, (1,), (70,), out)
    for thread, row in enumerate(out.tolist()):
        lane = thread % 32
        below = (1 << lane) - 1
        above = 0xFFFFFFFF ^ below ^ 1 << lane
        assert row == [lane, thread // 32, 3, 1 << lane, below, below | 1 << lane, above, above | 1 << lane]


# ---- divergence --------------------------------------------------------------------------------------------------

NESTED = (
    GLOBAL_INDEX
    + """
mov.u32 %r1, 0;
setp.lt.u32 %p1, %r40, 100; @%p1 bra LOW;
and.b32 %r2, %r40, 1; setp.eq.u32 %p2, %r2, 0; @!%p2 bra ODD;
add.u32 %r1, %r1, 1000; bra DONE;
ODD: add.u32 %r1, %r1, 2000;
setp.gt.u32 %p3, %r40, 150; @%p3 add.u32 %r1, %r1, 7;
bra DONE;
LOW: setp.ge.u32 %p4, %r40, 50; @%p4 ret;
add.u32 %r1, %r1, 3000;
DONE: """
    + at("%rd0")
    + "st.global.u32 [%rd50], %r1;"
)


def test_nested_branches_and_early_return():
    out = np.full(224, 9, np.uint32)
    report = run(NESTED, (2,), (112,), out)
    expected = [
        (3000 if i < 50 else 9) if i < 100 else 1000 if i % 2 == 0 else 2007 if i > 150 else 2000 for i in range(224)
    ]
    assert out.tolist() == expected
    assert report.counts.instructions["setp.lt.u32"] == 8, "4 warps in each block, the last of 16 threads"


LOOP = (
    GLOBAL_INDEX
    + """
mov.u32 %r1, 0; mov.u32 %r2, 0;
AGAIN: setp.ge.u32 %p1, %r2, %r40; @%p1 bra OUT;
add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; bra AGAIN;
OUT: """
    + at("%rd0")
    + "st.global.u32 [%rd50], %r1;"
)


def test_loops_of_different_length():
    out = empty(96, np.uint32)
    report = run(LOOP, (1,), (96,), out)
    assert out.tolist() == [i * (i - 1) // 2 for i in range(96)]
    assert report.counts.instructions["st.global.u32"] == 3, "the lanes of a warp join again"
    assert report.counts.instructions["add.u32"] == 2 * (31 + 63 + 95), "as often as the longest lane of each warp"


def test_a_table_of_branches():
    body = (
        GLOBAL_INDEX
        + """
    and.b32 %r1, %r40, 3;
    targets: .branchtargets L0, L1, L0, L2;
    brx.idx %r1, targets;
    L0: mov.u32 %r2, 10; bra OUT;
    L1: mov.u32 %r2, 11; bra OUT;
    L2: mov.u32 %r2, 12;
    OUT: """
        + at("%rd0")
        + "st.global.u32 [%rd50], %r2;"
    )
    out = empty(64, np.uint32)
    run(body, (1,), (64,), out)
    assert out.tolist() == [10, 11, 10, 12] * 16


# ---- shared and local memory, barriers ----------------------------------------------------------------------------

TURN = """
mov.u32 %r30, %tid.x; mov.u32 %r31, %ntid.x; sub.u32 %r32, %r31, %r30; sub.u32 %r32, %r32, 1;
mov.u32 %r33, buffer; mad.lo.u32 %r34, %r30, 4, %r33; mad.lo.u32 %r35, %r32, 4, %r33;
""" + GLOBAL_INDEX + at("%rd0") + """
ld.global.u32 %r1, [%rd50]; st.shared.u32 [%r34], %r1;
bar.sync 0;
ld.shared.u32 %r2, [%r35]; st.global.u32 [%rd50], %r2;
"""  # fmt: skip


@pytest.mark.parametrize("threads", [1, 33, 64, 1000])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_block_turned_round_in_shared_memory(threads, dynamic):
    x = array(np.arange(5 * threads, dtype=np.uint32))
    outside = ".extern .shared .align 16 .b8 buffer[];" if dynamic else ".shared .align 4 .b8 buffer[4000];"
    report = run(TURN, (5,), (threads,), x, outside=outside, shared=4 * threads if dynamic else 0)
    assert np.array_equal(x.reshape(5, threads), np.arange(5 * threads).reshape(5, threads)[:, ::-1])
    assert report.counts.barriers == 5


def test_generic_addresses_reach_all_memories():
    body = """
    .local .align 8 .b8 mine[16]; .shared .align 8 .b8 ours[16];
    mov.u64 %rd10, mine; cvta.local.u64 %rd10, %rd10;
    mov.u64 %rd11, ours; cvta.shared.u64 %rd11, %rd11;
    mov.u32 %r1, 5; st.u32 [%rd10+4], %r1; st.u32 [%rd11+8], %r1; st.u32 [%rd0], %r1;
    cvta.to.local.u64 %rd12, %rd10; ld.local.u32 %r2, [%rd12+4];
    cvta.to.shared.u64 %rd13, %rd11; ld.shared.u32 %r3, [%rd13+8]; ld.u32 %r4, [%rd0];
    add.u32 %r5, %r2, %r3; add.u32 %r5, %r5, %r4; st.global.u32 [%rd0+4], %r5;
    """
    out = np.zeros(2, np.uint32)
    run(body, (1,), (1,), out)
    assert out.tolist() == [5, 15]


def test_constants_of_the_module_and_vectors():
    outside = ".const .align 8 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};"
    body = """
    ld.const.v4.u32 {%r1, _, %r3, %r4}, [table]; ld.const.u32 %r2, [table+4];
    st.global.v4.u32 [%rd0], {%r4, %r3, %r2, %r1};
    """
    out = np.zeros(4, np.uint32)
    run(body, (1,), (1,), out, outside=outside)
    assert out.tolist() == [4, 3, 2, 1]


def test_barriers_that_reduce_and_barriers_of_some_threads():
    body = (
        GLOBAL_INDEX
        + """
    setp.lt.u32 %p1, %r42, 5; bar.red.popc.u32 %r1, 0, %p1; bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, !%p1;
    selp.u32 %r2, 100, 0, %p2; selp.u32 %r3, 1000, 0, %p3; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    setp.ge.u32 %p4, %r42, 64; @%p4 bra OUT;
    bar.sync 1, 64;
    OUT: """
        + at("%rd0")
        + "st.global.u32 [%rd50], %r1;"
    )
    out = empty(192, np.uint32)
    report = run(body, (2,), (96,), out)
    assert (out == 105).all()
    assert report.counts.barriers == 2 * 4


def test_atomic_operations_in_the_order_of_threads():
    body = """
    mov.u32 %r30, %tid.x; cvt.rn.f32.u32 %f10, %r30;
    atom.global.add.u32 %r1, [%rd0], 1; red.global.max.u32 [%rd0+4], %r30; red.global.add.f32 [%rd0+8], %f10;
    atom.global.inc.u32 %r2, [%rd0+12], 9; atom.global.cas.b32 %r3, [%rd0+16], 0, 77;
    atom.global.exch.b32 %r4, [%rd0+20], %r30;
    """ + "".join(at("%rd1", "%r30", 16) + f"st.global.u32 [%rd50+{4 * i}], %r{i + 1};" for i in range(4))
    cells, old = np.zeros(6, np.uint32), empty((40, 4), np.uint32)
    run(body, (1,), (40,), cells, old)
    assert cells.tolist() == [40, 39, np.float32(780).view(np.uint32), 0, 77, 39]
    assert old[:, 0].tolist() == list(range(40))
    assert old[:, 1].tolist() == [i % 10 for i in range(40)]
    assert old[:, 2].tolist() == [0] + [77] * 39 and old[:, 3].tolist() == [0, *range(39)]
    total = np.zeros(1, np.uint64)
    run("red.global.add.u64 [%rd0], 3;", (100,), (50,), total)
    assert total[0] == 15000


CALLEE = """.func (.param .b32 twice_out) twice(.param .b32 twice_in)
{
.local .align 4 .b8 place[8]; .reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %rd<3>;
ld.param.b32 %r1, [twice_in]; mov.u64 %rd1, place; st.local.u32 [%rd1+4], %r1;
setp.gt.u32 %p1, %r1, 5; @%p1 bra BIG;
ld.local.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, %r1; st.param.b32 [twice_out], %r2; ret;
BIG: st.param.b32 [twice_out], 0; ret;
}"""


def test_functions_are_called():
    call = """{{ .param .b32 in; .param .b32 out;
    st.param.b32 [in], {0}; call.uni (out), twice, (in); ld.param.b32 {0}, [out]; }}"""
    body = GLOBAL_INDEX + "mov.u32 %r1, %r40;" + call.format("%r1") * 2 + at("%rd0") + "st.global.u32 [%rd50], %r1;"
    out = empty(8, np.uint32)
    run(body, (1,), (8,), out, outside=CALLEE)
    assert out.tolist() == [0, 4, 8, 0, 0, 0, 0, 0]


def test_what_orders_or_hints_changes_nothing():
    body = """
    prefetch.global.L2 [%rd0]; membar.gl; fence.acq_rel.gpu;
    ld.global.relaxed.gpu.L1::no_allocate.L2::128B.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1;
    st.global.wt.u32 [%rd0], %r1;
    """
    out = np.zeros(1, np.uint32)
    run(body, (1,), (1,), out)
    assert out.tolist() == [1]
