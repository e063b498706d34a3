"""Elements of 16 bits in kernels: all 65,536 patterns widened, and floats about each of them rounded, as NumPy does.

The kernels stand at the end of the file. Where no compiler is installed there is nothing to interpret.
"""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels.interpreter import interpret
from minigrad_kernels.toolchain.cuda import compiler, cuda, i32, kernel
from minigrad_kernels.toolchain.cuda.halves import HALVES, SINGLE

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32)}
each_half = pytest.mark.parametrize("half", HALVES, ids=lambda half: half.name)
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def run(k, x, result):
    """What a kernel makes of x, 1024 threads to the block."""
    out = np.zeros(x.size, result)
    report = interpret(k, (-(-x.size // 1024),), (1024,), (x, out, x.size))
    assert report.faults == []
    return out, report


def same_numbers(got, want):
    """Equal bits, but that one NaN is as good as another."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
    kind = f"u{want.itemsize}"
    np.testing.assert_array_equal(got.view(kind)[~nan], want.view(kind)[~nan])


@each_half
def test_all_patterns_are_widened(half):
    got, _ = run(widened[half.name], PATTERNS, np.float32)
    same_numbers(got, PATTERNS.view(TYPES[half.name]).astype(np.float32))


def about(dtype):
    """Every element as a float, the middle between it and the next one, and the floats on both sides of either."""
    with np.errstate(invalid="ignore", over="ignore"):
        exact = np.sort(PATTERNS.view(dtype).astype(np.float32))
        exact = exact[np.isfinite(exact)]
        middle = exact[:-1] + (exact[1:] - exact[:-1]) / 2
        beyond = exact[-1] + (exact[-1] - exact[-2]) * np.array(
            [0.25, 0.5, 0.75, 2], np.float32
        )  # to infinity from 1/2
        near = np.concatenate([exact, middle, beyond, -beyond])
        near = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))])
    return np.concatenate([near, np.array([np.nan, np.inf, -np.inf, 1e-45, -1e-45, 0.0, -0.0], np.float32)])


@each_half
def test_floats_are_rounded_to_nearest_and_ties_to_even(half):
    """Also subnormal ones, and those that become infinite."""
    x, dtype = about(TYPES[half.name]), TYPES[half.name]
    got, _ = run(narrowed[half.name], x, np.uint16)
    with np.errstate(over="ignore"):
        same_numbers(got.view(dtype), x.astype(dtype))


@each_half
def test_four_at_a_time(half):
    """In the order of memory, one access for all, and rounded as one at a time is."""
    dtype = TYPES[half.name]
    x = np.concatenate([PATTERNS, PATTERNS[::-1]])
    got, report = run(fours[half.name], x, np.uint16)
    same_numbers(got.view(dtype), x.view(dtype).reshape(-1, 4)[:, ::-1].reshape(-1))
    counts = {op: n for op, n in report.counts.instructions.items() if op.startswith(("ld.global", "st.global")) and n}
    assert counts == {"ld.global.nc.v2.u32": 1024, "st.global.v2.u32": 1024}, "two words of 32 bits, for each warp"
    y = about(dtype)
    y = y[: y.size // 4 * 4]
    single, _ = run(narrowed[half.name], y, np.uint16)
    packed, _ = run(packed_fours[half.name], y, np.uint16)
    same_numbers(packed.view(dtype), single.view(dtype))


def test_float32_has_the_same_face():
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    for k in (fours["float32"], packed_fours["float32"]):
        got, report = run(k, x, np.float32)
        np.testing.assert_array_equal(got, x.reshape(-1, 4)[:, ::-1].reshape(-1) if k is fours["float32"] else x)
        assert report.counts.instructions["st.global.v4.f32"] == 1
    for k in (widened["float32"], narrowed["float32"]):
        np.testing.assert_array_equal(run(k, x, np.float32)[0], x)


# ---- kernels -----------------------------------------------------------------------------------------------------


def _converted(way, half, convert, source, target):
    """A kernel that converts each element, from memory of one type into that of another."""

    @kernel(f"{source} x, {target} out, i32 n", threads=1024, lowest=half.lowest, variant=f"{way}_{half.short}")
    def converted(x, out, n):
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i < n:
            out[i] = convert(x[i])

    return converted


def _fours(half):
    load4, store4 = half.load4, half.store4

    @kernel(f"{half.pointer} x, {half.pointer} out, i32 n", threads=1024, lowest=half.lowest, variant=half.short)
    def fours(x, out, n):
        """Every four elements, the other way round."""
        i = i32(4 * (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x))
        if i < n:
            a, b, c, d = load4(x, i)
            store4(out, i, (d, c, b, a))

    return fours


def _packed_fours(half):
    store4 = half.store4

    @kernel(f"f32* x, {half.pointer} out, i32 n", threads=1024, lowest=half.lowest, variant=half.short)
    def packed_fours(x, out, n):
        i = i32(4 * (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x))
        if i < n:
            store4(out, i, (x[i], x[i + 1], x[i + 2], x[i + 3]))

    return packed_fours


MAKERS = (
    lambda half: _converted("widened", half, half.widen, half.pointer, "f32*"),
    lambda half: _converted("narrowed", half, half.narrow, "f32*", half.pointer),
    _fours,
    _packed_fours,
)
widened, narrowed, fours, packed_fours = ({half.name: make(half) for half in (SINGLE, *HALVES)} for make in MAKERS)
