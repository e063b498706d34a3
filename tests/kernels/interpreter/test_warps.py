"""Instructions of whole warps, executed from PTX, against the manual's rules, one lane at a time.

Of tensor cores the manual gives formulas: row and column of element i of the lane with groupID g = lane >> 2 and
threadID_in_group t = lane % 4.
"""

import numpy as np
import pytest

from minigrad_kernels.interpreter import interpret

from .ptx import clean, kernel

THREADS = 64
generator = np.random.default_rng(20240615)


def run(body, *arrays, threads=THREADS):
    """Execute lines of PTX by one block; %rd30, %rd31 ... point at this thread's row of each array (threads, ...)."""
    lines = ["mov.u32 %r50, %tid.x; mov.u32 %r51, %laneid;"]
    for i, array in enumerate(arrays):
        lines.append(f"mad.wide.u32 %rd{30 + i}, %r50, {array.itemsize * (array.size // threads)}, %rd{i};")
    text = kernel("\n".join([*lines, body]), "u64 " * len(arrays), ".shared .align 16 .b8 tile[4096];")
    clean(interpret(text, (1,), (threads,), arrays))


def shuffle_by_the_manual(mode, a, b, c):
    """The pseudo-code of shfl: one warp, lists of 32 numbers."""
    results, predicates = [], []
    for lane in range(32):
        bval, cval, mask = b[lane] & 31, c[lane] & 31, (c[lane] >> 8) & 31
        max_lane, min_lane = (lane & mask) | (cval & ~mask & 31), lane & mask
        j = {"up": lane - bval, "down": lane + bval, "bfly": lane ^ bval, "idx": min_lane | (bval & ~mask & 31)}[mode]
        pval = j >= max_lane if mode == "up" else j <= max_lane
        results.append(a[j if pval else lane])
        predicates.append(int(pval))
    return results, predicates


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(mode):
    """With any operands; and in segments of each width, as CUDA uses it: c = (32 - width) << 8 | 31."""
    body = f"""ld.global.u32 %r1, [%rd30]; ld.global.u32 %r2, [%rd31]; ld.global.u32 %r3, [%rd32];
    shfl.sync.{mode}.b32 %r4|%p1, %r1, %r2, %r3, 0xffffffff;
    selp.u32 %r5, 1, 0, %p1; st.global.v2.u32 [%rd33], {{%r4, %r5}};"""
    a, b, c = generator.integers(0, 2**32, (3, THREADS * 12), dtype=np.uint32)
    widths = np.repeat([1, 2, 4, 8, 16, 32], 64).astype(np.uint32)
    c[: len(widths)] = (32 - widths) << 8 | (0 if mode == "up" else 31)
    for first in range(0, len(a), THREADS):
        part = [x[first : first + THREADS] for x in (a, b, c)]
        run(body, *part, result := np.zeros((THREADS, 2), np.uint32))
        for warp in (slice(0, 32), slice(32, 64)):
            wanted = shuffle_by_the_manual(mode, *(x[warp].tolist() for x in part))
            assert (result[warp, 0].tolist(), result[warp, 1].tolist()) == wanted


def test_the_two_sides_of_a_branch_shuffle_apart():
    """Lanes below 20 and the others have their own member masks, and each the value of one of their side."""
    body = """
    ld.global.u32 %r1, [%rd30]; setp.lt.u32 %p0, %r51, 20; @%p0 bra LOW;
    shfl.sync.idx.b32 %r2, %r1, 25, 31, 0xfff00000; bra END;
    LOW: shfl.sync.idx.b32 %r2, %r1, 3, 31, 0x000fffff;
    END: selp.b32 %r3, 0x000fffff, 0xfff00000, %p0; shfl.sync.bfly.b32 %r4, %r1, 16, 31, %r3;
    st.global.v2.u32 [%rd31], {%r2, %r4};"""
    x, results = generator.integers(0, 100, THREADS, dtype=np.uint32), np.zeros((THREADS, 2), np.uint32)
    run(body, x, results)
    for thread in range(THREADS):
        first, lane = thread // 32 * 32, thread % 32
        assert results[thread, 0] == x[first + (3 if lane < 20 else 25)]
        same = (lane < 20) == (lane ^ 16 < 20)
        assert (results[thread, 1] == x[thread ^ 16]) == same


# ---- tensor cores ----------------------------------------------------------------------------------------------------

ACCUMULATOR = (4, lambda g, t, i: g if i < 2 else g + 8, lambda g, t, i: t * 2 + (i & 1))
# Bits of an element -> steps of k, then elements in a lane's fragment and their row and column, for A and B.
LAYOUTS = {
    16: (
        16,
        (8, lambda g, t, i: g + 8 * (i // 2 % 2), lambda g, t, i: t * 2 + (i & 1) + 8 * (i >= 4)),
        (4, lambda g, t, i: t * 2 + (i & 1) + 8 * (i >= 2), lambda g, t, i: g),
    ),
    32: (
        8,
        (4, lambda g, t, i: g if i in (0, 2) else g + 8, lambda g, t, i: t if i in (0, 1) else t + 4),
        (2, lambda g, t, i: t if i == 0 else t + 4, lambda g, t, i: g),
    ),
}


def to_registers(matrices, fragment, kind):
    """Matrices (warps, rows, columns) as (threads, registers): elements from low to high, of 16 bits two in each."""
    count, row, column = fragment
    places = [[[at(lane >> 2, lane % 4, i) for i in range(count)] for lane in range(32)] for at in (row, column)]
    elements = matrices[:, *map(np.array, places)].reshape(-1, count)
    if kind == "f16":
        return elements.astype(np.float16).view(np.uint32)
    return elements.astype(np.float32).view(np.uint32)


def product(kind, a, b, c):
    """Registers of d: what mma makes of matrices (warps, ...)."""
    k, of_a, of_b = LAYOUTS[32 if kind == "tf32" else 16]
    operands = [to_registers(*x) for x in ((a, of_a, kind), (b, of_b, kind), (c, ACCUMULATOR, "f32"))]
    starts = zip((0, 8, 12, 16), (*(x.shape[1] for x in operands), 4), strict=True)
    names = [[f"%x{first + i}" for i in range(count)] for first, count in starts]
    body = [".reg .b32 %x<24>;"]
    for i, row in enumerate(names[:3]):
        body += [f"ld.global.b32 {name}, [%rd{30 + i}+{4 * j}];" for j, name in enumerate(row)]
    a_list, b_list, c_list, d_list = ("{" + ", ".join(row) + "}" for row in names)
    shape = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32"
    body.append(f"{shape} {d_list}, {a_list}, {b_list}, {c_list}; st.global.v4.b32 [%rd33], {d_list};")
    run("\n".join(body), *operands, result := np.zeros_like(operands[2]), threads=32 * len(a))
    return result


@pytest.mark.parametrize("kind", ["f16", "tf32"])
def test_mma(kind):
    """Small whole numbers at random, so that no element meets a partner of another."""
    m, n, k = 16, 8, LAYOUTS[32 if kind == "tf32" else 16][0]
    a, b, c = (generator.integers(-8, 9, (3, *size)).astype(float) for size in ((m, k), (k, n), (m, n)))
    assert np.array_equal(product(kind, a, b, c), to_registers(a @ b + c, ACCUMULATOR, "f32"))
