"""Elements of 16 bits in kernels: all 65,536 patterns widened, and floats about each of them rounded, as NumPy does.

Where no compiler is installed there is nothing to interpret.
"""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels.interpreter import interpret
from minigrad_kernels.toolchain.cuda import compiler, cuda, i32, kernel
from minigrad_kernels.toolchain.cuda.halves import BF16, F16

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


def make_faces(half):
    """A kernel that converts elements one by one and four at a time, which it also turns round."""
    widen, narrow, load4, store4, kind = half.widen, half.narrow, half.load4, half.store4, half.pointer

    signature = f"{kind} x, f32* y, f32* wide, {kind} turned, {kind} near, {kind} packed, i32 m, i32 n"

    @kernel(signature, threads=1024, lowest=half.lowest, variant=half.short)
    def faces(x, y, wide, turned, near, packed, m, n):
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        j = i32(4 * i)
        if i < m:
            wide[i] = widen(x[i])
        if i < n:
            near[i] = narrow(y[i])
        if j < m:
            a, b, c, d = load4(x, j)
            store4(turned, j, (d, c, b, a))
        if j < n:
            store4(packed, j, (y[j], y[j + 1], y[j + 2], y[j + 3]))

    return faces


KERNELS = [(make_faces(F16), np.dtype(np.float16)), (make_faces(BF16), np.dtype(ml_dtypes.bfloat16))]


def about(elements):
    """Every element as a float, the middle between it and the next one, and the floats on both sides of either."""
    exact = np.sort(elements.astype(np.float32))
    exact = exact[np.isfinite(exact)]
    middle = exact[:-1] + (exact[1:] - exact[:-1]) / 2
    beyond = exact[-1] + (exact[-1] - exact[-2]) * np.array([0.25, 0.5, 0.75, 2], np.float32)  # to infinity from 1/2
    near = np.concatenate([exact, middle, beyond, -beyond])
    near = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))])
    near = np.concatenate([near, np.array([np.nan, np.inf, -np.inf, 1e-45, -1e-45, 0.0, -0.0], np.float32)])
    return near[: near.size // 4 * 4]


def same_numbers(got, want):
    """Equal bits, but that one NaN is as good as another."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    kind = f"u{want.itemsize}"
    np.testing.assert_array_equal(got.view(kind)[~nan], want.view(kind)[~nan])


@pytest.mark.parametrize("faces, dtype", KERNELS, ids=["float16", "bfloat16"])
def test_elements_are_widened_exactly_and_rounded_to_nearest_with_ties_to_even(faces, dtype):
    """Also subnormal ones, and those that become infinite; four in one access, in the order of memory."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        x, y = patterns.view(dtype), about(patterns.view(dtype))
        wide, turned = np.zeros(x.size, np.float32), np.zeros_like(x)
        near, packed = np.zeros(y.size, dtype), np.zeros(y.size, dtype)
        arguments = x, y, wide, turned, near, packed, x.size, y.size
        report = interpret(faces, (-(-y.size // 1024),), (1024,), arguments)
        assert report.faults == []
        same_numbers(wide, x.astype(np.float32))
        same_numbers(turned, x.reshape(-1, 4)[:, ::-1].reshape(-1))
        same_numbers(near, y.astype(dtype))
        same_numbers(packed, y.astype(dtype))
    assert report.counts.instructions["ld.global.nc.v2.u32"] == x.size // 4 // 32, "two words of 32 bits for each warp"
