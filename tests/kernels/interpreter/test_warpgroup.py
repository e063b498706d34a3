"""wgmma: operands by their descriptors, results in their registers, and the waits, fences and barriers it wants."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels.errors import StateError
from minigrad_kernels.interpreter import empty, interpret

from .ptx import kernel, line_of

N, IMAGE = 16, 16384  # columns of the product; bytes in shared memory for both operands
A_AT, B_AT = 0, 8192
SHARED = f".shared .align 1024 .b8 tile[{IMAGE}];"
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
END = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
OUT = """mad.wide.u32 %rd50, %r30, 32, %rd1;
st.global.v4.f32 [%rd50], {%f0, %f1, %f2, %f3}; st.global.v4.f32 [%rd50+16], {%f4, %f5, %f6, %f7};
"""


def product(kind="bf16", add="%p2", turned=(0, 0)):
    shape = f"wgmma.mma_async.sync.aligned.m64n{N}k16.f32.{kind}.{kind}"
    return f"{shape} {SUMS}, %rd42, %rd43, {add}, 1, 1, {turned[0]}, {turned[1]};\n"


MULTIPLY = product()


def places(lines, mode, across, leading, stride):
    """The byte of each element (line, k): the canonical layouts of the manual, in elements of 16 bits."""
    width = {0: 1, 1: 8, 2: 4, 3: 2}[mode]  # chunks of 16 bytes in a piece that is turned
    line, k = np.arange(lines)[:, None], np.arange(16)[None, :]
    if across and mode:
        place = (line % 8 * 2 + line // 8 % width * 16 + line // (8 * width) * leading) + (
            k % 8 * 16 * width + k // 8 * stride
        )
    elif across:
        place = (line % 8 * 2 + line // 8 * stride) + (k % 8 * 16 + k // 8 * leading)
    elif mode:
        place = (line % 8 * 16 * width + line // 8 * stride) + k * 2
    else:
        place = (line % 8 * 16 + line // 8 * stride) + (k % 8 * 2 + k // 8 * leading)
    return place ^ (place // 128 % width * 16)


def layout_of(lines, mode, across):
    """Offsets (leading, stride) with which an operand fills its memory."""
    width = {0: 1, 1: 8, 2: 4, 3: 2}[mode]
    if across:
        pieces = lines // (8 * width)
        return (128 * lines // 8, 128) if not mode else (256 * width, 128 * width) if pieces > 1 else (0, 128 * width)
    return (16 * lines, 128) if not mode else (16, 128 * width)


def descriptor(at, mode, leading, stride):
    return at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62


def operands(dtype=ml_dtypes.bfloat16):
    rng = np.random.default_rng(0)
    return (rng.integers(-3, 4, (lines, 16)).astype(dtype) for lines in (64, N))


def in_memory(a, b, modes, across):
    """(bytes of shared memory, descriptors without the address) of two operands."""
    image, found = np.full(IMAGE // 2, 0x7FC0, np.uint16), []
    for x, at, mode, turned in zip((a, b), (A_AT, B_AT), modes, across, strict=True):
        offsets = layout_of(len(x), mode, turned)
        image[(at + places(len(x), mode, turned, *offsets)) // 2] = x.view(np.uint16)
        found.append(descriptor(at, mode, *offsets))
    return image, found


def run(image, descriptors, body, threads=128):
    out = empty((threads, 8))
    text = kernel(FILL + body, "u64 u64 u64 u64", SHARED)
    return text, interpret(text, (1,), (threads,), [image, out, *descriptors]), out


def results(out):
    """The matrix (64, N) of which each thread has written 8 elements: the manual's figure of D."""
    thread, register = np.indices(out.shape)
    row = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
    column = register // 4 * 8 + thread % 4 * 2 + register % 2
    found = np.empty((64, N), np.float32)
    found[row, column] = np.asarray(out)
    return found


