"""What launches cost: sectors, bank conflicts and instructions, where the answer is known by hand."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import empty, interpret

from .ptx import kernel, line_of

BUFFER = ".shared .align 16 .b8 buffer[8192];"


def counts_of(body, *arguments, grid=(1,), block=(32,), parameters=None):
    head = "mov.u32 %r30, %tid.x; mov.u32 %r31, buffer;\n"
    text = kernel(head + body, parameters or "u64 " * len(arguments), BUFFER)
    report = interpret(text, grid, block, arguments)
    assert not report.faults, [str(fault) for fault in report.faults]
    return report.counts


def strided(step, width=1, operation="ld"):
    """Each thread accesses `width` floats, `step` floats after those of the one before."""
    registers = "{%f1, %f2, %f3, %f4}" if width == 4 else "{%f1, %f2}" if width == 2 else "%f1"
    kind = {1: "f32", 2: "v2.f32", 4: "v4.f32"}[width]
    address = f"mul.lo.u32 %r32, %r30, {step}; mad.wide.u32 %rd30, %r32, 4, %rd0;\n"
    access = (
        f"ld.global.{kind} {registers}, [%rd30];" if operation == "ld" else f"st.global.{kind} [%rd30], {registers};"
    )
    return address + access


@pytest.mark.parametrize(
    "step, width, touched, least",
    [
        (1, 1, 4, 4),  # 32 neighbours: 128 bytes
        (2, 1, 8, 4),
        (8, 1, 32, 4),
        (32, 1, 32, 4),
        (0, 1, 1, 1),  # one float for all
        (2, 2, 8, 8),
        (4, 4, 16, 16),
        (8, 4, 32, 16),
        (4, 2, 16, 8),
    ],
)
@pytest.mark.parametrize("operation", ["ld", "st"])
def test_sectors_of_global_memory(step, width, touched, least, operation):
    x = np.zeros(1024, np.float32)
    counts = counts_of(strided(step, width, operation), x)
    assert (counts.global_sectors, counts.global_sectors_ideal) == (touched, least)
    load, store = (counts.global_load_sectors, counts.global_store_sectors)
    assert (load, store) == ((touched, 0) if operation == "ld" else (0, touched))
    asked, moved = (counts.bytes_loaded, counts.sector_bytes_loaded) if operation == "ld" else (
        counts.bytes_stored, counts.sector_bytes_stored)  # fmt: skip
    assert asked == {"0": 32 * 4 * width} and moved == {"0": 32 * touched}


def test_bytes_and_sectors_of_two_arrays_in_one_memory_are_told_apart():
    """Half of a warp reads one array, half the other."""
    both = np.zeros(160, np.float32)
    body = "setp.lt.u32 %p1, %r30, 16; selp.b64 %rd3, %rd0, %rd1, %p1; and.b32 %r32, %r30, 15;"
    counts = counts_of(body + "mad.wide.u32 %rd30, %r32, 4, %rd3; ld.global.f32 %f1, [%rd30];", both[:16], both[96:])
    assert counts.bytes_loaded == {"0": 64, "1": 64} and counts.sector_bytes_loaded == {"0": 64, "1": 64}


def test_a_shifted_row_takes_one_sector_more():
    counts = counts_of(strided(1), np.zeros(40, np.float32)[1:])
    assert (counts.global_sectors, counts.global_sectors_ideal) == (5, 4)


@pytest.mark.parametrize("threads, sectors", [(1, 1), (8, 1), (9, 2), (33, 5), (50, 7)])
def test_sectors_of_warps_that_are_not_whole(threads, sectors):
    counts = counts_of(strided(1), np.zeros(64, np.float32), block=(threads,))
    assert (counts.global_sectors, counts.global_sectors_ideal) == (sectors, sectors)


def test_sectors_in_divergent_code():
    body = "and.b32 %r33, %r30, 1; setp.eq.u32 %p1, %r33, 0; @!%p1 bra OUT;\n" + strided(1) + "\nOUT:"
    counts = counts_of(body, np.zeros(64, np.float32), block=(64,))
    assert (counts.global_sectors, counts.global_sectors_ideal) == (8, 4)
    assert counts.instructions["ld.global.f32"] == 2
    guarded = "setp.eq.u32 %p1, %r30, 1; mad.wide.u32 %rd30, %r30, 4, %rd0; @%p1 ld.global.f32 %f1, [%rd30];"
    counts = counts_of(guarded, np.zeros(64, np.float32), block=(64,))
    assert counts.global_sectors == 1 and counts.instructions["ld.global.f32"] == 1


def shared(step, width=1):
    registers = {1: "%f1", 2: "{%f1, %f1}", 4: "{%f1, %f1, %f1, %f1}"}[width]
    kind = {1: "f32", 2: "v2.f32", 4: "v4.f32"}[width]
    return f"mad.lo.u32 %r32, %r30, {step}, %r31;\nst.shared.{kind} [%r32], {registers};"


@pytest.mark.parametrize(
    "step, width, passes, least",
    [
        (4, 1, 1, 1),
        (8, 1, 2, 1),
        (12, 1, 1, 1),  # odd numbers of words have no conflicts
        (64, 1, 16, 1),
        (128, 1, 32, 1),
        (132, 1, 1, 1),  # a row padded by one word
        (8, 2, 2, 2),  # half a warp in a pass
        (16, 2, 4, 2),
        (128, 2, 32, 2),
        (16, 4, 4, 4),  # a quarter of a warp in a pass
        (32, 4, 8, 4),
        (128, 4, 32, 4),
        (144, 4, 4, 4),
    ],
)
def test_bank_conflicts(step, width, passes, least):
    counts = counts_of(shared(step, width))
    assert (counts.shared_wavefronts, counts.shared_wavefronts_ideal) == (passes, least)


def test_lanes_that_read_one_word_share_it():
    fill = "mad.lo.u32 %r32, %r30, 4, %r31; st.shared.f32 [%r32], %f1; bar.sync 0;\n"
    for body, passes in (
        ("ld.shared.f32 %f2, [%r31];", 1),
        ("shr.u32 %r33, %r30, 1; mad.lo.u32 %r33, %r33, 4, %r31; ld.shared.f32 %f2, [%r33];", 1),
        ("ld.shared.v4.f32 {%f2, %f3, %f4, %f5}, [%r31];", 4),
        ("mad.lo.u32 %r33, %r30, 1, %r31; ld.shared.u8 %rs1, [%r33];", 1),
        ("setp.lt.u32 %p1, %r30, 5; @%p1 ld.shared.v4.f32 {%f2, %f3, %f4, %f5}, [%r31];", 1),
    ):
        counts = counts_of(fill + body)
        assert counts.shared_wavefronts - 1 == passes, body
        assert counts.shared_wavefronts_ideal - 1 == passes, body


def test_instructions_by_warp_and_line():
    body = """
    setp.lt.u32 %p1, %r30, 40; @!%p1 bra REST;
    fma.rn.f32 %f1, %f2, %f3, %f4;
    REST: mul.ftz.f32 %f5, %f6, %f7;
    div.rn.f32 %f5, %f6, %f7; div.approx.f32 %f5, %f6, %f7;
    bar.sync 0;
    """
    text = kernel("mov.u32 %r30, %tid.x;" + body)
    counts = interpret(text, (3,), (96,), ()).counts
    expected = {"fma.f32": 6, "mul.f32": 9, "div.f32": 9, "div.approx.f32": 9, "bar.sync": 9, "bra": 9, "ret": 9}
    assert {name: counts.instructions[name] for name in expected} == expected
    assert counts.barriers == 3
    by_line = {location.line: number for location, number in counts.lines.items()}
    assert by_line[line_of(text, "fma")] == 6 and by_line[line_of(text, "bar.sync")] == 9
    assert sum(counts.lines.values()) == sum(counts.instructions.values())


def test_counts_do_not_depend_on_how_many_blocks_run_at_once():
    body = "mov.u32 %r32, %ctaid.x; mad.lo.u32 %r30, %r32, 200, %r30;\n" + strided(3, 1, "st")
    out = empty(600 * 100)
    one = counts_of(body, out[:600], block=(200,))
    many = counts_of(body, out, grid=(100,), block=(200,))
    assert many.instructions == {name: 100 * number for name, number in one.instructions.items()}
    assert (many.global_sectors, many.global_sectors_ideal) == (
        100 * one.global_sectors,
        100 * one.global_sectors_ideal,
    )


def test_a_table_to_read():
    counts = counts_of(strided(2), np.zeros(64, np.float32))
    lines = [" ".join(line.split()) for line in str(counts).splitlines()]
    assert "sectors loaded 8 ideal 4" in lines and "bytes loaded from 0 128 in sectors 256" in lines
    assert "ld.global.f32 1" in lines and not any(line.endswith(" ") for line in str(counts).splitlines())
