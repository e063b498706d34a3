"""Planted mistakes of every kind are found, in their line; the same kernels put right are clean."""

import numpy as np

from minigrad_kernels.interpreter import address, empty, interpret

from . import ptx
from .ptx import kernel

X = np.arange(64, dtype=np.float32)
PLACES = """
mov.u32 %r30, %tid.x; mov.u32 %r31, %ctaid.x; mad.wide.u32 %rd30, %r30, 4, %rd0; mad.wide.u32 %rd31, %r30, 4, %rd1;
mov.u32 %r32, buffer; mad.lo.u32 %r33, %r30, 4, %r32; and.b32 %r34, %r30, 31; xor.b32 %r35, %r33, 4;
cvt.rn.f32.u32 %f10, %r30; setp.lt.u32 %p10, %r30, 32; setp.eq.u32 %p11, %r34, 0;
"""
BUFFER = ".shared .align 16 .b8 buffer[1024];"


def faults_of(body, *arguments, grid=1, block=64):
    text = kernel(PLACES + body, "u64 " * len(arguments), BUFFER)
    return text, interpret(text, grid, block, arguments)


def found(body, part, kind, message, *arguments, **options):
    """One fault of a kind, at the line that has `part` in it."""
    ptx.found(*faults_of(body, *arguments, **options), part, kind, message)


def clean(body, *arguments, **options):
    ptx.clean(faults_of(body, *arguments, **options)[1])


# ---- addresses and memory that nobody wrote --------------------------------------------------------------------------

COPY = "ld.global.f32 %f1, [%rd30{0}];\nst.global.f32 [%rd31{1}], %f1;"
PLAIN, BEHIND, BEFORE = (COPY.format(by, "") for by in ("", "+4", "+-4"))
WIDE = "ld.global.v2.f32 {%f1, %f2}, [%rd30];\nst.global.f32 [%rd31], %f1;"
LOCAL = ".local .align 4 .b8 mine[8]; mov.u64 %rd9, mine; st.local.f32 [%rd9], %f10;\n{}"
FILL = "st.shared.f32 [%r33], %f10;\n"
WHOLE, BOTH, FROZEN = np.zeros(96, np.float32), np.zeros(160, np.float32), X.copy()
FROZEN.flags.writeable = False
OUT, BENT, UNWRITTEN = "out of bounds", "misaligned", "unwritten read"
# What, where the fault is, its kind, what it says, arguments, threads.
ADDRESSES = [
    (BEHIND, "ld.global", OUT, "byte 256 of 0, which has 256; thread (63, 0, 0) of block (0", (X, empty(64)), 64),
    (PLAIN, "ld.global", OUT, "and 31 more", (X[:32], empty(64)), 64),
    (BEFORE, "ld.global", OUT, "byte -4 of 0", (BOTH[96:], BOTH[:64]), 64),
    (PLAIN, "ld.global", OUT, "a null pointer", (0, empty(64)), 64),
    (PLAIN, "ld.global", OUT, "belongs to no array", (1 << 60, empty(64)), 64),
    (WIDE, "ld.global.v2", BENT, "which is no multiple of 8; thread (1, 0, 0)", (np.zeros(66, "f4"), empty(64)), 64),
    ("st.shared.v4.f32 [%r33], {%f1, %f1, %f1, %f1};", "st.shared", BENT, "no multiple of 16", (), 2),
    ("st.shared.f32 [%r33+960], %f10;", "st.shared", OUT, "byte 1024 of 1024 bytes of shared memory", (), 64),
    (LOCAL.format("st.local.f32 [%rd9+8], %f1;"), "[%rd9+8]", OUT, "byte 8 of 8 bytes of local memory", (), 64),
    (PLAIN, "st.global", "read-only", "and is read-only", (X, FROZEN), 64),
    (LOCAL.format("ld.local.f32 %f1, [%rd9+4];"), "ld.local", UNWRITTEN, "byte 4 of 8", (), 64),
    ("ld.shared.f32 %f1, [%r33];", "ld.shared", UNWRITTEN, "that nobody wrote", (), 64),
    (FILL + "ld.shared.v2.f32 {%f1, %f2}, [%r33];", "ld.shared", UNWRITTEN, "8 bytes", (), 1),
    (PLAIN, "ld.global", UNWRITTEN, "reads 4 bytes at byte 0 of 0", (empty(64), empty(64)), 64),
]  # fmt: skip


