"""Bulk copies by tensor maps and mbarriers: what arrives, when, and what must come before and after."""

import numpy as np
import pytest

from minigrad_kernels.errors import ShapeError, StateError
from minigrad_kernels.interpreter import address, array, empty, interpret
from minigrad_kernels.interpreter.tensor_map import TensorMap, decode, encode

from .ptx import kernel, line_of

ROWS, COLUMNS = 8, 64  # of a box: lines of 128 bytes
SIZE = 2 * ROWS * COLUMNS
SHARED = f".shared .align 1024 .b8 tile[{2 * SIZE}]; .shared .align 8 .b8 gate[16];"
START = """mov.u32 %r30, %tid.x; mov.u32 %r31, tile; mov.u32 %r32, gate;
setp.eq.u32 %p1, %r30, 0; setp.ne.u32 %p3, %r30, 0;
mad.lo.u32 %r33, %r30, 16, %r31; mad.wide.u32 %rd30, %r30, 16, %rd0;
"""
MAKE = "@%p1 mbarrier.init.shared::cta.b64 [%r32], 1;\n"
FENCE = "@%p1 fence.proxy.async.shared::cta;\n"
MEET = "bar.sync 0;\n"
ACQUIRE = "@%p1 fence.proxy.tensormap::generic.acquire.sys [%rd1], 128;\n"
EXPECT = f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r32], {SIZE};\n"
BOX = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r31], [%rd1, {%r2, %r3}], [%r32];\n"
)
COPY = "@%p1 " + BOX
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r32], 0; @!%p2 bra WAIT;\n"
TAKE = "ld.shared.v4.u32 {%r40, %r41, %r42, %r43}, [%r33]; st.global.v4.u32 [%rd30], {%r40, %r41, %r42, %r43};\n"
READY = MAKE + FENCE + MEET + ACQUIRE


def map_of(x, **changes):
    """The tensor map of a matrix of 16-bit elements in C order."""
    settings = TensorMap(address(x), *x.shape, x.strides[0], ROWS, COLUMNS, x.itemsize)
    return array(encode(settings._replace(**changes)))


