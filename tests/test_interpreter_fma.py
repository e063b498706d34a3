"""Fused multiply-add and the approximate functions of the PTX interpreter, against exact arithmetic."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from minigrad_kernels.interpreter import formats

from .exact_rounding import assert_rounded, exact

pytestmark = pytest.mark.deep

generator = np.random.default_rng(20240612)


def exact_fma(x, y, z):
    return [exact(a) * exact(b) + exact(c) for a, b, c in zip(x, y, z, strict=True)]


def hard_triples():
    """Products half way between two float32 numbers, and sums that float64 rounds to half way.

    An odd number of 25 bits is half way between two numbers of 24 bits: (2a + 1) * (2b + 1) of 12 and 13 bits.
    (1/2 + 2**-24) * (1 - 2**-23) = 1/2 - 2**-47 is nearly half of the last bit of a whole number of 24 bits.
    """
    rows = []
    for _ in range(200):
        x, y = 2 * generator.integers(2**11, 2**12) - 1, 2 * generator.integers(2**12, 2**13) - 1
        z = generator.integers(2**23, 2**24)
        tiny = generator.choice([0.0, 2.0**-100, -(2.0**-100), 2.0**-148, -(2.0**-148)])
        rows += [(x, y, tiny), (x * 2.0**-40, y * 2.0**-40, tiny)]
        for sign, beside in [(-1, -1), (-1, 1), (1, -1), (1, 1)]:
            left, right = 0.5 + 2.0**-24, sign * (1 + beside * 2.0**-23)
            rows += [(left, right, z), (left * 2.0**-75, right * 2.0**-74, (z >> 2) * 2.0**-149)]
    triples = np.array(rows, np.float32)
    assert (triples == np.array(rows)).all()
    return [np.concatenate([column, -column]) for column in triples.T]


def random_triples(dtype, count, spread):
    """z is of the size of x * y, or cancels most of it, or is far away."""
    x, y = generator.standard_normal((2, count)) * 2.0 ** generator.integers(-spread, spread, (2, count))
    near = x * y * np.where(generator.random(count) < 0.3, -1, generator.standard_normal(count))
    z = near * 2.0 ** np.where(generator.random(count) < 0.3, generator.integers(-70, 70, count), 0)
    limit = 2.0**14 if dtype == np.float16 else np.inf
    return [np.clip(v, -limit, limit).astype(dtype) for v in (x, y, z)]


def test_float32_fma_is_rounded_once_where_float64_would_round_twice():
    x, y, z = hard_triples()
    product, wide_z = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    twice, once = (product + wide_z).astype(np.float32), formats.fma32(x, y, z)
    assert (twice != once).sum() > 200
    assert_rounded(once, exact_fma(x, y, z), "float32", "rn")
    for mode in ("rz", "rm", "rp"):
        assert_rounded(formats.fma32(x, y, z, mode), exact_fma(x, y, z), "float32", mode)


def test_float32_fma_on_random_numbers():
    x, y, z = random_triples(np.float32, 100_000, 30)
    assert_rounded(formats.fma32(x, y, z), exact_fma(x, y, z), "float32", "rn")


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_float16_fma(mode):
    x, y, z = random_triples(np.float16, 5_000, 7)
    assert_rounded(formats.fma16(x, y, z, mode), exact_fma(x, y, z), "float16", mode)


def test_float64_fma_on_random_numbers_and_at_the_edges():
    x, y, z = random_triples(np.float64, 20_000, 100)
    assert_rounded(formats.fma64(x, y, z), exact_fma(x, y, z), "float64", "rn")
    # Half way, and beside it by less than two float64 numbers can say; subnormal results; near overflow; products that
    # overflow or vanish where z saves them.
    e, tiny = 2.0**-52, 2.0**-1074
    rows = [
        *((1 + e, (1 + sign * e) * 2.0**-53, z) for sign in (-1, 0, 1) for z in (1.0, 1 + e, 1 - e / 2, -1 - e)),
        *((1 + e, y, tiny) for y in (0.5, 1 + e, 1 - e)),
        (2.0**-540, 1.5 * 2.0**-534, tiny),
        (2.0**-600, 2.0**-600, tiny),
        (3.0 * 2.0**-537, 2.0**-538, tiny),
        (tiny, 0.5, tiny),
        (1e200, 1e200, 1.0),
        (2.0**1023, 2.0, -(2.0**1023)),
        (1e308, 1.7, -1e308),
    ]
    x, y, z = np.array(rows).T
    assert_rounded(formats.fma64(x, y, z), exact_fma(x, y, z), "float64", "rn")
    assert_rounded(formats.fma64(-x, y, -z), exact_fma(-x, y, -z), "float64", "rn")


@pytest.mark.parametrize(
    "function, dtype", [(formats.fma16, np.float16), (formats.fma32, np.float32), (formats.fma64, np.float64)]
)
def test_fma_of_zeros_infinities_and_nan(function, dtype):
    inf, nan = np.inf, np.nan
    x, y, z, wanted = np.array(
        [
            (0.0, 1.0, 0.0, 0.0),
            (-0.0, 1.0, -0.0, -0.0),
            (-0.0, 1.0, 0.0, 0.0),
            (2.0, 3.0, -6.0, 0.0),
            (-2.0, 3.0, 6.0, 0.0),
            (0.0, 5.0, 7.0, 7.0),
            (inf, 2.0, 1.0, inf),
            (inf, -2.0, 1.0, -inf),
            (2.0, 3.0, -inf, -inf),
            (inf, 0.0, 1.0, nan),
            (inf, 1.0, -inf, nan),
            (nan, 1.0, 1.0, nan),
            (1.0, 1.0, nan, nan),
        ],
        dtype,
    ).T
    result = function(x, y, z)
    np.testing.assert_array_equal(result, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(wanted[numbers]))


# What the manual states at the corners, and the error it allows: relative, or absolute where it says so.
INFINITY, NAN = math.inf, math.nan
CORNERS = {
    "ex2": {-INFINITY: 0.0, -0.0: 1.0, INFINITY: INFINITY},
    "lg2": {-INFINITY: NAN, -1.0: NAN, -0.0: -INFINITY, INFINITY: INFINITY},
    "rcp": {-INFINITY: -0.0, -0.0: -INFINITY, INFINITY: 0.0},
    "sqrt": {-INFINITY: NAN, -1.0: NAN, -0.0: -0.0, INFINITY: INFINITY},
    "rsqrt": {-INFINITY: NAN, -1.0: NAN, -0.0: -INFINITY, INFINITY: 0.0},
    "sin": {-INFINITY: NAN, -0.0: -0.0, INFINITY: NAN},
    "cos": {-INFINITY: NAN, -0.0: 1.0, INFINITY: NAN},
    "tanh": {-INFINITY: -1.0, -0.0: -0.0, INFINITY: 1.0},
}


@pytest.mark.parametrize("name", CORNERS)
def test_approximate_functions_at_the_corners(name):
    for argument, wanted in [*CORNERS[name].items(), (NAN, NAN)]:
        for dtype in (np.float16, np.float32, np.float64):
            result = formats.approximate(name, np.array([argument], dtype))
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, [wanted])
            assert np.isnan(wanted) or np.signbit(result[0]) == np.signbit(wanted)


@pytest.mark.parametrize(
    "name, function, interval, error",
    [
        ("ex2", lambda x: Decimal(2) ** x, (-140, 127), lambda x, y: Decimal(2) ** -22 * y + Decimal(2) ** -148),
        ("lg2", lambda x: x.ln() / Decimal(2).ln(), (0.5, 2), lambda x, y: Decimal(2) ** -22),
        ("lg2", lambda x: x.ln() / Decimal(2).ln(), (2, 1e30), lambda x, y: Decimal(2) ** -22 * y),
        ("rcp", lambda x: 1 / x, (1e-30, 1e30), lambda x, y: Decimal(2) ** -23 * y),
        ("sqrt", lambda x: x.sqrt(), (1e-30, 1e30), lambda x, y: Decimal(2) ** -23 * y),
        ("rsqrt", lambda x: 1 / x.sqrt(), (1e-30, 1e30), lambda x, y: Decimal(2) ** Decimal("-22.9") * y),
        ("sin", lambda x: Decimal(math.sin(x)), (-6.28, 6.28), lambda x, y: Decimal(2) ** Decimal("-20.5")),
        ("cos", lambda x: Decimal(math.cos(x)), (-314, 314), lambda x, y: Decimal(2) ** Decimal("-14.7")),
        ("tanh", lambda x: Decimal(math.tanh(x)), (-9, 9), lambda x, y: Decimal(2) ** -11 * abs(y)),
    ],
)
def test_approximate_functions_keep_the_error_that_ptx_allows(name, function, interval, error):
    low, high = interval
    logs = low > 0
    x = np.exp(generator.uniform(np.log(low), np.log(high), 300)) if logs else generator.uniform(low, high, 300)
    x = x.astype(np.float32)
    results = formats.approximate(name, x)
    with localcontext() as context:
        context.prec = 40
        for argument, result in zip(x, results, strict=True):
            argument, result = Decimal(float(argument)), Decimal(float(result))
            wanted = function(argument)
            assert abs(result - wanted) <= error(argument, wanted), (name, argument)


def test_approximate_functions_flush_subnormal_numbers():
    tiny = np.array([1e-40, -1e-40], np.float32)
    assert formats.approximate("rcp", tiny, ftz=True).tolist() == [np.inf, -np.inf]
    assert formats.approximate("rsqrt", tiny, ftz=True).tolist() == [np.inf, -np.inf]
    assert formats.approximate("rsqrt", tiny[:1]) == np.float32(float(tiny[0]) ** -0.5)
    assert formats.approximate("ex2", np.array([-130.0], np.float32)) == np.float32(2.0**-130)
    assert formats.approximate("ex2", np.array([-130.0], np.float32), ftz=True).view(np.uint32) == 0
    assert formats.approximate("rcp", np.array([-(2.0**127)], np.float32), ftz=True).view(np.uint32) == 0x80000000


def test_float64_reciprocals_with_ftz_know_the_upper_word_alone():
    x = generator.standard_normal(500) * 2.0 ** generator.integers(-1000, 1000, 500)
    for name, function in [("rcp", lambda v: 1 / v), ("rsqrt", lambda v: v**-0.5)]:
        arguments = np.abs(x)
        results = formats.approximate(name, arguments, ftz=True)
        assert not (results.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
        np.testing.assert_allclose(results, function(arguments), rtol=2.0**-19)
        upper = (arguments.view(np.uint64) | np.uint64(0xFFFFFFFF)).view(np.float64)
        np.testing.assert_array_equal(formats.approximate(name, upper, ftz=True), results)
    corners = np.array([2.0**-1030, -(2.0**-1030), -0.0, -np.inf])
    assert formats.approximate("rcp", corners, ftz=True).tolist() == [np.inf, -np.inf, -np.inf, 0.0]
    assert Fraction(float(formats.approximate("rcp", np.array([4.0]), ftz=True)[0])) == Fraction(1, 4)
