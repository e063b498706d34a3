"""Every word of kernels that is our own: compiled, interpreted, and compared with NumPy. Planted mistakes are found.

The kernels stand at the end of the file. Where no compiler is installed there is nothing to interpret.
"""

import inspect

import numpy as np
import pytest

from minigrad_kernels.interpreter import address, empty, interpret
from minigrad_kernels.toolchain.cuda import (
    bf16x2,
    bits,
    compiler,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    cuda,
    f16x2,
    f32,
    from_bits,
    global_address,
    i32,
    kernel,
    ldmatrix,
    load2_words,
    load4,
    load4_words,
    mma_bf16,
    mma_f16,
    mma_tf32,
    narrow_f16,
    offset,
    outer_product,
    pointer_at,
    shared_address,
    store2_words,
    store4,
    store4_words,
    tf32,
    u16,
    u32,
    unroll,
    widen_f16,
)

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
RANDOM = np.random.default_rng(0)


def run(k, block, *arguments, grid=(1,), shared=0):
    """The report of one launch, which must have no faults."""
    report = interpret(k, grid, block, arguments, shared)
    assert report.faults == []
    return report


def floats(*shape):
    return RANDOM.integers(-4, 5, shape).astype(np.float32)


# ---- what they compute -------------------------------------------------------------------------------------------


def test_four_at_a_time():
    x, out = floats(64), np.full(64, np.nan, np.float32)
    report = run(fours, (16,), x, out)
    np.testing.assert_array_equal(out.reshape(-1, 4), x.reshape(-1, 4)[:, ::-1])
    assert report.counts.instructions["ld.global.nc.v4.f32"] == 1, "one request of a warp for all"


def test_more_shared_memory_than_a_kernel_may_declare():
    """64 KB, asked for by the launch. The GPU grants up to 227 KB of such memory, 48 KB of the other kind."""
    x, out = floats(1 << 14), np.full(1 << 14, np.nan, np.float32)
    run(reversed_by_block, (256,), x, out, x.size, shared=x.nbytes)
    np.testing.assert_array_equal(out, x[::-1])
    report = interpret(reversed_by_block, (1,), (256,), (x, out, x.size), x.nbytes - 4)
    assert {fault.kind for fault in report.faults} == {"out of bounds"}


def test_pointers_from_a_table():
    x, y, out = floats(8), floats(8), np.full(8, np.nan, np.float32)
    table = np.array([address(x), address(y)], np.uint64)
    run(gathered, (8,), table, out)
    np.testing.assert_array_equal(out, np.concatenate([x[1:], x[:1]]) * 0 + np.concatenate([x[1:5], y[5:], y[:1]]))


def test_outer_product():
    a, b = floats(3, 4), floats(3, 2)
    out = np.full((4, 2), np.nan, np.float32)
    run(products, (1,), a, b, out)
    np.testing.assert_array_equal(out, a.T @ b)


def test_conversions():
    x = RANDOM.standard_normal(32).astype(np.float32)
    out = np.zeros((3, 32), np.uint32)
    run(converted, (32,), x, out)
    np.testing.assert_array_equal(out[0], x.view(np.uint32))
    nearest = ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
    np.testing.assert_array_equal(out[1].view(np.float32), nearest)
    half = np.uint64(0x7FFF) + (x.view(np.uint32) >> 16 & 1)
    bfloat = ((x.view(np.uint32) + half) >> 16).astype(np.uint32)
    np.testing.assert_array_equal(out[2], bfloat | 0x3F800000)  # the high half is 1.0