def run(body, x=None, row=0, column=0, map_=None, threads=SIZE // 16):
    x = array(np.arange(20 * 88, dtype=np.uint16).reshape(20, 88)) if x is None else x
    out = empty((ROWS, COLUMNS), np.uint16)
    map_ = map_of(x) if map_ is None else map_
    text = kernel(START + body, "u64 u64 s32 s32", SHARED).replace("%r0, [k_param_2]", "%r2, [k_param_2]")
    return text, interpret(text, (1,), (threads,), [out, map_, column, row]), np.asarray(out)


def found(body, part, kind, message, **options):
    """The first fault; others may follow from it, as where threads that waited in vain are let go."""
    text, report, _ = run(body, **options)
    assert report.faults[0].kind == kind, [str(fault) for fault in report.faults]
    assert report.faults[0].line.line == line_of(text, part) and message in report.faults[0].message


PLACES = [(0, 0), (8, 24), (13, 64), (-5, -24), (19, 87), (20, 0), (0, 88), (-8, -64)]


@pytest.mark.parametrize("row, column", PLACES)
def test_a_box_arrives_turned_and_is_zero_outside_of_its_matrix(row, column):
    x = array(np.arange(1, 20 * 88 + 1, dtype=np.uint16).reshape(20, 88))
    _, report, out = run(READY + EXPECT + COPY + WAIT + TAKE, x, row, column)
    assert not report.faults, [str(fault) for fault in report.faults]
    around = np.pad(np.asarray(x), ((ROWS, ROWS), (COLUMNS, COLUMNS)))
    box = around[row + ROWS : row + 2 * ROWS, column + COLUMNS : column + 2 * COLUMNS].reshape(ROWS, 8, 8)
    line, chunk = np.indices((ROWS, 8))
    np.testing.assert_array_equal(out.reshape(ROWS, 8, 8), box[line, chunk ^ line])


def test_what_travels_is_counted():
    x = array(np.ones((20, 88), np.uint16))
    _, report, _ = run(READY + EXPECT + COPY + WAIT + TAKE, x, 16, 40)
    (name,) = (name for name in report.counts.bytes_loaded if name not in ("1",))
    assert report.counts.bytes_loaded[name] == 4 * 48 * 2, "four rows and 48 columns are inside"
    assert report.counts.sector_bytes_loaded[name] == (4 + 3 + 4 + 3) * 32


def test_one_thread_may_wait_for_all():
    _, report, _ = run(READY + EXPECT + COPY + "@%p3 bra PAST;\n" + WAIT + "PAST: " + MEET + TAKE)
    assert not report.faults, [str(fault) for fault in report.faults]


def test_phases_follow_each_other():
    """A second copy to another place, by the parity of the second phase."""
    second = BOX.replace("[%r31]", "[%r34]")
    body = READY + EXPECT + COPY + WAIT + "add.u32 %r34, %r31, 1024;\n" + EXPECT + "@%p1 " + second
    body += WAIT.replace("WAIT", "MORE").replace(", 0;", ", 1;") + TAKE.replace("[%r33]", "[%r33+1024]")
    x = array(np.arange(8 * 64, dtype=np.uint16).reshape(8, 64))
    _, report, out = run(body, x)
    assert not report.faults, [str(fault) for fault in report.faults]
    np.testing.assert_array_equal(out[0], np.arange(64))
    report = run(body.replace(", 1; @!%p2 bra MORE", ", 0; @!%p2 bra MORE"), x)[1]
    assert report.faults[0].kind == "bulk wait", "the phase that is over is not the one to wait for"


WHOLE = READY + EXPECT + COPY + WAIT + TAKE
FAULTS = {
    "no wait": (WHOLE.replace(WAIT, ""), "ld.shared", "bulk wait", "to which a bulk copy is under way"),
    "a wait of another warp": (
        WHOLE.replace(WAIT, "@%p3 bra PAST;\n" + WAIT + "PAST: mov.u32 %r50, 0;\n"), "ld.shared", "bulk wait",
        "whose mbarrier it has not waited for",
    ),
    "a write to where a copy goes": (
        WHOLE.replace(WAIT, "@%p1 st.shared.u32 [%r31], %r30;\n" + WAIT), "st.shared", "bulk wait", "under way",
    ),
    "two copies to one place": (
        WHOLE.replace(EXPECT, EXPECT.replace(str(SIZE), str(2 * SIZE))).replace(COPY, COPY + "\n@%p1  " + BOX),
        "@%p1  cp.async", "bulk wait", "another copy is under way",
    ),
    "no fence after making the mbarrier": (
        WHOLE.replace(FENCE, ""), "cp.async", "proxy fence", "whose maker has executed no fence.proxy.async since",
    ),
    "no fence of the map": (WHOLE.replace(ACQUIRE, ""), "cp.async", "proxy fence", "fence.proxy.tensormap"),
    "too many bytes": (
        WHOLE.replace(str(SIZE), str(SIZE + 16)), "try_wait", "mbarrier wait", "lacks 0 arrivals and 16 bytes",
    ),
    "nobody arrives": (
        WHOLE.replace("arrive.expect_tx", "expect_tx").replace("_, ", ""), "try_wait", "mbarrier wait",
        "lacks 1 arrivals and 0 bytes",
    ),
    "one arrival too many": (
        WHOLE.replace(MAKE, MAKE.replace(", 1;", ", 2;")).replace(COPY, "mbarrier.arrive.shared::cta.b64 _, [%r32];\n"),
        "mbarrier.arrive.shared", "mbarrier", "is one arrival too many for the phase of an mbarrier made for 2",
    ),
    "a place between lines": (
        WHOLE.replace(COPY, "add.u32 %r31, %r31, 64;\n" + COPY).replace(WAIT + TAKE, ""), "cp.async", "misaligned",
        "no multiple of 128",
    ),
    "a place outside": (
        WHOLE.replace(COPY, "add.u32 %r31, %r31, 1152;\n" + COPY).replace(WAIT + TAKE, ""), "cp.async", "out of bounds",
        f"writes {SIZE} bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_mistakes_are_found(what):
    found(*FAULTS[what])


def test_an_mbarrier_that_nobody_made_and_one_not_made_for_all_yet():
    _, report, _ = run(WHOLE.replace(MAKE, "").replace(WAIT + TAKE, ""))
    assert {fault.kind for fault in report.faults} == {"mbarrier"}
    assert "nobody made one with mbarrier.init" in report.faults[0].message
    _, report, _ = run(WHOLE.replace(MEET, ""))
    assert "shared race" in {fault.kind for fault in report.faults}


def test_maps_that_are_none_and_matrices_that_end_early():
    body = WHOLE.replace(WAIT + TAKE, "")
    found(body, "cp.async", "tensor map", "has no tensor map at", map_=array(np.zeros(16, np.uint64)))
    x = array(np.zeros((4, 64), np.uint16))
    found(body, "cp.async", "out of bounds", "reads 128 bytes", x=x, map_=map_of(x, rows=8))
    unwritten = empty((8, 64), np.uint16)
    found(body, "cp.async", "unwritten read", "nobody wrote", x=unwritten, map_=map_of(unwritten))


WRONG = {
    "rows": 0, "columns": (1 << 32) + 1, "stride": 24, "box_rows": 257, "box_columns": 65, "address": 8,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_maps_that_the_driver_would_refuse(name):
    good = TensorMap(1 << 40, 16, 64, 128, 8, 64, 2)
    assert decode(encode(good)) == good
    with pytest.raises(ShapeError, match="^tensor map: .*; wants sizes from 1 on, boxes of at most 256 by 256"):
        encode(good._replace(**{name: WRONG[name]}))


@pytest.mark.parametrize("text", [
    BOX.replace("2d", "3d"), BOX.replace("[%rd1, {%r2, %r3}]", "[%rd1]"),
    "mbarrier.arrive.shared.b64 %rd3, [%r32];", "mbarrier.try_wait.shared.b64 %p1, [%r32], %rd3;",
])  # fmt: skip
def test_forms_that_are_not_known_are_refused(text):
    with pytest.raises(StateError, match="not known"):
        run(text)
