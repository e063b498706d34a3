"""Number formats of the interpreter against exact rational arithmetic: ties, subnormals, overflow, rounding once."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from minigrad_kernels.interpreter import formats

from .exact_rounding import FORMATS, assert_rounded, exact, rounded

generator = np.random.default_rng(20240611)
MODES = ["rn", "rz", "rm", "rp"]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def hard_numbers(source, target):
    """Numbers of the source format on, just beside and half way between numbers of the target format, at all edges."""
    precision, lowest, highest = FORMATS[target]
    exponents = [lowest - precision - 1, lowest - precision, lowest - precision + 1, lowest - 1, lowest, 0, highest]
    digits = [2 ** (precision - 1), 2 ** (precision - 1) + 1, 2**precision - 2, 2**precision - 1]
    offsets = [Fraction(k, 4) for k in range(5)]
    offsets += [Fraction(1, 2) + sign * Fraction(2) ** -small for sign in (-1, 1) for small in (6, 11, 20, 40)]
    values = {
        sign * (digit + offset) * Fraction(2) ** (exponent - precision + 1)
        for sign, exponent, digit, offset in itertools.product((1, -1), exponents, digits, offsets)
    }
    fitting = [value for value in sorted(values) if rounded(value, source.__name__, "rz") == value]
    random = np.frombuffer(generator.bytes(500 * source().itemsize), source)
    return np.concatenate([np.array([float(value) for value in fitting], source), random[np.isfinite(random)]])


def exact_all(*arrays):
    return [[exact(v) for v in row] for row in zip(*arrays, strict=True)]


@pytest.mark.parametrize("mode", ["rn", "rna", "rz"])
def test_bfloat16_and_tf32(mode):
    """Rounded as they should be; infinity stays, NaN is the one of PTX, .satfinite keeps numbers finite."""
    for target, function, shift in (
        ("bfloat16", formats.round_to_bfloat16, 16), ("tf32", formats.round_to_tf32, 0),
    ):  # fmt: skip
        x = hard_numbers(np.float32, target)
        widened = (function(x, mode).astype(np.uint32) << np.uint32(shift)).view(np.float32)
        assert_rounded(widened, [exact(v) for v in x], target, mode)
        ends = np.float32([np.inf, -np.inf, np.nan])
        found = function(ends, mode).astype(np.int64) << shift
        assert (found >> 13).tolist() == [0x3FC00, 0x7FC00, 0x7FFF0000 >> 13 if shift else 0x7FFFE000 >> 13]
        assert (function(ends, mode, True).astype(np.int64) << shift)[0] < 0x7F800000
    bits = np.arange(2**16, dtype=np.uint16)
    assert np.array_equal(formats.bfloat16_to_float32(bits).view(np.uint32), bits.astype(np.uint32) << 16)


@pytest.mark.parametrize("mode", MODES)
def test_floats_are_rounded_once(mode):
    """To narrower formats; sums; quotients of float32 taken in float64."""
    for source, target in ((np.float32, "float16"), (np.float64, "float16"), (np.float64, "float32")):
        x = hard_numbers(source, target)
        results = formats.round_to_float(x, np.dtype(target), mode)
        assert_rounded(results, [exact(v) for v in x], target, mode)
    assert formats.round_to_float(np.float32([1e6, -np.inf]), np.float16, mode, True).tolist() == [65504, -65504]
    for target in ("float16", "float32", "float64"):
        x = hard_numbers(np.float64, "float32" if target == "float64" else target)
        shift = generator.choice([0.0, 2.0**-60, -(2.0**-60), 2.0**-80, 1.0, -1.0], len(x))
        huge = np.array([1.7e308, -1.7e308, 1.7e308])
        x, y = np.concatenate([x, huge]), np.concatenate([x * shift, huge[[0, 1, 1]]])
        sums = formats.round_sum(x, y, np.dtype(target), mode)
        assert_rounded(sums, [a + b for a, b in exact_all(x, y)], target, mode)
        x, y = np.array([(0.0, 0.0), (0.0, -0.0), (-0.0, -0.0), (3.0, -3.0), (-3.0, 3.0)]).T
        signs = np.signbit(formats.round_sum(x, y, np.dtype(target), mode)).tolist()
        assert signs == [False, mode == "rm", True, mode == "rm", mode == "rm"]
    x, y = hard_numbers(np.float32, "bfloat16"), generator.permutation(hard_numbers(np.float32, "bfloat16"))
    size = min(len(x), len(y))
    x, y = x[:size], np.where(y[:size] == 0, np.float32(3), y[:size])
    with np.errstate(all="ignore"):
        results = formats.round_to_float(x.astype(np.float64) / y.astype(np.float64), np.float32, mode)
    assert_rounded(results, [a / b for a, b in exact_all(x, y)], "float32", mode)


@pytest.mark.parametrize("mode", MODES)
def test_whole_numbers_and_floats(mode):
    whole, round_ = f"{mode}i", {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}[mode]
    for source in (np.float16, np.float32, np.float64):
        corners = [k / 4 for k in range(-12, 13)] + [2.0**e + d for e in (7, 8, 15) for d in (-1, -0.5, 0, 0.5, 1)]
        corners += [2.0**e * f for e in (31, 32, 63, 64) for f in (1, 1 - 2**-24, 1 + 2**-23)] * (source != np.float16)
        x = np.array([*corners, *(-c for c in corners), np.inf, -np.inf, np.nan], source)
        for dtype in INTEGERS:
            limits, bits = np.iinfo(dtype), 8 * dtype().itemsize
            nan = 2 ** (bits - 1) * (-1 if limits.min else 1) if source == np.float64 or bits == 64 else 0
            wanted = [min(max(round_(exact(v)), limits.min), limits.max) for v in x[:-3]]
            assert formats.round_to_integer(x, dtype, whole).tolist() == [*wanted, limits.max, limits.min, nan]
    around = [2**e + d for e in (0, 11, 16, 24, 25, 31, 53, 54, 62) for d in (-3, -2, -1, 0, 1, 2, 3)]
    around += [(2**53 + 1) * 2**9, 2**63 - 1, 2**63 - 512, 2**40 * (2**12 + 1) + 1, 65519, 65520]
    for dtype, target in itertools.product(INTEGERS[2:], ("float16", "float32", "float64")):
        limits = np.iinfo(dtype)
        values = [v for c in around for v in (c, -c) if limits.min <= v <= limits.max] + [limits.min, limits.max]
        results = formats.integer_to_float(np.array(values, dtype), np.dtype(target), mode)
        assert_rounded(results, [Fraction(v) for v in values], target, mode)


# ---- fused multiply-add ----------------------------------------------------------------------------------------------


def hard_triples():
    """Products half way between two float32 numbers, and sums that float64 rounds to half way.

    An odd number of 25 bits is half way between two numbers of 24 bits: (2a + 1) * (2b + 1) of 12 and 13 bits.
    (1/2 + 2**-24) * (1 - 2**-23) = 1/2 - 2**-47 is nearly half of the last bit of a whole number of 24 bits.
    """
    rows = []
    for _ in range(100):
        x, y = 2 * generator.integers(2**11, 2**12) - 1, 2 * generator.integers(2**12, 2**13) - 1
        z = generator.integers(2**23, 2**24)
        tiny = generator.choice([0.0, 2.0**-100, -(2.0**-100), 2.0**-148, -(2.0**-148)])
        rows += [(x, y, tiny), (x * 2.0**-40, y * 2.0**-40, tiny)]
        for sign, beside in [(-1, -1), (-1, 1), (1, -1), (1, 1)]:
            left, right = 0.5 + 2.0**-24, sign * (1 + beside * 2.0**-23)
            rows += [(left, right, z), (left * 2.0**-75, right * 2.0**-74, (z >> 2) * 2.0**-149)]
    return [np.concatenate([column, -column]) for column in np.array(rows, np.float32).T]


def random_triples(dtype, count, spread):
    """z is of the size of x * y, or cancels most of it, or is far away."""
    x, y = generator.standard_normal((2, count)) * 2.0 ** generator.integers(-spread, spread, (2, count))
    near = x * y * np.where(generator.random(count) < 0.3, -1, generator.standard_normal(count))
    z = near * 2.0 ** np.where(generator.random(count) < 0.3, generator.integers(-70, 70, count), 0)
    return [v.astype(dtype) for v in (x, y, z)]


def edges():
    """Half way and beside it by less than float64 can say; subnormal; near overflow; products that z saves."""
    e, tiny = 2.0**-52, 2.0**-1074
    rows = [
        *((1 + e, (1 + sign * e) * 2.0**-53, z) for sign in (-1, 0, 1) for z in (1.0, 1 + e, 1 - e / 2, -1 - e)),
        *((1 + e, y, tiny) for y in (0.5, 1 + e, 1 - e)),
        (2.0**-540, 1.5 * 2.0**-534, tiny), (2.0**-600, 2.0**-600, tiny), (3.0 * 2.0**-537, 2.0**-538, tiny),
        (tiny, 0.5, tiny), (1e200, 1e200, 1.0), (2.0**1023, 2.0, -(2.0**1023)), (1e308, 1.7, -1e308),
    ]  # fmt: skip
    x, y, z = np.array(rows).T
    return [np.concatenate([x, -x]), np.concatenate([y, y]), np.concatenate([z, -z])]


def test_fused_multiply_add_is_rounded_once():
    x, y, z = hard_triples()
    twice = (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(np.float32)
    assert (twice != formats.fma32(x, y, z)).sum() > 100
    for function, target, triples in (
        (formats.fma32, "float32", (x, y, z)),
        (formats.fma32, "float32", random_triples(np.float32, 5000, 30)),
        (formats.fma64, "float64", random_triples(np.float64, 2000, 100)),
        (formats.fma64, "float64", edges()),
    ):
        assert_rounded(function(*triples), [a * b + c for a, b, c in exact_all(*triples)], target, "rn")


@pytest.mark.parametrize("function, dtype", [(formats.fma32, np.float32), (formats.fma64, np.float64)])
def test_fma_of_zeros_infinities_and_nan(function, dtype):
    inf, nan = np.inf, np.nan
    rows = [
        (0.0, 1.0, 0.0, 0.0), (-0.0, 1.0, -0.0, -0.0), (-0.0, 1.0, 0.0, 0.0), (2.0, 3.0, -6.0, 0.0),
        (-2.0, 3.0, 6.0, 0.0), (0.0, 5.0, 7.0, 7.0), (inf, 2.0, 1.0, inf), (inf, -2.0, 1.0, -inf),
        (2.0, 3.0, -inf, -inf), (inf, 0.0, 1.0, nan), (inf, 1.0, -inf, nan), (nan, 1.0, 1.0, nan), (1.0, 1.0, nan, nan),
    ]  # fmt: skip
    x, y, z, wanted = np.array(rows, dtype).T
    result = function(x, y, z)
    np.testing.assert_array_equal(result, wanted)
    assert np.array_equal(np.signbit(result[:9]), np.signbit(wanted[:9]))


# ---- approximate functions: corners that the manual states, and the error that it allows -----------------------------

inf, nan = math.inf, math.nan
CORNERS = {  # of -inf, -0, inf
    "ex2": (0.0, 1.0, inf), "lg2": (nan, -inf, inf), "rcp": (-0.0, -inf, 0.0), "sqrt": (nan, -0.0, inf),
    "rsqrt": (nan, -inf, 0.0), "sin": (nan, -0.0, nan), "cos": (nan, 1.0, nan), "tanh": (-1.0, -0.0, 1.0),
}  # fmt: skip
TWO = Decimal(2)
ERRORS = [
    ("ex2", lambda x: TWO**x, (-140, 127), lambda x, y: TWO**-22 * y + TWO**-148),
    ("lg2", lambda x: x.ln() / TWO.ln(), (0.5, 2), lambda x, y: TWO**-22),
    ("lg2", lambda x: x.ln() / TWO.ln(), (2, 1e30), lambda x, y: TWO**-22 * y),
    ("rcp", lambda x: 1 / x, (1e-30, 1e30), lambda x, y: TWO**-23 * y),
    ("sqrt", lambda x: x.sqrt(), (1e-30, 1e30), lambda x, y: TWO**-23 * y),
    ("rsqrt", lambda x: 1 / x.sqrt(), (1e-30, 1e30), lambda x, y: TWO ** Decimal("-22.9") * y),
    ("sin", lambda x: Decimal(math.sin(x)), (-6.28, 6.28), lambda x, y: TWO ** Decimal("-20.5")),
    ("cos", lambda x: Decimal(math.cos(x)), (-314, 314), lambda x, y: TWO ** Decimal("-14.7")),
    ("tanh", lambda x: Decimal(math.tanh(x)), (-9, 9), lambda x, y: TWO**-11 * abs(y)),
]


def test_approximate_functions():
    for name, wanted in CORNERS.items():
        for dtype in (np.float16, np.float32, np.float64):
            result = formats.approximate(name, np.array([-inf, -0.0, inf, nan], dtype))
            np.testing.assert_array_equal(result, np.array([*wanted, nan], dtype), name)
            numbers = ~np.isnan(result)
            assert np.array_equal(np.signbit(result[numbers]), np.signbit(np.array([*wanted, nan])[numbers]))
    for name, function, (low, high), error in ERRORS:
        draw = (
            np.exp(generator.uniform(np.log(low), np.log(high), 100)) if low > 0 else generator.uniform(low, high, 100)
        )
        with localcontext() as context:
            context.prec = 40
            x = draw.astype(np.float32)
            for argument, result in zip(x, formats.approximate(name, x), strict=True):
                argument, result = Decimal(float(argument)), Decimal(float(result))
                wanted = function(argument)
                assert abs(result - wanted) <= error(argument, wanted), (name, argument)
    tiny = np.float32([1e-40, -1e-40])
    assert formats.approximate("rcp", tiny, ftz=True).tolist() == [inf, -inf]
    assert formats.approximate("ex2", np.float32([-130.0]), ftz=True).view(np.uint32) == 0


def test_float64_reciprocals_with_ftz_know_the_upper_word_alone():
    x = np.abs(generator.standard_normal(500) * 2.0 ** generator.integers(-1000, 1000, 500))
    for name, power in [("rcp", -1.0), ("rsqrt", -0.5)]:
        results = formats.approximate(name, x, ftz=True)
        assert not (results.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
        np.testing.assert_allclose(results, x**power, rtol=2.0**-19)
        upper = (x.view(np.uint64) | np.uint64(0xFFFFFFFF)).view(np.float64)
        assert np.array_equal(formats.approximate(name, upper, ftz=True), results)
    corners = np.array([2.0**-1030, -(2.0**-1030), -0.0, -np.inf])
    assert formats.approximate("rcp", corners, ftz=True).tolist() == [inf, -inf, -inf, 0.0]
