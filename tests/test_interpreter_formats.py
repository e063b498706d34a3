"""Number formats of the PTX interpreter against exact rational arithmetic: ties, subnormals, overflow, NaN."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from minigrad_kernels.errors import StateError
from minigrad_kernels.interpreter import formats

from .exact_rounding import FORMATS, assert_rounded, exact, rounded

NAN_BITS = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF801000, 0xFFFFFFFF], np.uint32)
generator = np.random.default_rng(20240611)


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
    assert len(fitting) > 40
    bits = generator.integers(0, 2 ** (8 * source().itemsize), 2000, dtype=f"u{source().itemsize}")
    random = bits.view(source)
    return np.concatenate([np.array([float(value) for value in fitting], source), random[np.isfinite(random)]])


def decode(bits, shift=16):
    return (bits.astype(np.uint32) << np.uint32(shift)).view(np.float32)


@pytest.mark.parametrize("mode", ["rn", "rna", "rz"])
def test_float32_is_rounded_to_bfloat16_and_tf32(mode):
    for target, function, shift in [
        ("bfloat16", formats.round_to_bfloat16, 16),
        ("tf32", formats.round_to_tf32, 0),
    ]:
        x = hard_numbers(np.float32, target)
        bits = function(x, mode)
        assert_rounded(decode(bits, shift), [exact(v) for v in x], target, mode)
    assert not (bits & 0x1FFF).any()


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    "source, target", [(np.float32, "float16"), (np.float64, "float16"), (np.float64, "float32")], ids=str
)
def test_wide_floats_are_rounded_to_narrow_ones(source, target, mode):
    x = hard_numbers(source, target)
    results = getattr(formats, f"round_to_{target}")(x, mode)
    assert results.dtype == target
    assert_rounded(results, [exact(v) for v in x], target, mode)


def test_bfloat16_is_read_exactly():
    bits = np.arange(2**16, dtype=np.uint16)
    values = formats.bfloat16_to_float32(bits)
    np.testing.assert_array_equal(values.view(np.uint32), bits.astype(np.uint32) << 16)
    numbers = values[np.isfinite(values)]
    np.testing.assert_array_equal(formats.round_to_bfloat16(numbers), bits[np.isfinite(values)])


def test_bfloat16_agrees_with_torch():
    torch = pytest.importorskip("torch")
    x = generator.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    theirs = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    ours = formats.round_to_bfloat16(x)
    np.testing.assert_array_equal(ours[~np.isnan(x)], theirs[~np.isnan(x)])
    assert np.isnan(decode(ours[np.isnan(x)])).all()


def test_nan_and_infinity_stay_what_they_are():
    nan, infinity = NAN_BITS.view(np.float32), np.array([np.inf, -np.inf], np.float32)
    for mode in ("rn", "rna", "rz"):
        assert (formats.round_to_bfloat16(nan, mode) == 0x7FFF).all()
        assert (formats.round_to_tf32(nan, mode) == 0x7FFFE000).all()
        assert formats.round_to_bfloat16(infinity, mode).tolist() == [0x7F80, 0xFF80]
        assert formats.round_to_tf32(infinity, mode).tolist() == [0x7F800000, 0xFF800000]
    for mode in ("rn", "rz", "rm", "rp"):
        assert np.isnan(formats.round_to_float16(nan, mode)).all()
        assert np.isnan(formats.round_to_float32(np.array([np.nan, -np.nan]), mode)).all()
        assert formats.round_to_float16(infinity, mode).tolist() == [np.inf, -np.inf]


def test_saturation_replaces_infinity_by_the_largest_number():
    largest = np.finfo(np.float32).max
    x = np.array([largest, -largest, np.inf, -np.inf, np.nan, 1.5], np.float32)
    assert formats.round_to_bfloat16(x, "rn", True).tolist() == [0x7F7F, 0xFF7F, 0x7F7F, 0xFF7F, 0x7FFF, 0x3FC0]
    tf32 = [0x7F7FE000, 0xFF7FE000, 0x7F7FE000, 0xFF7FE000, 0x7FFFE000, 0x3FC00000]
    assert formats.round_to_tf32(x, "rna", True).tolist() == tf32
    np.testing.assert_array_equal(
        formats.round_to_float16(x, "rn", True), np.array([65504, -65504, 65504, -65504, np.nan, 1.5], np.float16)
    )


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_float32_quotients_and_roots_may_be_taken_in_float64(mode):
    x, y = (hard_numbers(np.float32, "bfloat16") for _ in range(2))
    y = generator.permutation(y)[: len(x)]
    x, y = x[: len(y)][y != 0], y[y != 0]
    with np.errstate(over="ignore", under="ignore"):
        results = formats.round_to_float32(x.astype(np.float64) / y.astype(np.float64), mode)
    assert_rounded(results, [exact(a) / exact(b) for a, b in zip(x, y, strict=True)], "float32", mode)
    positive = x[x > 0]
    roots = formats.round_to_float32(np.sqrt(positive.astype(np.float64)), mode)
    below = np.nextafter(roots, np.float32(-np.inf))
    above = np.nextafter(roots, np.float32(np.inf))
    for value, *candidates in zip(positive, below, roots, above, strict=True):
        value, (down, root, up) = exact(value), (exact(c) for c in candidates)
        if mode == "rn":
            assert (down + root) ** 2 <= 4 * value <= (root + up) ** 2
        elif mode == "rp":
            assert down**2 < value <= root**2
        else:
            assert root**2 <= value < up**2


WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_floats_become_integers(source, mode):
    corners = [k / 4 for k in range(-12, 13)] + [2.0**e + d for e in (7, 8, 15) for d in (-1, -0.5, 0, 0.5, 1)]
    if source != np.float16:
        corners += [2.0**e * factor for e in (31, 32, 63, 64) for factor in (1, 1 - 2**-24, 1 + 2**-23)]
    if source == np.float64:
        corners += [2.0**e + d for e in (31, 32) for d in (-1, -0.5, 0.5, 1)] + [2.0**63 - 1024]
    x = np.array([*corners, *(-c for c in corners), np.inf, -np.inf], source)
    whole = formats.round_to_whole(x, mode)
    assert whole.dtype == source
    for value, result in zip(x[:-2], whole[:-2], strict=True):
        assert exact(result) == WHOLE[mode](exact(value))
        assert np.signbit(result) == np.signbit(value) or result > 0 or value < 0
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        results = formats.round_to_integer(x, dtype, mode)
        assert results.dtype == dtype
        wanted = [min(max(WHOLE[mode](exact(v)), limits.min), limits.max) for v in x[:-2]]
        assert [int(r) for r in results] == [*wanted, limits.max, limits.min]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_nan_becomes_the_integer_that_ptx_states(dtype):
    highest_bit = 2 ** (8 * dtype().itemsize - 1) * (-1 if np.iinfo(dtype).min else 1)
    for source in (np.float16, np.float32, np.float64):
        wanted = highest_bit if source == np.float64 or dtype().itemsize == 8 else 0
        assert formats.round_to_integer(np.array([np.nan], source), dtype, "rzi") == [wanted]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", ["float16", "float32", "float64"])
def test_integers_become_floats(target, mode):
    around = [2**e + d for e in (0, 11, 16, 24, 25, 31, 53, 54, 62) for d in (-3, -2, -1, 0, 1, 2, 3)]
    around += [(2**53 + 1) * 2**9, 2**63 - 1, 2**63 - 512, 2**40 * (2**12 + 1) + 1, 65519, 65520]
    for dtype in (np.int16, np.int32, np.uint32, np.int64, np.uint64):
        limits = np.iinfo(dtype)
        random = generator.integers(limits.min, limits.max, 500, dtype=dtype, endpoint=True)
        values = [v for c in around for v in (c, -c) if limits.min <= v <= limits.max]
        values += [limits.min, limits.max, *(int(v) for v in random)]
        results = formats.integer_to_float(np.array(values, dtype), np.dtype(target), mode)
        assert results.dtype == target
        assert_rounded(results, [Fraction(v) for v in values], target, mode)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", ["float16", "float32", "float64"])
def test_sums_are_rounded_once(target, mode):
    x = hard_numbers(np.float64, "float32" if target == "float64" else target)
    shift = generator.choice([0.0, 2.0**-60, -(2.0**-60), 2.0**-80, 1.0, -1.0], len(x))
    huge = np.array([1.7e308, -1.7e308, 1.7e308])
    x, y = np.concatenate([x, huge]), np.concatenate([x * shift, huge[[0, 1, 1]]])
    exact_sums = [exact(a) + exact(b) for a, b in zip(x, y, strict=True)]
    assert_rounded(formats.round_sum(x, y, np.dtype(target), mode), exact_sums, target, mode)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sums_that_are_zero_have_the_sign_of_ieee_754(dtype):
    x, y = np.array([(0.0, 0.0), (0.0, -0.0), (-0.0, -0.0), (3.0, -3.0), (-3.0, 3.0)]).T
    for mode in ("rn", "rz", "rm", "rp"):
        sums = formats.round_sum(x, y, dtype, mode)
        assert not sums.any()
        assert np.signbit(sums).tolist() == [False, mode == "rm", True, mode == "rm", mode == "rm"]


def test_ftz_and_sat():
    tiny = np.finfo(np.float32).smallest_normal
    below = np.nextafter(tiny, np.float32(0))
    x = np.array([tiny, -tiny, below, -below, 0.0, -0.0, np.inf, np.nan, 1.5], np.float32)
    wanted = np.array([tiny, -tiny, 0.0, -0.0, 0.0, -0.0, np.inf, np.nan, 1.5], np.float32)
    np.testing.assert_array_equal(formats.flush_subnormal(x).view(np.uint32), wanted.view(np.uint32))
    assert formats.clamp_unit(x).tolist() == [tiny, 0, below, 0, 0, 0, 1, 0, 1]
    assert not np.signbit(formats.clamp_unit(x)).any()


def test_unknown_modes_are_refused():
    x = np.ones(1, np.float32)
    calls = [
        lambda: formats.round_to_bfloat16(x, "rp"),
        lambda: formats.round_to_float16(x, "rna"),
        lambda: formats.round_to_integer(x, np.int32, "rn"),
        lambda: formats.round_sum(x.astype(np.float64), x.astype(np.float64), np.float64, "rna"),
        lambda: formats.approximate("exp", x),
    ]
    for call in calls:
        with pytest.raises(StateError, match="wanted one of"):
            call()