def test_conversions_of_16_bits():
    x = RANDOM.standard_normal(32).astype(np.float32)
    x[:4] = 1e6, -1e6, 1e-8, np.inf
    out = np.zeros((4, 32), np.uint32)
    run(converted_halves, (32,), x, out)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).view(np.uint16).astype(np.uint32)
    np.testing.assert_array_equal(out[0], half)
    np.testing.assert_array_equal(out[1], half | 0x3C000000)  # the high half is 1.0
    np.testing.assert_array_equal(out[2].view(np.float32), half.astype(np.uint16).view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(out[3], x.view(np.uint32))


@pytest.mark.parametrize("words", [2, 4])
def test_words_at_a_time(words):
    """Of elements of 16 bits, through global and through shared memory, in one access each."""
    x = RANDOM.integers(0, 1 << 16, 32 * 2 * words).astype(np.uint16)
    out = np.zeros_like(x)
    report = run(turned[words], (32,), x, out)
    np.testing.assert_array_equal(out.view(np.uint32), x.view(np.uint32)[::-1])
    counts = report.counts.instructions
    accesses = {op: n for op, n in counts.items() if op.startswith(("ld.", "st.")) and "param" not in op and n}
    assert sorted(accesses) == sorted(
        f"{op}.v{words}.u32" for op in ("ld.global.nc", "st.global", "ld.shared", "st.shared")
    )
    assert set(accesses.values()) == {1}


def halves(values, kind):
    """Small integers as 16-bit floats of that kind."""
    return values.astype(np.float16).view(np.uint16) if kind == "f16" else (values.view(np.uint32) >> 16).astype("u2")


def test_products_on_tensor_cores():
    a, b, c = floats(16, 16), floats(16, 8), floats(16, 8)
    for kind, tile in (("f16", tile_f16), ("bf16", tile_bf16)):
        out = np.full((16, 8), np.nan, np.float32)
        run(tile, (32,), halves(a, kind), halves(b.T.copy(), kind), c, out)
        np.testing.assert_array_equal(out, a @ b + c)
    a, b = floats(16, 8), floats(8, 8)
    run(tile_tf32, (32,), a, b, out)
    np.testing.assert_array_equal(out, a @ b)


def test_asynchronous_copies():
    x, out = floats(64), np.full(64, np.nan, np.float32)
    run(copied, (16,), x, out, 64)
    np.testing.assert_array_equal(out, np.concatenate([x[32:], x[:32]]))
    run(copied, (16,), x, out, 62)
    np.testing.assert_array_equal(out[30:32], [0, 0])


# ---- planted mistakes, each found in its line --------------------------------------------------------------------


def test_finds_mistakes_in_their_source_lines():
    for k, kind, mark, threads, arguments, grid in (
        (shifted, "out of bounds", "load", 32, (floats(32), empty(32), 1), 1),
        (shifted, "out of bounds", "store", 32, (floats(33), empty(31), 1), 1),
        (shifted, "unwritten read", "load", 32, (empty(32), empty(32), 0), 1),
        (shifted, "global race", "store", 32, (floats(32), empty(32), 0), 2),
        (fours, "misaligned", "load", 8, (floats(33)[1:], empty(32)), 1),
        (no_barrier, "shared race", "read", 64, (floats(64), empty(64)), 1),
        (lax, "cp.async wait", "read", 16, (floats(64), empty(64)), 1),
    ):
        faults = interpret(k, grid, threads, arguments).faults
        assert {fault.kind for fault in faults} == {kind}, [str(fault) for fault in faults]
        lines, first = inspect.getsourcelines(k.function)
        (number,) = [first + i for i, line in enumerate(lines) if f"# {mark}" in line]
        assert number in {fault.line.line for fault in faults} and str(number) in str(faults[0])


# ---- the kernels -------------------------------------------------------------------------------------------------


@kernel("f32* x, f32* out", threads=256)
def fours(x, out):
    i = i32(cuda.threadIdx.x * 4)
    v = load4(x, i)  # load
    store4(out, i, (v[3], v[2], v[1], v[0]))


@kernel("f32* x, f32* out, i32 n", threads=256)
def reversed_by_block(x, out, n):
    tile = cuda.shared.array(0, f32, alignment=16)
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        tile[i] = x[i]
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        out[i] = tile[n - 1 - i]


@kernel("u64* table, f32* out", threads=8)
def gathered(table, out):
    """Element i+1, of the first array for threads below 4, else of the second."""
    i = i32(cuda.threadIdx.x)
    x = pointer_at(table[i // 4], out)
    out[i] = offset(x, (i + 1) % 8)[0]


@kernel("f32* a, f32* b, f32* out", threads=1)
def products(a, b, out):
    sums = cuda.local.array(8, f32)
    for i in range(8):
        unroll(0)
        sums[i] = f32(0)
    for k in range(3):
        unroll(0)
        outer_product(sums, (a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]), (b[2 * k], b[2 * k + 1]))
    for i in range(8):
        unroll(0)
        out[i] = sums[i]


@kernel("f32* x, u32* out", threads=32, lowest="sm_80")
def converted(x, out):
    i = i32(cuda.threadIdx.x)
    out[i] = bits(x[i])
    out[i + 32] = tf32(x[i])
    out[i + 64] = bf16x2(f32(1), x[i])


@kernel("f32* x, u32* out", threads=32, lowest="sm_80")
def converted_halves(x, out):
    i = i32(cuda.threadIdx.x)
    half = narrow_f16(x[i])
    out[i] = u32(half)
    out[i + 32] = f16x2(f32(1), x[i])
    out[i + 64] = bits(widen_f16(half))
    out[i + 96] = bits(from_bits(bits(x[i])))


def _turned(words, load, store):
    @kernel("u16* x, u16* out", threads=32, variant=str(words))
    def turned(x, out):
        """All words of 32 bits the other way round: through shared memory to another thread, which turns its own."""
        tile = cuda.shared.array(256, u16, alignment=16)
        i = i32(cuda.threadIdx.x * 2 * words)
        store(tile, i, load(x, i))
        cuda.syncwarp()
        found = load(tile, i32(62 * words - i))
        store(out, i, found[::-1])

    return turned


turned = {2: _turned(2, load2_words, store2_words), 4: _turned(4, load4_words, store4_words)}


def _tile(mma, variant):
    @kernel("u16* a, u16* b, f32* c, f32* out", threads=32, lowest="sm_80", variant=variant)
    def tile(a, b, c, out):
        """out = a b + c, 16 by 8 by 16; b lies with its columns along memory."""
        tile_a = cuda.shared.array(16 * 16, u16, alignment=16)
        tile_b = cuda.shared.array(16 * 16, u16, alignment=16)
        lane = i32(cuda.threadIdx.x)
        for k in range(8):
            tile_a[lane * 8 + k] = a[lane * 8 + k]
            tile_b[lane * 8 + k] = b[(lane * 8 + k) % 128]
        cuda.syncwarp()
        row, column = lane % 16, lane // 16 * 8
        left = ldmatrix(shared_address(tile_a, row * 16 + column))
        right = ldmatrix(shared_address(tile_b, lane % 8 * 16 + lane // 8 % 2 * 8))
        i, j = lane // 4, lane % 4 * 2
        start = (c[i * 8 + j], c[i * 8 + j + 1], c[i * 8 + j + 64], c[i * 8 + j + 65])
        d = mma(left, (right[0], right[1]), start)
        out[i * 8 + j], out[i * 8 + j + 1], out[i * 8 + j + 64], out[i * 8 + j + 65] = d[0], d[1], d[2], d[3]

    return tile


tile_f16, tile_bf16 = _tile(mma_f16, "f16"), _tile(mma_bf16, "bf16")


@kernel("f32* a, f32* b, f32* out", threads=32, lowest="sm_80")
def tile_tf32(a, b, out):
    i, j = i32(cuda.threadIdx.x // 4), i32(cuda.threadIdx.x % 4)
    left = (tf32(a[i * 8 + j]), tf32(a[i * 8 + j + 64]), tf32(a[i * 8 + j + 4]), tf32(a[i * 8 + j + 68]))
    right = (tf32(b[j * 8 + i]), tf32(b[j * 8 + 32 + i]))
    d = mma_tf32(left, right, (f32(0), f32(0), f32(0), f32(0)))
    out[i * 8 + j * 2], out[i * 8 + j * 2 + 1] = d[0], d[1]
    out[i * 8 + j * 2 + 64], out[i * 8 + j * 2 + 65] = d[2], d[3]


wait_for_all, wait_for_all_but_one = cp_async_wait(0), cp_async_wait(1)


def _copying(wait, variant):
    @kernel("f32* x, f32* out, i32 n", threads=16, lowest="sm_80", variant=variant)
    def copied(x, out, n):
        """The halves of x change places; elements from n on count as zero."""
        tile = cuda.shared.array(64, f32, alignment=16)
        i = i32(cuda.threadIdx.x * 4)
        left = u32(max(0, min(4, n - i)) * 4)
        cp_async(shared_address(tile, i), global_address(x, i), left)
        cp_async_commit()
        wait()
        cuda.syncthreads()
        for k in range(4):
            out[(i + k + 32) % 64] = tile[i + k]  # read

    return copied


copied = _copying(wait_for_all, "all")


@kernel("f32* x, f32* out", threads=16, lowest="sm_80")
def lax(x, out):
    """Two groups travel, and the wait lets one of them go on."""
    tile = cuda.shared.array(128, f32, alignment=16)
    i = i32(cuda.threadIdx.x * 4)
    cp_async(shared_address(tile, i), global_address(x, i), u32(16))
    cp_async_commit()
    cp_async(shared_address(tile, i + 64), global_address(x, i), u32(16))
    cp_async_commit()
    wait_for_all_but_one()
    cuda.syncthreads()
    for k in range(4):
        out[i + k] = tile[i + k + 64]  # read


@kernel("f32* x, f32* out, i32 n", threads=32)
def shifted(x, out, n):
    i = i32(cuda.threadIdx.x)
    v = x[i + n]  # load
    out[i] = v  # store


@kernel("f32* x, f32* out", threads=64)
def no_barrier(x, out):
    tile = cuda.shared.array(64, f32)
    i = i32(cuda.threadIdx.x)
    tile[i] = x[i]
    out[i] = tile[63 - i]  # read