def whole(text):
    return READY + DESCRIBE + BEGIN + text + END + OUT


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("across", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_operands_lie_as_descriptors_say(kind, mode, across):
    a, b = operands({"bf16": ml_dtypes.bfloat16, "f16": np.float16}[kind])
    b_mode = mode if not across[1] or mode != 1 else 3  # 16 columns are fewer than a piece of 128 bytes has
    b_mode = 3 if across[1] and mode == 2 else b_mode
    image, found = in_memory(a, b, (mode, b_mode), across)
    _, report, out = run(image, found, whole(product(kind, turned=across)))
    assert not report.faults, [str(fault) for fault in report.faults]
    np.testing.assert_array_equal(results(out), a.astype(np.float32) @ b.T.astype(np.float32) + 1)


WRONG = {  # what a descriptor says, and what is so
    "the mode": (0, dict(mode=2)),
    "the stride": (0, dict(stride=512)),
    "the address": (0, dict(at=32)),
    "the mode of b": (1, dict(mode=0)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_descriptor_gives_a_wrong_product(what):
    number, changed = WRONG[what]
    a, b = operands()
    image, found = in_memory(a, b, (1, 1), (0, 0))
    right = dict(at=(A_AT, B_AT)[number], mode=1, leading=16, stride=1024)
    found[number] = descriptor(**right | changed)
    _, _, out = run(image, found, whole(MULTIPLY))
    assert not np.array_equal(results(out), a.astype(np.float32) @ b.T.astype(np.float32) + 1)


def test_the_order_of_an_operand_that_is_said_wrongly_gives_a_wrong_product():
    a, b = operands()
    image, found = in_memory(a, b, (1, 1), (0, 0))
    _, _, out = run(image, found, whole(product(turned=(1, 0))))
    assert not np.array_equal(results(out), a.astype(np.float32) @ b.T.astype(np.float32) + 1)


def test_products_add_up_or_begin_anew_and_two_groups_of_warps_have_registers_of_their_own():
    a, b = operands()
    image, found = in_memory(a, b, (1, 1), (0, 0))
    want = a.astype(np.float32) @ b.T.astype(np.float32)
    for text, total in ((MULTIPLY * 3, 3 * want + 1), (MULTIPLY + product(add="!%p2"), want)):
        _, report, out = run(image, found, whole(text))
        assert not report.faults, [str(fault) for fault in report.faults]
        np.testing.assert_array_equal(results(out), total)
    twice = FILL.replace("mov.u32 %r30, %tid.x;", "mov.u32 %r29, %tid.x; and.b32 %r30, %r29, 127;")
    body = twice.replace("st.shared", "setp.lt.u32 %p3, %r29, 128; @%p3 st.shared") + whole(MULTIPLY)
    out = empty((256, 8))
    body = body.replace("mad.wide.u32 %rd50, %r30", "mad.wide.u32 %rd50, %r29")
    report = interpret(kernel(body, "u64 u64 u64 u64", SHARED), (1,), (256,), [image, out, *found])
    assert not report.faults, [str(fault) for fault in report.faults]
    for part in np.split(np.asarray(out), 2):
        np.testing.assert_array_equal(results(part), want + 1)


# ---- what must come before and after ---------------------------------------------------------------------------------

SPOIL = "mov.u32 %r40, 0; st.shared.u32 [%r31+4], %r40;\n"
ONE = "setp.eq.u32 %p4, %r30, 96; @!%p4 bra PAST;\n" + SPOIL + "PAST: bar.sync 1;\n"
WAIT = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {};\n"
FAULTS = {
    "no fence of the proxy": (
        whole(MULTIPLY).replace("fence.proxy.async.shared::cta;\n", ""), "wgmma.mma", "proxy fence",
        "whose writer has executed no fence.proxy.async since",
    ),
    "the fence before the writes": (
        whole("mov.u32 %r40, 0; st.shared.u32 [%r33+-4], %r40;\nbar.sync 0;\n" + MULTIPLY), "wgmma.mma",
        "proxy fence", "whose writer has executed no fence.proxy.async since",
    ),
    "no barrier": (
        whole(MULTIPLY).replace("bar.sync 0;\n", ""), "wgmma.mma", "shared race", "with no barrier between",
    ),
    "no fence of the registers": (
        whole(MULTIPLY).replace(BEGIN, ""), "wgmma.mma", "wgmma fence", "follows no wgmma.fence",
    ),
    "an operand outside": (
        whole("add.u64 %rd43, %rd43, 600;\n" + MULTIPLY), "wgmma.mma", "out of bounds", "of shared memory",
    ),
    "written while it is read": (
        READY + DESCRIBE + BEGIN + MULTIPLY + ONE + END + OUT, "st.shared.u32 [%r31+4]", "wgmma wait",
        "which a product may still read",
    ),
    "a wait that leaves one group": (
        READY + DESCRIBE + BEGIN + MULTIPLY + WAIT.format(1) + "bar.sync 0;\n" + ONE + END + OUT,
        "st.shared.u32 [%r31+4]", "wgmma wait", "which a product may still read",
    ),
    "a wait of which nobody heard": (
        READY + DESCRIBE + BEGIN + MULTIPLY + WAIT.format(0) + ONE + OUT, "st.shared.u32 [%r31+4]",
        "wgmma wait", "which a product may still read",
    ),
    "descriptors that differ": (
        whole("and.b32 %r41, %r30, 1; cvt.u64.u32 %rd44, %r41; add.u64 %rd42, %rd42, %rd44;\n" + MULTIPLY),
        "wgmma.mma", "divergent warp", "has descriptors that differ within the warp",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_mistakes_are_found(what):
    body, part, kind, message = FAULTS[what]
    text, report, _ = run(*in_memory(*operands(), (1, 1), (0, 0)), body)
    assert [fault.kind for fault in report.faults] == [kind], [str(fault) for fault in report.faults]
    assert report.faults[0].line.line == line_of(text, part) and message in report.faults[0].message


def test_operands_may_be_written_once_all_have_waited():
    body = READY + DESCRIBE + BEGIN + MULTIPLY + WAIT.format(0) + "bar.sync 0;\n" + SPOIL.replace("st", "@%p1 st") + OUT
    _, report, _ = run(*in_memory(*operands(), (1, 1), (0, 0)), body)
    assert not report.faults, [str(fault) for fault in report.faults]


@pytest.mark.parametrize("text", [
    product().replace("m64n16k16", "m64n16k32"), product("tf32"), product().replace("1, 1, 0", "-1, 1, 0"),
    product().replace("%rd42", "{%r1, %r2, %r3, %r4}"), "wgmma.fence;", "wgmma.other.sync.aligned;",
])  # fmt: skip
def test_forms_that_are_not_known_are_refused(text):
    with pytest.raises(StateError, match="not known|lacks .sync.aligned"):
        interpret(kernel(DESCRIBE + text, "u64 u64 u64 u64", SHARED), (1,), (128,), [np.zeros(4), empty(4), 0, 0])


def test_a_base_offset_is_refused():
    image, (a, b) = in_memory(*operands(), (1, 1), (0, 0))
    with pytest.raises(StateError, match="base offset"):
        run(image, (a | 1 << 49, b), whole(MULTIPLY))
