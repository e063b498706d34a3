"""Launches: grids, divergence, barriers, memories, atomics, calls; arguments, and what is refused."""

import gc

import numpy as np
import pytest

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.interpreter import Array, address, array, empty, interpret

from .ptx import clean, kernel, line_of

INDEX = """
mov.u32 %r40, %ctaid.x; mov.u32 %r41, %ntid.x; mov.u32 %r42, %tid.x; mad.lo.u32 %r40, %r40, %r41, %r42;
mad.wide.u32 %rd50, %r40, 4, %rd0;
"""
STORE = "st.global.u32 [%rd50], %r1;"


def run(body, grid, block, *arguments, parameters=None, outside="", **options):
    """The report of a kernel in which nothing is wrong."""
    parameters = parameters or "u64 " * len(arguments)
    return clean(interpret(kernel(body, parameters, outside), grid, block, arguments, **options))


def by_thread(body, grid, block, **options):
    """(what each thread leaves in %r1, the report)"""
    out = empty(grid * block, np.uint32)
    report = run(f"{INDEX}{body}{STORE}", (grid,), (block,), out, **options)
    return out.tolist(), report


def test_grids_and_blocks_of_three_axes():
    names = [f"%{what}.{axis}" for what in ("tid", "ctaid", "ntid", "nctaid") for axis in "xyz"]
    reads = "\n".join(f"mov.u32 %r{i}, {name};" for i, name in enumerate(names))
    number = """
    mad.lo.u32 %r20, %r5, %r10, %r4; mad.lo.u32 %r20, %r20, %r9, %r3; mad.lo.u32 %r20, %r20, %r8, %r2;
    mad.lo.u32 %r20, %r20, %r7, %r1; mad.lo.u32 %r20, %r20, %r6, %r0; mad.wide.u32 %rd50, %r20, 48, %rd0;
    """
    stores = "\n".join(f"st.global.u32 [%rd50+{4 * i}], %r{i};" for i in range(12))
    grid, block = (3, 2, 4), (5, 3, 2)
    out = empty((*grid[::-1], *block[::-1], 12), np.uint32)
    run(reads + number + stores, grid, block, out)
    z, y, x, k, j, i = np.indices(out.shape[:-1], np.uint32)
    sizes = [np.full(x.shape, size, np.uint32) for size in (*block, *grid)]
    assert np.array_equal(out, np.stack([i, j, k, x, y, z, *sizes], axis=-1))


# ---- divergence --------------------------------------------------------------------------------------------------