def test_addresses_that_are_wrong_and_memory_that_nobody_wrote():
    for body, part, kind, message, arguments, threads in ADDRESSES:
        found(body, part, kind, message, *arguments, block=threads)
    assert np.array_equal(FROZEN, X)
    for body, *arguments in (
        (PLAIN, X, empty(64)), (BEHIND, WHOLE[16:81], empty(64)), (PLAIN, WHOLE[32:], empty(64)),
        (PLAIN, BOTH[96:], BOTH[:64]), (PLAIN, FROZEN, empty(64)), ("st.shared.f32 [%r33+768], %f10;",),
        ("and.b32 %r30, %r30, 62;\nmad.wide.u32 %rd30, %r30, 4, %rd0;" + WIDE, X, empty(64)),
        (LOCAL.format("ld.local.f32 %f1, [%rd9];"),), (FILL + "ld.shared.f32 %f1, [%r33];",),
    ):  # fmt: skip
        clean(body, *arguments)


def test_what_is_out_of_bounds_is_left_out():
    """Other lanes go on. The bounds are those of the view that was passed."""
    out = empty(64)
    found(BEHIND, "ld.global", OUT, "", X, out)
    assert np.array_equal(out[:63], X[1:]) and np.isnan(out[63])


def test_what_counts_as_written():
    half = empty(64)
    half[:32] = 1
    found(PLAIN, "ld.global", UNWRITTEN, "thread (32, 0, 0) of block (0, 0, 0) and 31 more", half, empty(64))
    for write in (
        lambda x: x.__setitem__(..., np.nan),
        lambda x: x.reshape(8, 8).T.__setitem__((slice(None), ...), x.reshape(8, 8)),
        lambda x: np.add(X, 1, out=x),
        lambda x: x.view(np.ndarray).view(np.int32).fill(-3),  # behind its back: two bytes are as nobody wrote them
        lambda x: faults_of(PLAIN, X, x),
    ):
        x = empty(64)
        write(x)
        clean(PLAIN, x, empty(64))


# ---- races -------------------------------------------------------------------------------------------------------

MEET = "bar.sync 0;\n"
READ, WRITE = "ld.shared.f32 %f1, [%r35];\n", "st.shared.f32 [%r33], %f2;\n"
PAIRS = "shr.u32 %r37, %r30, 1;\nadd.u32 %r36, %r32, %r37;\nst.shared.u8 [%r36], %r30;"
WROTE, TOGETHER = "which another thread wrote", "in the same instruction"


def test_shared_races():
    """Which orders are races is asked in test_races.py; here, what is said of them, and that bytes are told apart."""
    for body, part, message in (
        (FILL + READ, "ld.shared", f"{WROTE} (PTX:"),
        (FILL + MEET + READ + WRITE, "%f2", "which another thread read, with no barrier between"),
        (PAIRS, "st.shared", f"{TOGETHER}; thread (0, 0, 0)"),
    ):
        found(body, part, "shared race", message)
    clean("add.u32 %r36, %r32, %r30;\nst.shared.u8 [%r36], %r30;")


def test_races_between_blocks():
    out, store = np.zeros(64, np.float32), "st.global.f32 [%rd31], %f10;\n"
    found(store, "st.global", "global race", "which another block writes in the same instruction", X, out, grid=2)
    clean(store, X, out)
    one, read = "setp.eq.u32 %p1, %r31, {};\n", "@!%p1 ld.global.f32 %f1, [%rd31];\n"
    said = "which another block"
    found(one.format(0) + "@%p1 " + store + read, "ld.global", "global race", f"{said} wrote (PTX:", X, out, grid=2)
    found(one.format(64) + read + "@%p1 " + store, "st.global", "global race", f"{said} read, in", X, out, grid=65)
    clean("red.global.add.f32 [%rd31], %f10;", X, out, grid=100)
    body = "mad.wide.u32 %rd2, %r31, 1, %rd1; mov.u32 %r1, 7;\n@%p11 st.global.u8 [%rd2], %r1;"
    clean(body, X, np.zeros(100, np.uint8), grid=100, block=32)


# ---- asynchronous copies -------------------------------------------------------------------------------------------

