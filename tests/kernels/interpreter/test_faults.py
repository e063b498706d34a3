"""Planted mistakes of every kind are found, in their line; the same kernels put right are clean."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import address, array, empty, interpret

from .ptx import kernel, line_of

X = np.arange(64, dtype=np.float32)
PLACES = """
mov.u32 %r30, %tid.x; mov.u32 %r31, %ctaid.x; mad.wide.u32 %rd30, %r30, 4, %rd0; mad.wide.u32 %rd31, %r30, 4, %rd1;
mov.u32 %r32, buffer; mad.lo.u32 %r33, %r30, 4, %r32; and.b32 %r34, %r30, 31; xor.b32 %r35, %r33, 4;
cvt.rn.f32.u32 %f10, %r30; setp.lt.u32 %p10, %r30, 32; setp.eq.u32 %p11, %r34, 0;
"""
BUFFER = ".shared .align 16 .b8 buffer[1024];"


def faults_of(body, *arguments, grid=(1,), block=(64,), **options):
    text = kernel(PLACES + body, "u64 " * len(arguments), BUFFER)
    return text, interpret(text, grid, block, arguments, **options)


def found(body, part, kind, message, *arguments, **options):
    """One fault of a kind, at the line that has `part` in it."""
    text, report = faults_of(body, *arguments, **options)
    assert [fault.kind for fault in report.faults] == [kind], [str(fault) for fault in report.faults]
    (fault,) = report.faults
    assert fault.line.line == line_of(text, part) and part in fault.line.text
    assert message in fault.message, fault.message
    assert str(fault).startswith(f"{kind}: ") and f"PTX:{fault.line.line}: {fault.line.text}" in str(fault)
    return report


def clean(body, *arguments, **options):
    _, report = faults_of(body, *arguments, **options)
    assert not report.faults, [str(fault) for fault in report.faults]
    return report


# ---- bounds and alignment ----------------------------------------------------------------------------------------

COPY = "ld.global.f32 %f1, [%rd30{0}];\nst.global.f32 [%rd31{1}], %f1;"


WIDE = "ld.global.v2.f32 {%f1, %f2}, [%rd30];\nst.global.f32 [%rd31], %f1;"
LOCAL = ".local .align 4 .b8 mine[8]; mov.u64 %rd9, mine;\nst.local.f32 [%rd9+{}], %f10;"
OUT, BENT = "out of bounds", "misaligned"
WHOLE, BOTH = np.zeros(96, np.float32), np.zeros(160, np.float32)
FEW = "setp.eq.u32 %p1, %r30, 3;\n@%p1 mov.u64 %rd30, 0;" + COPY.format("", "")
# What, where the fault is, its kind, what it says, arguments, threads.
ADDRESSES = [
    (COPY.format("+4", ""), "ld.global", OUT, "byte 256 of 0, which has 256; thread (63, 0, 0) of block (0, 0, 0)",
     (X, empty(64)), 64),
    (COPY.format("+-4", ""), "ld.global", OUT, "byte -4 of 0", (X, empty(64)), 64),
    (COPY.format("", ""), "ld.global", OUT, "and 31 more", (X[:32], empty(64)), 64),
    (COPY.format("", ""), "ld.global", OUT, "byte 0 of 0, which has 0", (X[:0], empty(64)), 64),
    (COPY.format("+4", ""), "ld.global", OUT, "byte 256 of 0, which has 256", (WHOLE[16:80], empty(64)), 64),
    (COPY.format("+-4", ""), "ld.global", OUT, "byte -4 of 0", (BOTH[96:], BOTH[:64]), 64),
    (COPY.format("", ""), "ld.global", OUT, "a null pointer", (0, empty(64)), 64),
    (COPY.format("", ""), "ld.global", OUT, "belongs to no array", (1 << 60, empty(64)), 64),
    (FEW, "ld.global", OUT, "a null pointer or close to it; thread (3, 0, 0)", (X, empty(64)), 64),
    (WIDE, "ld.global.v2", BENT, "which is no multiple of 8; thread (1, 0, 0)", (np.zeros(66, "f4"), empty(64)), 64),
    (COPY.format("+2", ""), "ld.global", BENT, "no multiple of 4", (np.zeros(66, "f4"), empty(64)), 64),
    ("st.shared.v4.f32 [%r33], {%f1, %f1, %f1, %f1};", "st.shared", BENT, "no multiple of 16", (), 2),
    ("st.shared.f32 [%r33+960], %f10;", "st.shared", OUT, "byte 1024 of 1024 bytes of shared memory", (), 64),
    ("st.shared.f32 [%r33+-4], %f10;", "st.shared", OUT, "byte -4 of 1024", (), 64),
    ("mov.u32 %r1, 0;\nst.shared.f32 [%r1], %f10;", "st.shared", OUT, "byte -1024", (), 1),
    (LOCAL.format(8), "st.local", OUT, "byte 8 of 8 bytes of local memory", (), 64),
]  # fmt: skip


@pytest.mark.parametrize("body, part, kind, message, arguments, threads", ADDRESSES)
def test_addresses_that_are_wrong(body, part, kind, message, arguments, threads):
    found(body, part, kind, message, *arguments, block=(threads,))


def test_what_is_out_of_bounds_is_left_out():
    """Other lanes go on. The bounds are those of the view that was passed."""
    out = empty(64)
    found(COPY.format("+4", ""), "ld.global", OUT, "", X, out)
    assert np.array_equal(out[:63], X[1:]) and np.isnan(out[63])
    out = np.full(64, 9, np.float32)
    found(COPY.format("", "+128"), "st.global", OUT, "thread (32, 0, 0) of block (0, 0, 0) and 31 more", X, out)
    assert out.tolist() == [9] * 32 + list(range(32))
    for body, *arguments in (
        (COPY.format("", ""), X, empty(64)), (COPY.format("+4", ""), WHOLE[16:81], empty(64)),
        (COPY.format("", ""), WHOLE[32:], empty(64)), (COPY.format("", ""), BOTH[96:], BOTH[:64]),
        ("and.b32 %r30, %r30, 62;\nmad.wide.u32 %rd30, %r30, 4, %rd0;" + WIDE, X, empty(64)),
        (LOCAL.format(4),), ("st.shared.f32 [%r33+768], %f10;",),
    ):  # fmt: skip
        clean(body, *arguments)


def test_read_only_arrays():
    frozen = X.copy()
    frozen.flags.writeable = False
    found(COPY.format("", ""), "st.global", "read-only", "and is read-only", X, frozen)
    assert np.array_equal(frozen, X)
    clean(COPY.format("", ""), frozen, empty(64))


# ---- memory that nobody wrote -------------------------------------------------------------------------------------


def test_unwritten_memory():
    found("ld.shared.f32 %f1, [%r33];", "ld.shared", "unwritten read", "that nobody wrote")
    found("red.shared.add.u32 [%r33], 1;", "red.shared", "unwritten read", "that nobody wrote")
    found("st.shared.f32 [%r33], %f10;\nld.shared.v2.f32 {%f1, %f2}, [%r33];", "ld.shared", "unwritten read", "8 bytes",
          block=(1,))  # fmt: skip
    local = ".local .align 4 .b8 mine[8]; mov.u64 %rd9, mine; st.local.f32 [%rd9], %f10;\nld.local.f32 %f1, [%rd9+{}];"
    found(local.format(4), "ld.local", "unwritten read", "byte 4 of 8")
    clean(local.format(0))
    clean("st.shared.f32 [%r33], %f10;\nld.shared.f32 %f1, [%r33];")


def test_unwritten_global_memory():
    body = COPY.format("", "")
    found(body, "ld.global", "unwritten read", "reads 4 bytes at byte 0 of 0", empty(64), empty(64))
    half = empty(64)
    half[:32] = 1
    found(body, "ld.global", "unwritten read", "thread (32, 0, 0) of block (0, 0, 0) and 31 more", half, empty(64))
    for write in (
        lambda x: x.__setitem__(..., np.nan),
        lambda x: x.reshape(8, 8).T.__setitem__((slice(None), ...), x.reshape(8, 8)),
        lambda x: x.fill(3),
        lambda x: np.add(X, 1, out=x),
        lambda x: np.copyto(x, X),
        lambda x: interpret(kernel(PLACES + body, "u64 u64", BUFFER), (1,), (64,), (X, x)),
    ):
        x = empty(64)
        write(x)
        clean(body, x, empty(64))


# ---- races -------------------------------------------------------------------------------------------------------

FILL = "st.shared.f32 [%r33], %f10;\n"


READ, WRITE, MEET = "ld.shared.f32 %f1, [%r35];\n", "st.shared.f32 [%r33], %f2;\n", "bar.sync 0;\n"
ORDER = "bar.warp.sync 0xffffffff;\n"
OTHER = "xor.b32 %r36, %r33, 128;\n" + FILL + "{}ld.shared.f32 %f1, [%r36];"  # of the other warp
PAIRS = "shr.u32 %r37, %r30, 1;\nadd.u32 %r36, %r32, %r37;\nst.shared.u8 [%r36], %r30;"
CLEAR = "setp.eq.u32 %p1, %r30, 0; @%p1 st.shared.u32 [%r32], %r30; bar.sync 0;\n"
COUNT = "red.shared.add.u32 [%r32], 1;\n"
WROTE, WAS_READ, TOGETHER = "which another thread wrote", "which another thread read", "in the same instruction"
RACES = [
    (FILL + READ, "ld.shared", f"{WROTE} (PTX:"),
    (FILL + MEET + READ + WRITE, "%f2", f"{WAS_READ}, with no barrier between"),
    ("st.shared.f32 [%r32], %f10;", "st.shared", f"{TOGETHER}; thread (0, 0, 0)"),
    ("@%p11 st.shared.f32 [%r32], %f10;\n", "st.shared", TOGETHER),
    (FILL + ORDER + READ + WRITE, "%f2", WAS_READ),
    (FILL + ORDER + WRITE + READ, "ld.shared", WROTE),
    (OTHER.format(ORDER), "ld.shared", WROTE),
    (PAIRS, "st.shared", TOGETHER),
    (CLEAR + COUNT + "ld.shared.u32 %r1, [%r32];", "ld.shared", WROTE),
    (CLEAR + "ld.shared.u32 %r1, [%r32];\n" + COUNT, "red.shared", WAS_READ),
]


@pytest.mark.parametrize("body, part, message", RACES)
def test_shared_races(body, part, message):
    found(body, part, "shared race", message)


@pytest.mark.parametrize("body", [
    FILL + MEET + READ, FILL + MEET + READ + MEET + WRITE, "@%p11 st.shared.f32 [%r33], %f10;",
    FILL + "ld.shared.f32 %f1, [%r33];\n" + WRITE, FILL + ORDER + READ + ORDER + WRITE, OTHER.format(MEET),
    "add.u32 %r36, %r32, %r30;\nst.shared.u8 [%r36], %r30;", CLEAR + COUNT + MEET + "ld.shared.u32 %r1, [%r32];",
])  # fmt: skip
def test_what_is_no_race(body):
    clean(body)


def test_races_between_blocks():
    out = np.zeros(64, np.float32)
    found("st.global.f32 [%rd31], %f10;", "st.global", "global race", "writes it too", X, out, grid=(2,))
    clean("st.global.f32 [%rd31], %f10;", X, out)
    one = "setp.eq.u32 %p1, %r31, {};\n"
    write, read = "@%p1 st.global.f32 [%rd31], %f10;\n", "@!%p1 ld.global.f32 %f1, [%rd31];\n"
    found(one.format(0) + write + read, "ld.global", "global race", "another block of the launch wrote it", X, out,
          grid=(2,))  # fmt: skip
    found(one.format(64) + read + write, "st.global", "global race", "another block of the launch read it", X, out,
          grid=(65,))  # fmt: skip
    clean("red.global.add.f32 [%rd31], %f10;", X, out, grid=(100,))
    body = "mad.wide.u32 %rd2, %r31, 1, %rd1; mov.u32 %r1, 7;\n@%p11 st.global.u8 [%rd2], %r1;"
    clean(body, X, np.zeros(100, np.uint8), grid=(100,), block=(32,))


# ---- barriers and warps -------------------------------------------------------------------------------------------


def test_divergent_barriers():
    two = "@%p10 bra LOW;\nbar.sync 0; // others\nbra OUT;\nLOW: bar.sync 0; // low\nOUT:"
    text, report = faults_of(two)
    (fault,) = report.faults
    assert fault.kind == "divergent barrier" and fault.line.line == line_of(text, "// others")
    assert "is reached by 32 of 64 threads of a block, 32 wait at 'bar.sync 0'" in fault.message
    found("@!%p10 ret;\nbar.sync 0;", "bar.sync", "divergent barrier", "32 of 64 threads of a block, 32 have ended")
    found("@!%p10 bra OUT;\nbar.sync 0;\nOUT:", "bar.sync", "divergent barrier", "32 have ended")
    clean("bar.sync 0;\n@!%p10 ret;")
    clean("@!%p10 bra OUT;\nbar.sync 1, 32;\nOUT:")


def test_divergent_warps():
    shuffle = "shfl.sync.down.b32 %r1, %r30, 1, 31, 0xffffffff;"
    text = "not there: 0; thread (1, 0, 0)"
    found(f"@%p11 bra OUT;\n{shuffle}\nOUT: bar.sync 0;", "shfl", "divergent warp", text)
    clean(f"@%p11 ret;\n{shuffle}")  # of lanes that have ended, or never were, nothing is expected
    clean(shuffle, block=(33,))
    clean(shuffle)
    clean(f"@%p10 bra OUT;\n{shuffle}\nOUT:")
    clean("@%p11 bra OUT;\nshfl.sync.down.b32 %r1, %r30, 1, 31, 0xfffffffe;\nOUT:")
    found(
        "shfl.sync.down.b32 %r1, %r30, 1, 31, 0xfffffffe;", "shfl", "divergent warp", "which leaves out the lane itself"
    )


def test_lanes_meet_at_instructions_of_the_warp():
    """Lanes that come later, by code that stands behind, are waited for."""
    body = """
    mov.u32 %r5, %r30; bra START;
    MEET: shfl.sync.bfly.b32 %r1, %r5, 1, 31, 0xffffffff; bra OUT;
    START: and.b32 %r6, %r30, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra MEET;
    add.u32 %r5, %r5, 100; bra MEET;
    OUT: st.global.u32 [%rd30], %r1;"""
    out = empty(64, np.uint32)
    clean(body, out, X)
    assert out.tolist() == [(i ^ 1) + (0 if i % 2 else 100) for i in range(64)]


# ---- where faults are said to be -----------------------------------------------------------------------------------


def test_lines_of_source(tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text("def helper(x):\n    return x[9]\n\ndef kernel(x):\n    y = helper(x)\n    x[0] = y\n")
    body = """
    .loc 1 5 1
    mov.u32 %r1, 0;
    .loc 1 2 1, function_name $L__info_string0, inlined_at 1 5 1
    ld.global.f32 %f1, [%rd0+36];
    .loc 1 0 1
    mov.u32 %r2, 0;
    .loc 1 6 1
    st.global.f32 [%rd0+40], %f1;
    """
    report = interpret(kernel(body, "u64") + f'.file 1 "{source}"\n', (1,), (1,), (array(np.zeros(9, "f4")),))
    load, store = report.faults
    assert str(load.line) == "kernels.py:2, called in line 5: return x[9]" and load.line.file == str(source)
    assert str(store.line) == "kernels.py:6: x[0] = y"
    assert {line.line: number for line, number in report.counts.lines.items() if line.file == str(source)} == {
        5: 1,
        2: 2,
        6: 2,
    }


def test_faults_are_reported_once_and_the_launch_goes_on():
    text, report = faults_of(COPY.format("+4", "+4"), np.zeros(64, "f4"), empty(64), grid=(200,))
    kinds = [(fault.kind, fault.line.line) for fault in report.faults]
    assert len(kinds) == len(set(kinds))
    assert {kind for kind, _ in kinds} == {"out of bounds", "global race"}
    assert report.counts.instructions["ld.global.f32"] == 400


def test_arrays_behind_pointers_in_memory_have_names_too():
    x = np.zeros(4, np.float32)
    table = np.array([address(x)], np.uint64)
    report = interpret(
        kernel("ld.global.u64 %rd1, [%rd0];\nld.global.f32 %f1, [%rd1+16];", "u64"), (1,), (1,), (table,)
    )
    (fault,) = report.faults
    assert fault.kind == "out of bounds" and f"byte 16 of the array at {address(x):#x}, which has 16" in fault.message