def test_branches_loops_and_early_returns():
    nested = """
    setp.lt.u32 %p1, %r40, 100; @%p1 bra LOW;
    and.b32 %r2, %r40, 1; setp.eq.u32 %p2, %r2, 0; @!%p2 bra ODD;
    mov.u32 %r1, 1000; bra DONE;
    ODD: mov.u32 %r1, 2000; setp.gt.u32 %p3, %r40, 150; @%p3 add.u32 %r1, %r1, 7; bra DONE;
    LOW: mov.u32 %r1, 9; st.global.u32 [%rd50], %r1; setp.ge.u32 %p4, %r40, 50; @%p4 ret;
    mov.u32 %r1, 3000;
    DONE: """
    values, report = by_thread(nested, 2, 112)
    high = lambda i: 1000 if i % 2 == 0 else 2007 if i > 150 else 2000
    assert values == [3000 if i < 50 else 9 if i < 100 else high(i) for i in range(224)]
    assert report.counts.instructions["setp.lt.u32"] == 8, "4 warps in each block, the last of 16 threads"
    loop = """
    mov.u32 %r1, 0; mov.u32 %r2, 0;
    AGAIN: setp.ge.u32 %p1, %r2, %r40; @%p1 bra OUT; add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; bra AGAIN;
    OUT: """
    values, report = by_thread(loop, 1, 96)
    assert values == [i * (i - 1) // 2 for i in range(96)]
    assert report.counts.instructions["st.global.u32"] == 3, "the lanes of a warp join again"
    assert report.counts.instructions["add.u32"] == 2 * (31 + 63 + 95), "as often as the longest lane of each warp"


# ---- memories, barriers, atomics, calls ----------------------------------------------------------------------------

TURN = """
mov.u32 %r33, buffer; sub.u32 %r32, %r41, %r42; mad.lo.u32 %r34, %r42, 4, %r33; mad.lo.u32 %r35, %r32, 4, %r33;
st.shared.u32 [%r34], %r40; bar.sync 0; ld.shared.u32 %r1, [%r35+-4];
"""


def test_a_block_turned_round_in_shared_memory():
    for threads in (1, 33, 1000):
        for outside, shared in (
            (".extern .shared .align 16 .b8 buffer[];", 4 * threads),
            (".shared .align 4 .b8 buffer[4000];", 0),
        ):
            values, report = by_thread(TURN, 5, threads, outside=outside, shared=shared)
            assert values == np.arange(5 * threads).reshape(5, threads)[:, ::-1].reshape(-1).tolist()
            assert report.counts.barriers == 5


def test_memories_by_generic_addresses_and_constants_of_the_module():
    body = """
    .local .align 8 .b8 mine[16]; .shared .align 8 .b8 ours[16];
    mov.u64 %rd10, mine; cvta.local.u64 %rd10, %rd10; mov.u64 %rd11, ours; cvta.shared.u64 %rd11, %rd11;
    ld.const.v4.u32 {%r1, _, %r7, %r8}, [table]; ld.const.u32 %r6, [table+4];
    st.u32 [%rd10+4], %r1; st.u32 [%rd11+8], %r6; st.u32 [%rd0], %r7;
    cvta.to.local.u64 %rd12, %rd10; ld.local.u32 %r2, [%rd12+4];
    cvta.to.shared.u64 %rd13, %rd11; ld.shared.u32 %r3, [%rd13+8]; ld.u32 %r4, [%rd0];
    st.global.v4.u32 [%rd0], {%r8, %r4, %r3, %r2};
    """
    out, outside = np.zeros(4, np.uint32), ".const .align 8 .b8 table[16] = {1,0,0,0, 2,0,0,0, 3,0,0,0, 4,0,0,0};"
    run(body, (1,), (1,), out, outside=outside)
    assert out.tolist() == [4, 3, 2, 1]


def test_atomic_operations_in_the_order_of_threads():
    body = """
    mov.u32 %r30, %tid.x; cvt.rn.f32.u32 %f10, %r30; mad.wide.u32 %rd50, %r30, 16, %rd1;
    atom.global.add.u32 %r1, [%rd0], 1; red.global.max.u32 [%rd0+4], %r30; red.global.add.f32 [%rd0+8], %f10;
    atom.global.inc.u32 %r2, [%rd0+12], 9; atom.global.cas.b32 %r3, [%rd0+16], 0, 77;
    atom.global.exch.b32 %r4, [%rd0+20], %r30; st.global.v4.u32 [%rd50], {%r1, %r2, %r3, %r4};
    """
    cells, old, numbers = np.zeros(6, np.uint32), empty((40, 4), np.uint32), list(range(40))
    run(body, (1,), (40,), cells, old)
    assert cells.tolist() == [40, 39, np.float32(780).view(np.uint32), 0, 77, 39]
    assert old.T.tolist() == [numbers, [i % 10 for i in numbers], [0] + [77] * 39, [0, *numbers[:-1]]]
    run("red.global.add.u64 [%rd0], 3;", (100,), (50,), total := np.zeros(1, np.uint64))
    assert total[0] == 15000


CALLEE = """.func (.param .b32 twice_out) twice(.param .b32 twice_in)
{
.local .align 4 .b8 place[8]; .reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %rd<3>;
ld.param.b32 %r1, [twice_in]; mov.u64 %rd1, place; st.local.u32 [%rd1+4], %r1;
setp.gt.u32 %p1, %r1, 5; @%p1 bra BIG;
ld.local.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, %r1; st.param.b32 [twice_out], %r2; ret;
BIG: st.param.b32 [twice_out], 0; ret;
}"""


def test_functions_are_called_and_hints_change_nothing():
    call = """{ .param .b32 in; .param .b32 out;
    st.param.b32 [in], %r1; call.uni (out), twice, (in); ld.param.b32 %r1, [out]; }
    prefetch.global.L2 [%rd0]; membar.gl; fence.acq_rel.gpu; st.global.wt.u32 [%rd50], %r1;
    ld.global.relaxed.gpu.L1::no_allocate.L2::128B.u32 %r1, [%rd50];"""
    assert by_thread("mov.u32 %r1, %r40;" + call * 2, 1, 8, outside=CALLEE)[0] == [0, 4, 8, 0, 0, 0, 0, 0]


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_arrays_of_the_device_and_their_addresses():
    x = empty((3, 4))
    assert type(x) is Array and np.isnan(x).all() and np.isnan(empty((), np.float16))
    assert type(x[1:].T.reshape(-1)) is Array and type(x + 1) is Array and type(array([1, 2])) is Array
    x = np.zeros((4, 6), np.float32)
    assert address(x[1:, 2:]) - address(x) == 32 and address(x.T) == address(x) and address(x[::-1]) == address(x) + 72
    assert address(x) % 4096 == 0
    first = address(np.zeros(3))
    gc.collect()
    assert address(np.zeros(3)) != first
    with pytest.raises(KindError, match="address: got list, wants a NumPy array"):
        address([1, 2])


class Named:
    name, parameters = "scale", (("x", "f32*"), ("n", "i32"), ("a", "f32"))

    def ptx(self):
        return kernel("ld.global.f32 %f10, [%rd0]; mul.f32 %f10, %f10, %f2; st.global.f32 [%rd0], %f10;", "u64 u32 f32",
                      attributes=".maxntid 8, 2, 1")  # fmt: skip


ONE = np.ones(1, np.float32)
REFUSED = [
    ({"arguments": (ONE, 1)}, KindError, "scale: got 2 arguments, wants 3: f32. x, i32 n, f32 a"),
    ({"arguments": (ONE, 1.5, 1.0)}, KindError, "scale: n is 1.5 .float., wants a number .i32."),
    ({"arguments": (ONE, 1 << 31, 1.0)}, ShapeError, "scale: n is 2147483648, which does not fit i32"),
    ({"arguments": (ONE.astype("f8"), 1, 1.0)}, KindError, "scale: x has type float64, wants elements of 4 bytes"),
    ({"block": (17,)}, ShapeError, "has 17 threads, the kernel is compiled for at most 16"),
    ({"shared": 300000}, ShapeError, "shared is 300000"),
]


def test_a_kernel_that_names_its_parameters():
    x, right = np.ones(1, np.float32), {"grid": (1,), "block": 1, "arguments": (ONE, 1, 3)}
    report = interpret(Named(), (1,), 1, (x, 1, 3))
    assert report.outputs["x"] is x and x[0] == 3 and report.counts.bytes_loaded["x"] == 4
    for changed, error, message in REFUSED:
        with pytest.raises(error, match=message):
            interpret(Named(), **right | changed)


UNKNOWN = {
    "frobnicate.b32 %r1, %r2;": "is an opcode that is not known",
    "add.u32 %r1, %r2, somewhere;": "has the operand somewhere, which is not known",
    "fma.rn.f16x2 %r1, %r2, %r3, %r4;": "computes in .f16x2, which is not known",
    "add.u64 %r1, %rd2, %rd3;": "writes 8 bytes to a register of 4",
    "st.global.u32 [%rd0];": "has a form that is not known",
    "bar.sync 1, 64;": "is a barrier that is not known",
    "trap;": "was executed by thread",
}


def test_what_is_not_known_is_named_with_its_line():
    for line, message in UNKNOWN.items():
        text = kernel(line)
        with pytest.raises(StateError, match=message) as caught:
            interpret(text, (1,), (1,), ())
        assert line.rstrip(";") in str(caught.value) and f"PTX:{line_of(text, line)}" in str(caught.value)


def test_endless_loops_end():
    with pytest.raises(StateError, match="is there an endless loop") as caught:
        interpret(kernel("AGAIN: add.u32 %r1, %r1, 1; bra AGAIN;"), (1,), (32,), (), budget=10_000)
    assert "add.u32 %r1" in str(caught.value)
