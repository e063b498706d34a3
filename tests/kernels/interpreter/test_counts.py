"""What launches cost: sectors, bank conflicts and instructions, where the answer is known by hand or from a model."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import interpret

from .ptx import clean, kernel

RANDOM = np.random.default_rng(20)
BUFFER = ".shared .align 16 .b8 buffer[16384];"


def counts_of(body, *arguments, grid=1, block=32):
    head = "mov.u32 %r30, %tid.x; mov.u32 %r31, buffer;\n"
    return clean(interpret(kernel(head + body, "u64 " * len(arguments), BUFFER), grid, block, arguments)).counts


WIDTHS = {1: ("u8", "%r1"), 2: ("u16", "%rs1"), 4: ("u32", "%r1"), 8: ("u64", "%rd9"), 16: ("v2.u64", "{%rd9, %rd10}")}


def model(places, size):
    """(sectors, fewest, passes, fewest) of one warp's accesses to bytes, from the rules of the hardware."""
    touched = {place + i for place in places.values() for i in range(size)}
    passes = fewest = 0
    together = 32 // max(size // 4, 1)
    for first in range(0, 32, together):
        here = [place for lane, place in places.items() if first <= lane < first + together]
        words = {byte // 4 for place in here for byte in range(place, place + size)}
        passes += max((sum(word % 32 == bank for word in words) for bank in range(32)), default=0)
        fewest += bool(here)
    return len({byte // 32 for byte in touched}), -(-len(touched) // 32), passes, fewest


@pytest.mark.parametrize("size", WIDTHS)
def test_counts_of_random_accesses(size):
    """Strides from 0 to 33, or no order at all, by some of the threads: loads, stores and shared memory."""
    kind, register = WIDTHS[size]
    body = f"""
    mad.wide.u32 %rd30, %r30, 4, %rd1; ld.global.s32 %r32, [%rd30];
    setp.lt.s32 %p1, %r32, 0; @%p1 bra END;
    add.u32 %r33, %r31, %r32; cvt.u64.u32 %rd32, %r32; add.u64 %rd31, %rd32, %rd0; add.u64 %rd32, %rd32, %rd2;
    ld.global.{kind} {register}, [%rd31]; st.shared.{kind} [%r33], {register}; st.global.{kind} [%rd32], {register};
    END:
    """
    text = kernel("mov.u32 %r30, %tid.x; mov.u32 %r31, buffer;" + body, "u64 u64 u64", BUFFER)
    memory, out = np.zeros((2, 16384), np.uint8)
    for threads, stride in ((32, None), (160, None), *((70, stride) for stride in range(0, 34, 3))):
        number = np.arange(threads) * stride if stride is not None else RANDOM.integers(0, 16384 // size, threads)
        places = (number * size % 16384).astype(np.int32)
        places[RANDOM.random(threads) < RANDOM.choice([0, 0.1, 0.5, 0.95])] = -1
        counts = interpret(text, (1,), (threads,), (memory, places, out)).counts
        warps = [{i: int(p) for i, p in enumerate(places[w : w + 32]) if p >= 0} for w in range(0, threads, 32)]
        sectors, ideal, *passes = np.sum([model(warp, size) for warp in warps], axis=0)
        stored = counts.global_store_sectors, counts.global_store_sectors_ideal
        assert stored == (sectors, ideal), (stride, places)
        table = -(-threads * 4 // 32)
        loaded = counts.global_load_sectors - table, counts.global_load_sectors_ideal - table
        assert loaded == stored and [counts.shared_wavefronts, counts.shared_wavefronts_ideal] == passes
        if sectors:
            assert counts.bytes_stored == {"2": size * sum(places >= 0)} and counts.bytes_loaded["0"] > 0
            assert counts.sector_bytes_stored["2"] == counts.sector_bytes_loaded["0"] == 32 * sectors


def test_instructions_by_warp():
    """A table of them can be read."""
    body = """mov.u32 %r30, %tid.x;
    setp.lt.u32 %p1, %r30, 40; @!%p1 bra REST;
    fma.rn.f32 %f1, %f2, %f3, %f4;
    REST: mul.ftz.f32 %f5, %f6, %f7;
    div.rn.f32 %f5, %f6, %f7; div.approx.f32 %f5, %f6, %f7;
    bar.sync 0;
    """
    text = kernel(body)
    counts = interpret(text, (3,), (96,), ()).counts
    expected = {"fma.f32": 6, "mul.f32": 9, "div.f32": 9, "div.approx.f32": 9, "bar.sync": 9, "bra": 9, "ret": 9}
    assert {name: counts.instructions[name] for name in expected} == expected and counts.barriers == 3
    table = str(
        counts_of("mad.wide.u32 %rd30, %r30, 8, %rd0; ld.global.f32 %f1, [%rd30];", np.zeros(64, np.float32))
    ).splitlines()
    lines = [" ".join(line.split()) for line in table]
    assert {"sectors loaded 8 ideal 4", "bytes loaded from 0 128 in sectors 256", "ld.global.f32 1"} <= set(lines)
