"""Bulk copies by tensor maps, mbarriers, wgmma: what arrives, what is computed, and the waits and fences wanted."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels.errors import StateError
from minigrad_kernels.interpreter import address, array, empty, interpret
from minigrad_kernels.interpreter.tensor_map import TensorMap, encode

from .ptx import clean, found, kernel

# ---- bulk copies and mbarriers ---------------------------------------------------------------------------------------

ROWS, COLUMNS = 8, 64  # of a box: lines of 128 bytes
SIZE = 2 * ROWS * COLUMNS
START = """mov.u32 %r30, %tid.x; mov.u32 %r31, tile; mov.u32 %r32, gate;
setp.eq.u32 %p1, %r30, 0; setp.ne.u32 %p3, %r30, 0;
mad.lo.u32 %r33, %r30, 16, %r31; mad.wide.u32 %rd30, %r30, 16, %rd0;
"""
MAKE = "@%p1 mbarrier.init.shared::cta.b64 [%r32], 1;\n"
FENCE = "@%p1 fence.proxy.async.shared::cta;\n"
MEET = "bar.sync 0;\n"
ACQUIRE = "@%p1 fence.proxy.tensormap::generic.acquire.sys [%rd1], 128;\n"
EXPECT = f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r32], {SIZE};\n"
BULK = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
BOX = BULK + " [%r31], [%rd1, {%r2, %r3}], [%r32];\n"
COPY = "@%p1 " + BOX
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r32], 0; @!%p2 bra WAIT;\n"
TAKE = "ld.shared.v4.u32 {%r40, %r41, %r42, %r43}, [%r33]; st.global.v4.u32 [%rd30], {%r40, %r41, %r42, %r43};\n"
WHOLE = MAKE + FENCE + MEET + ACQUIRE + EXPECT + COPY + WAIT + TAKE


def map_of(x, **changes):
    """The tensor map of a matrix of 16-bit elements in C order."""
    settings = TensorMap(address(x), *x.shape, x.strides[0], ROWS, COLUMNS, x.itemsize)
    return array(encode(settings._replace(**changes)))


def run(body, x=None, row=0, column=0, map_=None):
    x = array(np.arange(1, 20 * 88 + 1, dtype=np.uint16).reshape(20, 88)) if x is None else x
    map_, out = map_of(x) if map_ is None else map_, empty((ROWS, COLUMNS), np.uint16)
    shared = f".shared .align 1024 .b8 tile[{2 * SIZE}]; .shared .align 8 .b8 gate[16];"
    text = kernel(START + body, "u64 u64 s32 s32", shared).replace("%r0, [k_param_2]", "%r2, [k_param_2]")
    return text, interpret(text, (1,), (SIZE // 16,), [out, map_, column, row]), np.asarray(x), np.asarray(out)


def test_a_box_arrives_turned_and_is_zero_outside_of_its_matrix():
    for row, column in ((0, 0), (8, 24), (13, 64), (-5, -24), (19, 87), (20, 0), (0, 88), (-8, -64)):
        _, report, x, out = run(WHOLE, None, row, column)
        clean(report)
        around = np.pad(x, ((ROWS, ROWS), (COLUMNS, COLUMNS)))
        box = around[row + ROWS : row + 2 * ROWS, column + COLUMNS : column + 2 * COLUMNS].reshape(ROWS, 8, 8)
        line, chunk = np.indices((ROWS, 8))
        np.testing.assert_array_equal(out.reshape(ROWS, 8, 8), box[line, chunk ^ line])
    counts = run(WHOLE, None, 16, 40)[1].counts
    (name,) = (name for name in counts.bytes_loaded if name not in ("1",))
    assert counts.bytes_loaded[name] == 4 * 48 * 2, "four rows and 48 columns are inside"
    assert counts.sector_bytes_loaded[name] == (4 + 3 + 4 + 3) * 32


ALONE = WHOLE.replace(WAIT + TAKE, "")
NOBODYS = empty((8, 64), np.uint16)
COPIES = {
    "a wait of another warp": (
        WHOLE.replace(WAIT, "@%p3 bra PAST;\n" + WAIT + "PAST: mov.u32 %r50, 0;\n"), "ld.shared", "bulk wait",
        "whose mbarrier it has not waited for",
    ),
    "no mbarrier": (ALONE.replace(MAKE, ""), "expect_tx", "mbarrier", "nobody made one with mbarrier.init"),
    "a place outside": (
        ALONE.replace(COPY, "add.u32 %r31, %r31, 1152;\n" + COPY), "cp.async", "out of bounds", f"writes {SIZE} bytes",
    ),
    "no map": (ALONE, "cp.async", "tensor map", "has no tensor map at", {"map_": array(np.zeros(16, np.uint64))}),
    "a matrix that nobody wrote": (ALONE, "cp.async", "unwritten read", "nobody wrote", {"x": NOBODYS}),
}  # fmt: skip


@pytest.mark.parametrize("what", COPIES)
def test_mistakes_with_bulk_copies_are_found(what):
    """First of all; others may follow from it, as where threads that waited in vain are let go.

    What is missing in the library's own kernel is found in test_compiled.py.
    """
    body, part, kind, message, *options = COPIES[what]
    text, report, *_ = run(body, *(), **(options[0] if options else {}))
    found(text, report, part, kind, message, alone=False)


# ---- products of four warps ------------------------------------------------------------------------------------------

N, IMAGE, B_AT = 16, 16384, 8192  # columns of the product; bytes in shared memory for both operands; where B lies
FILL = f"""mov.u32 %r30, %tid.x; mov.u32 %r31, tile; mul.lo.u32 %r32, %r30, {IMAGE // 128}; add.u32 %r33, %r31, %r32;
cvt.u64.u32 %rd30, %r32; add.u64 %rd31, %rd0, %rd30; mov.u32 %r34, 0;
FILL: ld.global.u32 %r35, [%rd31]; st.shared.u32 [%r33], %r35; add.u64 %rd31, %rd31, 4; add.u32 %r33, %r33, 4;
add.u32 %r34, %r34, 4; setp.lt.u32 %p1, %r34, {IMAGE // 128}; @%p1 bra FILL;
"""
READY = "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
DESCRIBE = """cvt.u64.u32 %rd40, %r31; shr.u64 %rd41, %rd40, 4; add.u64 %rd42, %rd41, %rd2; add.u64 %rd43, %rd41, %rd3;
mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.f32 %f4, %f0; mov.f32 %f5, %f0;
mov.f32 %f6, %f0; mov.f32 %f7, %f0; setp.eq.u32 %p2, 1, 1;
"""
BEGIN = "wgmma.fence.sync.aligned;\n"
SUMS = "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"
OUT = """mad.wide.u32 %rd50, %r30, 32, %rd1;
st.global.v4.f32 [%rd50], {%f0, %f1, %f2, %f3}; st.global.v4.f32 [%rd50+16], {%f4, %f5, %f6, %f7};
"""
DONE = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {};\n"


def product(kind="bf16", add="%p2", turned="0, 0"):
    return f"wgmma.mma_async.sync.aligned.m64n{N}k16.f32.{kind}.{kind} {SUMS}, %rd42, %rd43, {add}, 1, 1, {turned};\n"


def whole(text):
    return READY + DESCRIBE + BEGIN + text + DONE.format(0) + OUT


def memory_of(dtype=ml_dtypes.bfloat16, **changes):
    """(operands in shared memory with their lines turned as the manual says, their descriptors, the product)"""
    rng, image, given = np.random.default_rng(0), np.full(IMAGE // 2, 0x7FC0, np.uint16), []
    a, b = (rng.integers(-3, 4, (lines, 16)).astype(dtype) for lines in (64, N))
    for x, at in ((a, 0), (b, B_AT)):
        line, k = np.arange(len(x))[:, None], np.arange(16)[None, :]
        place = line % 8 * 128 + line // 8 * 1024 + k * 2
        image[(at + (place ^ place // 128 % 8 * 16)) // 2] = x.view(np.uint16)
        given.append({"at": at, "stride": 1024, "mode": 1} | changes)
    descriptors = [d["at"] >> 4 | d["stride"] >> 4 << 32 | d["mode"] << 62 for d in given]
    return [image, *descriptors], a.astype(np.float32) @ b.T.astype(np.float32)


def multiply(memory, body, threads=128):
    """(text, report, the matrix (64, N) of which each thread has written 8 elements: the manual's figure of D)"""
    (image, *descriptors), out = memory, empty((threads, 8))
    text = kernel(FILL + body, "u64 u64 u64 u64", f".shared .align 1024 .b8 tile[{IMAGE}];")
    report = interpret(text, (1,), (threads,), [image, out, *descriptors])
    thread, register = np.indices((128, 8))
    row = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
    results = np.empty((threads // 128, 64, N), np.float32)
    results[:, row, register // 4 * 8 + thread % 4 * 2 + register % 2] = np.asarray(out).reshape(-1, 128, 8)
    return text, report, results


def test_products_of_operands_that_lie_as_descriptors_say():
    """They add up or begin anew."""
    for kind, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        memory, want = memory_of(dtype)
        one = product(kind)
        for text, total in ((one, want + 1), (one * 3, 3 * want + 1), (one + product(kind, "!%p2"), want)):
            _, report, out = multiply(memory, whole(text))
            clean(report)
            np.testing.assert_array_equal(out[0], total)
    _, want = memory_of()
    for changed in ({"stride": 512}, {"at": 32}):
        assert not np.array_equal(multiply(memory_of(**changed)[0], whole(product()))[2][0], want + 1)


SPOIL = "mov.u32 %r40, 0; st.shared.u32 [%r31+4], %r40;\n"
ONE = "setp.eq.u32 %p4, %r30, 96; @!%p4 bra PAST;\n" + SPOIL + "PAST: bar.sync 0;\n"
UNFENCED = "whose writer has executed no fence.proxy.async since"
PRODUCTS = {
    "the fence before the writes": (
        whole("mov.u32 %r40, 0; st.shared.u32 [%r33+-4], %r40;\nbar.sync 0;\n" + product()), "wgmma.mma", "proxy fence",
        UNFENCED,
    ),
    "no fence of the registers": (
        whole(product()).replace(BEGIN, ""), "wgmma.mma", "wgmma fence", "follows no wgmma.fence",
    ),
    "a wait of which nobody heard": (
        whole(product() + DONE.format(0) + ONE), "st.shared.u32 [%r31+4]", "wgmma wait",
        "which a product may still read",
    ),
}  # fmt: skip


def test_mistakes_with_products_are_found():
    memory, _ = memory_of()
    for body, part, kind, message in PRODUCTS.values():
        text, report, _ = multiply(memory, body)
        found(text, report, part, kind, message)
    late = whole(product() + DONE.format(0) + MEET + SPOIL.replace("st", "@%p1 st"))  # once all have waited
    clean(multiply(memory, late)[1])


def test_other_modes_of_descriptors_and_unknown_forms_are_refused():
    with pytest.raises(StateError, match="another mode than that of 128 bytes"):
        multiply(memory_of(mode=2)[0], whole(product()))
    for text in (BOX.replace("2d", "3d"), product("tf32"), product(turned="0, 1")):
        with pytest.raises(StateError, match="not known"):
            run(DESCRIBE + text)
