"""Wrong results hunted: random programs beside Python, the compiler's mathematics beside NumPy, counts beside a model.

Where no compiler is installed there is nothing to interpret.
"""

import numpy as np
import pytest

from minigrad_kernels.interpreter import empty, interpret
from minigrad_kernels.toolchain.cuda import compiler

from . import ptx, random_programs
from .random_programs import compiled, ptx_of

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
RANDOM = np.random.default_rng(20)


# ---- random programs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed, threads", [*enumerate([128, 1, 31, 33, 96, 64])])
def test_random_programs(seed, threads):
    """Bits agree, of all numbers but the signs and contents of NaN; on two architectures."""
    n, generator = 200, np.random.default_rng(seed)
    text, inputs, outputs = random_programs.Writer(seed).program()
    arrays = [random_programs.values(kind, n, generator) for _, kind in inputs]
    wanted = random_programs.by_python(text, arrays, outputs, n)
    signature = ", ".join(f"{kind}* {name}" for name, kind in inputs + outputs)
    kernel = compiled(text, f"{signature}, i32 n", f"random_{seed}")
    for architecture in ("sm_75", "sm_90"):
        found = [np.empty_like(array) for array in wanted]
        report = interpret(ptx_of(kernel, architecture), (-(-n // threads),), (threads,), (*arrays, *found, n))
        assert not report.faults, [str(fault) for fault in report.faults]
        for (name, _), mine, right in zip(outputs, found, wanted, strict=True):
            np.testing.assert_array_equal(mine, right, f"{name} of\n{text}")
            if right.dtype.kind == "f":
                real = ~np.isnan(right)
                np.testing.assert_array_equal(np.signbit(mine[real]), np.signbit(right[real]), f"{name} of\n{text}")


# ---- mathematics -------------------------------------------------------------------------------------------------

# The compiler's functions are programs of fma, shifts, tables and approximate instructions. Only if those are right do
# the errors in ulp hold that the CUDA programming guide (version 13, "Mathematical Functions") has for f32 and f64.
FUNCTIONS = [
    ("exp", np.exp, 2, 1, -100, 88), ("log", np.log, 1, 1, 0, 1e30), ("log2", np.log2, 1, 1, 0, 1e30),
    ("log10", np.log10, 2, 1, 0, 1e30), ("log1p", np.log1p, 1, 1, -0.999, 1e10), ("expm1", np.expm1, 1, 1, -80, 80),
    ("sin", np.sin, 2, 2, -1e15, 1e15), ("cos", np.cos, 2, 2, -1e15, 1e15), ("tan", np.tan, 4, 2, -1e5, 1e5),
    ("asin", np.arcsin, 2, 2, -1, 1), ("acos", np.arccos, 2, 2, -1, 1), ("atan", np.arctan, 2, 2, -1e9, 1e9),
    ("sinh", np.sinh, 3, 2, -80, 80), ("cosh", np.cosh, 2, 1, -80, 80), ("tanh", np.tanh, 2, 1, -20, 20),
    ("asinh", np.arcsinh, 3, 3, -1e9, 1e9), ("acosh", np.arccosh, 4, 3, 1, 1e9),
    ("atanh", np.arctanh, 3, 2, -0.99999, 0.99999), ("sqrt", np.sqrt, 0, 0, 0, 1e30), ("fabs", np.abs, 0, 0, -1, 1),
]  # fmt: skip
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_mathematics(kind):
    dtype, n = random_programs.DTYPES[kind], 512
    lines = [f"    out[{i * n} + t] = math.{row[0]}(x[{i * n} + t])" for i, row in enumerate(FUNCTIONS)]
    text = "\n".join(["def mathematics(x, out):", "    t = i32(cuda.threadIdx.x)", *lines])
    x = np.empty((len(FUNCTIONS), n), dtype)
    for row, (*_, low, high) in zip(x, FUNCTIONS, strict=True):
        sizes = np.copysign(
            10.0 ** RANDOM.uniform(-9, np.log10(max(high, -low)), n // 2), RANDOM.uniform(low, high, n // 2)
        )
        row[:] = np.concatenate([RANDOM.uniform(low, high, n // 2), np.clip(sizes, low, high)])
        row[: len(SPECIAL)] = SPECIAL
    found = empty(x.shape, dtype)
    kernel = compiled(text, f"{kind}* x, {kind}* out", f"mathematics_{kind}", n)
    assert not interpret(ptx_of(kernel, "sm_80"), (1,), (n,), (x, found)).faults
    for (name, function, single, double, *_), given, mine in zip(FUNCTIONS, x, np.asarray(found), strict=True):
        with np.errstate(all="ignore"):
            exact = function(given.astype(np.longdouble))
            right = exact.astype(dtype)
        real = np.isfinite(right)
        np.testing.assert_array_equal(mine[~real], right[~real], name)
        error = np.abs(mine[real] - exact[real]) / np.spacing(np.abs(right[real]))
        allowed = single if kind == "f32" else double  # of ulp of the rounded result, hence half a one more
        assert error.max() <= allowed + 0.5, (name, float(error.max()), given[real][error.argmax()])


# ---- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-1, -3])
def test_numbers_that_look_like_unwritten_memory(number):
    """Some of their bytes are those of the pattern of unwritten memory. NumPy writes them behind the array's back."""
    x, out = empty(32, np.int32), empty(32, np.int32)
    np.copyto(x, number)
    body = """
    mov.u32 %r30, %tid.x;
    mad.wide.u32 %rd30, %r30, 4, %rd0; mad.wide.u32 %rd31, %r30, 4, %rd1;
    ld.global.u32 %r1, [%rd30]; st.global.u32 [%rd31], %r1;
    """
    assert not interpret(ptx.kernel(body, "u64 u64"), (1,), (32,), (x, out)).faults
    assert (out == number).all()