START = "cp.async.ca.shared.global [%r33], [%rd30], 4;\ncp.async.commit_group;\n"
AGAIN = "add.u32 %r36, %r33, {};\ncp.async.ca.shared.global [%r36], [%rd30], 4;\ncp.async.commit_group;\n"
OWN, NEXT = (f"ld.shared.f32 %f1, [{place}];\nst.global.f32 [%rd31], %f1;" for place in ("%r33", "%r35"))
WAIT = "cp.async.wait_group {};\n"
LATE = "setp.eq.u32 %p1, %r34, 1; @%p1 bra PAST;\ncp.async.wait_group 0;\nPAST: bar.sync 0;\n"
TOO_EARLY = "cp.async wait"


def test_copies_are_waited_for():
    """By the thread that started them, before a barrier lets others read; else the fault names the wait it wants."""
    for body, part, kind, message in (
        (START + OWN, "ld.shared", TOO_EARLY, "wants cp.async.wait_group 0 or less"),
        (START + AGAIN.format(512) + WAIT.format(2) + OWN, "ld.shared", TOO_EARLY, "wants cp.async.wait_group 1 or"),
        (START.replace("cp.async.commit_group;", "") + WAIT.format(0) + OWN, "ld.shared", TOO_EARLY, "in no committed"),
        (START + "st.shared.f32 [%r33], %f10;", "st.shared", TOO_EARLY, "under way (PTX:"),
        (START + AGAIN.format(0), "cp.async.ca.shared.global [%r36]", TOO_EARLY, "under way (PTX:"),
        (START + LATE + NEXT, "ld.shared", TOO_EARLY, "thread (1, 0, 0) of block (0, 0, 0) is under way"),
        (START + WAIT.format(0) + NEXT, "ld.shared", "shared race", WROTE),
    ):  # fmt: skip
        found(body, part, kind, message, X, out := empty(64))
        assert kind == "shared race" or np.isnan(out).any()
    for body, wanted in (
        (START + AGAIN.format(512) + WAIT.format(1) + OWN, X),
        (START + "cp.async.wait_all;\n" + OWN, X),
        (START + WAIT.format(0) + MEET + NEXT, X.reshape(32, 2)[:, ::-1].reshape(-1)),
    ):
        clean(body, X, out := empty(64))
        assert np.array_equal(out, wanted)


# ---- barriers and warps -------------------------------------------------------------------------------------------


def test_divergent_barriers():
    two = "@%p10 bra LOW;\nbar.sync 0; // others\nbra OUT;\nLOW: bar.sync 0; // low\nOUT:"
    said = "is reached by 32 of 64 threads of a block, {} wait at other barriers, {} have ended"
    found(two, "// others", "divergent barrier", said.format(32, 0))
    found("@!%p10 ret;\nbar.sync 0;", "bar.sync", "divergent barrier", said.format(0, 32))
    clean("bar.sync 0;\n@!%p10 ret;")


def test_divergent_warps():
    """Of lanes that have ended, or never were, nothing is expected."""
    shuffle, some = (f"shfl.sync.down.b32 %r1, %r30, 1, 31, {mask};" for mask in ("0xffffffff", "0xfffffffe"))
    found(f"@%p11 bra OUT;\n{shuffle}\nOUT: bar.sync 0;", "shfl", "divergent warp", "not there: 0; thread (1, 0, 0)")
    found(some, "shfl", "divergent warp", "which leaves out the lane itself")
    for body in (f"@%p11 ret;\n{shuffle}", f"@%p10 bra OUT;\n{shuffle}\nOUT:", f"@%p11 bra OUT;\n{some}\nOUT:"):
        clean(body)
    clean(shuffle, block=33)


# ---- where faults are said to be -----------------------------------------------------------------------------------


def test_faults_are_reported_once_and_the_launch_goes_on():
    text, report = faults_of(COPY.format("+4", "+4"), np.zeros(64, "f4"), empty(64), grid=200)
    kinds = [(fault.kind, fault.line.line) for fault in report.faults]
    assert len(kinds) == len(set(kinds)) and {kind for kind, _ in kinds} == {OUT, "global race"}
    assert report.counts.instructions["ld.global.f32"] == 400


def test_arrays_behind_pointers_in_memory_have_names_too():
    x = np.zeros(4, np.float32)
    text = kernel("ld.global.u64 %rd1, [%rd0];\nld.global.f32 %f1, [%rd1+16];", "u64")
    report = interpret(text, (1,), (1,), (np.array([address(x)], np.uint64),))
    ptx.found(text, report, "%f1", OUT, f"byte 16 of the array at {address(x):#x}, which has 16")
