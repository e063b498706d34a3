"""Instructions from registers to registers, one by one, beside Python's whole numbers, fractions and NumPy."""

import math
from fractions import Fraction
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from .ptx import apply

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # GPUs raise no flags
SIX = "s16 u16 s32 u32 s64 u64"


def dtype_of(kind):
    return np.dtype({"s": "i", "u": "u", "b": "u", "f": "f"}[kind[0]] + str(int(kind[1:]) // 8))


def whole(kind, seed=0, count=100):
    """Small numbers, limits of the type, and random bits."""
    dtype = dtype_of(kind)
    bits, rng = 8 * dtype.itemsize, np.random.default_rng(seed)
    edges = [*range(9), 31, 32, 33, 63, 64, 127, 128, 255, 256, 32767, 65535, -1, 1 << bits - 1, (1 << bits - 1) - 1]
    values = np.array([x % (1 << bits) for x in edges], f"u{dtype.itemsize}")
    random = np.frombuffer(rng.bytes(dtype.itemsize * count), values.dtype)
    return rng.permutation(np.concatenate([values, random, values])).view(dtype)


def floats(kind, seed=0, count=200):
    """All kinds of floats: zeros, subnormal, NaN, infinite, and random ones of any size."""
    dtype, rng = dtype_of(kind), np.random.default_rng(seed)
    limits = np.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-3, 100.25, np.inf, -np.inf, np.nan]
    edges += [limits.max, limits.min, limits.smallest_normal, limits.smallest_subnormal, -limits.smallest_subnormal]
    with np.errstate(all="ignore"):
        random = (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 30, count)).astype(dtype)
    return rng.permutation(np.concatenate([np.array(edges, dtype), random, np.array(edges, dtype)]))


def check(code, inputs, expected):
    """Equal bits, or NaN in both."""
    expected = np.asarray(expected)
    found, bits = apply(code, *inputs, result=expected.dtype), f"u{expected.itemsize}"
    nan = np.isnan(found) & np.isnan(expected)
    np.testing.assert_array_equal(np.where(nan, 0, found.view(bits)), np.where(nan, 0, expected.view(bits)), code)


# ---- whole numbers ---------------------------------------------------------------------------------------------------


def toward_zero(n, a, b):
    quotient = abs(a) // abs(b) if b else -1
    return -quotient if b and (a < 0) != (b < 0) else quotient


def field(n, a, place, length, signed=True):
    """What stands above a field is its sign, also where the field ends above the register."""
    place, length = place & 255, min(length & 255, n)
    value = (a >> place) & (1 << length) - 1
    return value - (1 << length) if signed and length and value >> length - 1 else value


def inserted(n, a, b, place, length):
    mask = (1 << (length & 255)) - 1 << (place & 255)
    return b & ~mask | a << (place & 255) & mask


def permuted(n, x, y, choices):
    both = (y << 32 | x).to_bytes(8, "little")
    picks = [choices >> 4 * i & 15 for i in range(4)]
    return int.from_bytes(bytes((255 * (both[p & 7] >> 7)) if p & 8 else both[p & 7] for p in picks), "little")


# Code, types of %a, %b, ... and of %z (t the kind, w twice as wide, u u32, n a small u32), a function of the number of
# bits of the kind and of whole numbers, and kinds.
ROWS = [
    ("add.{t} %z, %a, %b;", "ttt", lambda n, a, b: a + b, SIX),
    ("sub.{t} %z, %a, %b;", "ttt", lambda n, a, b: a - b, SIX),
    ("mul.lo.{t} %z, %a, %b;", "ttt", lambda n, a, b: a * b, SIX),
    ("mul.hi.{t} %z, %a, %b;", "ttt", lambda n, a, b: a * b >> n, SIX),
    ("mul.wide.{t} %z, %a, %b;", "ttw", lambda n, a, b: a * b, "s16 u16 s32 u32"),
    ("mad.lo.{t} %z, %a, %b, %c;", "tttt", lambda n, a, b, c: a * b + c, SIX),
    ("mad.wide.{t} %z, %a, %b, %c;", "ttww", lambda n, a, b, c: a * b + c, "s16 u16 s32 u32"),
    ("div.{t} %z, %a, %b;", "ttt", toward_zero, SIX),
    ("rem.{t} %z, %a, %b;", "ttt", lambda n, a, b: a - toward_zero(n, a, b) * b if b else a, SIX),
    ("min.{t} %z, %a, %b;", "ttt", lambda n, a, b: min(a, b), SIX),
    ("max.{t} %z, %a, %b;", "ttt", lambda n, a, b: max(a, b), SIX),
    ("abs.{t} %z, %a;", "tt", lambda n, a: abs(a), "s16 s32 s64"),
    ("neg.{t} %z, %a;", "tt", lambda n, a: -a, "s16 s32 s64"),
    ("and.b{n} %z, %a, %b;", "ttt", lambda n, a, b: a & b, "u16 u32 u64"),
    ("or.b{n} %z, %a, %b;", "ttt", lambda n, a, b: a | b, "u16 u32 u64"),
    ("xor.b{n} %z, %a, %b;", "ttt", lambda n, a, b: a ^ b, "u16 u32 u64"),
    ("not.b{n} %z, %a;", "tt", lambda n, a: ~a, "u16 u32 u64"),
    ("prmt.b32 %z, %a, %b, %c;", "tttt", permuted, "u32"),
    ("shl.b{n} %z, %a, %b;", "tnt", lambda n, a, b: a << min(b, n), SIX),
    ("shr.{t} %z, %a, %b;", "tnt", lambda n, a, b: a >> min(b, n), SIX),
    ("shf.l.wrap.b32 %z, %a, %b, %c;", "ttnt", lambda n, a, b, c: (b << 32 | a) << (c & 31) >> 32, "u32"),
    ("shf.r.wrap.b32 %z, %a, %b, %c;", "ttnt", lambda n, a, b, c: (b << 32 | a) >> (c & 31), "u32"),
    ("bfe.{t} %z, %a, %b, %c;", "tnnt", lambda n, *x: field(n, *x, False), "u32 u64"),
    ("bfe.{t} %z, %a, %b, %c;", "tnnt", field, "s32 s64"),
    ("bfi.b{n} %z, %a, %b, %c, %d;", "ttnnt", inserted, "u32 u64"),
    ("popc.b{n} %z, %a;", "tu", lambda n, a: a.bit_count(), "u32 u64"),
    ("clz.b{n} %z, %a;", "tu", lambda n, a: n - a.bit_length(), "u32 u64"),
]


def test_whole_numbers():
    for code, letters, function, kinds in ROWS:
        for kind in kinds.split():
            bits = int(kind[1:])
            types = {"t": kind, "w": f"{kind[0]}{2 * bits}", "u": "u32", "n": "u32"}
            arrays = [whole(types[letter], seed) for seed, letter in enumerate(letters[:-1])]
            for letter, array in zip(letters, arrays, strict=False):
                array[::2] = array[::2] % 80 if letter == "n" else array[::2]
            result = dtype_of(types[letters[-1]])
            modulus = 1 << 8 * result.itemsize
            exact = [int(function(bits, *map(int, row))) % modulus for row in zip(*arrays, strict=True)]
            check(code.format(t=kind, n=bits), arrays, np.array(exact, f"u{result.itemsize}").view(result))


# ---- comparisons -----------------------------------------------------------------------------------------------------

COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
WITHOUT_SIGN = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


def pairs(kind):
    """Two arrays, equal in places."""
    a, b = ((floats if kind[0] == "f" else whole)(kind, seed) for seed in (1, 2))
    b[::5] = a[::5]
    return a, b


def test_setp():
    """On floats eq, ne, lt ... are false where one is NaN, equ, neu, ltu ... are true there."""
    for kind in (*SIX.split(), "f32", "f64"):
        a, b = pairs(kind)
        nan = np.isnan(a) | np.isnan(b)
        wanted = {name: test(a, b) & ~nan for name, test in COMPARE.items()}
        if kind[0] == "f":
            wanted |= {f"{name}u": test(a, b) | nan for name, test in COMPARE.items()} | {"nan": nan, "num": ~nan}
        elif kind[0] == "u":
            wanted |= {name: test(a, b) for name, test in WITHOUT_SIGN.items()}
        for name, expected in wanted.items():
            code = f"setp.{name}.{kind} %p1, %a, %b; not.pred %p2, %p1; selp.u32 %z, 0, 1, %p2;"
            check(code, (a, b), expected.astype(np.uint32))


# ---- floats ----------------------------------------------------------------------------------------------------------

FLOATS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div.rn": np.divide, "min": np.fmin, "max": np.fmax,
    "min.NaN": np.minimum, "copysign": lambda a, b: np.copysign(b, a),
}  # fmt: skip
FUNCTIONS = {
    "ex2.approx": np.exp2, "lg2.approx": np.log2, "rcp.approx": np.reciprocal, "rcp.rn": np.reciprocal,
    "sqrt.rn": np.sqrt, "sqrt.approx": np.sqrt, "rsqrt.approx": lambda x: 1 / np.sqrt(x), "sin.approx": np.sin,
    "cos.approx": np.cos, "tanh.approx": np.tanh, "neg": np.negative, "abs": np.abs,
}  # fmt: skip


def test_floats_and_their_functions():
    """-0 is smaller than +0. Functions are float64's, rounded: no hardware is nearer to the exact result."""
    for kind in ("f32", "f64"):
        a, b = pairs(kind)
        for name, function in FLOATS.items():
            expected = function(a, b)
            if name[:3] in ("min", "max"):
                sign = np.logical_or if name[:3] == "min" else np.logical_and
                zero = np.where(sign(np.signbit(a), np.signbit(b)), -0.0, 0.0)
                expected = np.where((a == 0) & (b == 0), zero, expected).astype(a.dtype)
            check(f"{name}.{kind} %z, %a, %b;", (a, b), expected)
        for name, function in FUNCTIONS.items():
            check(f"{name}.{kind} %z, %a;", (a,), function(a.astype(np.float64)).astype(a.dtype))


def rounded(value, dtype, mode="rn"):
    """A fraction rounded by definition: to the one of its two neighbours that the mode wants."""
    down = up = dtype(float(value))
    while Fraction(float(down)) > value:
        down = np.nextafter(down, dtype(-np.inf))
    while Fraction(float(up)) < value:
        up = np.nextafter(up, dtype(np.inf))
    below, above = value - Fraction(float(down)), Fraction(float(up)) - value
    even = up if down.view(f"u{down.itemsize}") & 1 else down
    near = down if below < above else up if above < below else even
    return {"rn": near, "rm": down, "rp": up, "rz": down if value > 0 else up}[mode]


def hard_triples():
    """Products half way between two float32 numbers, and sums that float64 rounds to half way.

    An odd number of 25 bits is half way between two numbers of 24 bits: (2a + 1) * (2b + 1) of 12 and 13 bits.
    (1/2 + 2**-24) * (1 - 2**-23) = 1/2 - 2**-47 is nearly half of the last bit of a whole number of 24 bits.
    """
    rng = np.random.default_rng(0)
    yield from rng.standard_normal((200, 3)).astype(np.float32)
    for _ in range(50):
        x, y, z = (int(rng.integers(2**n, 2 ** (n + 1))) for n in (11, 12, 23))
        for tiny in (2.0**-100, -(2.0**-148)):
            yield from ((2 * x - 1, 2 * y - 1, tiny), ((2 * x - 1) * 2.0**-40, (2 * y - 1) * 2.0**-40, tiny))
        for right in (1 - 2.0**-23, 1 + 2.0**-23, -1 + 2.0**-23, -1 - 2.0**-23):
            left = 0.5 + 2.0**-24
            yield from ((left, right, z), (left * 2.0**-75, right * 2.0**-74, (z >> 2) * 2.0**-149))


ROUNDED = {  # instruction and operands -> its exact result
    "add.{} %z, %a, %b;": lambda x, y, z: x + y,
    "sub.{} %z, %a, %b;": lambda x, y, z: x - y,
    "mul.{} %z, %a, %b;": lambda x, y, z: x * y,
    "fma.{} %z, %a, %b, %c;": lambda x, y, z: x * y + z,
}


def test_results_are_rounded_once_in_every_direction():
    columns = np.array([*hard_triples()], np.float32).T.copy()
    exact = [[Fraction(float(v)) for v in row] for row in columns.T]
    for mode, (code, function) in product(("rn", "rz", "rm", "rp"), ROUNDED.items()):
        wanted = np.array([rounded(function(*row), np.float32, mode) for row in exact])
        check(code.format(f"{mode}.f32"), (*columns,), wanted)
    one = np.array([1 + 2.0**-52])
    check("fma.rn.f64 %z, %a, %a, %b;", (one, np.array([-1 - 2.0**-51])), np.array([2.0**-104]))
    for mode, zero in (("rn", 0.0), ("rz", 0.0), ("rm", -0.0), ("rp", 0.0)):
        ends = np.float32([3, -3, 0, -0.0]), np.float32([-3, 3, 0, -0.0])
        check(f"add.{mode}.f32 %z, %a, %b;", ends, np.float32([zero, zero, 0, -0.0]))
    x = floats("f32", count=50)
    a, b, c = (grid.ravel() for grid in np.meshgrid(x[:12], x[-12:], np.float32([np.nan, np.inf, -np.inf, 0, 1])))
    check("fma.rn.f32 %z, %a, %b, %c;", (a, b, c), (a.astype(float) * b + c).astype(np.float32))


def test_flushing_and_saturation():
    tiny = np.float32([1e-40, -1e-40, 1.5, -1.5, np.nan, np.inf, 0.25, 1e-30])
    for code, expected in (
        ("mul.ftz.f32 %z, %a, 0f3F800000;", [0, -0.0, 1.5, -1.5, np.nan, np.inf, 0.25, 1e-30]),
        ("add.sat.f32 %z, %a, 0f00000000;", [1e-40, 0, 1, 0, 0, 1, 0.25, 1e-30]),
        ("mul.ftz.f32 %z, %a, 0f00800000;", [0, -0.0, 1.5 * 2.0**-126, -1.5 * 2.0**-126, np.nan, np.inf, 0, 0]),
        ("cvt.sat.f32.f32 %z, %a;", [1e-40, 0, 1, 0, 0, 1, 0.25, 1e-30]),
    ):
        check(code, (tiny,), np.float32(expected))
    check("rcp.approx.ftz.f32 %z, %a;", (tiny[:2],), np.float32([np.inf, -np.inf]))
    check("setp.eq.ftz.f32 %p1, %a, 0f00000000; selp.u32 %z, 1, 0, %p1;", (tiny,), np.uint32([1, 1] + [0] * 6))
    x = np.abs(floats("f64"))
    x = x[(x > 1e-300) & (x < 1e300)]
    upper = (x.view("u8") & np.uint64(0xFFFFFFFF00000000)).view("f8")  # which alone is read and written
    check("rcp.approx.ftz.f64 %z, %a;", (x,), ((1 / upper).view("u8") & np.uint64(0xFFFFFFFF00000000)).view("f8"))


# ---- conversions -----------------------------------------------------------------------------------------------------

MODES = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def test_conversions_of_whole_numbers():
    """Truncated or extended by the sign of the source; to floats they are rounded once."""
    kinds = f"u8 s8 {SIX}".split()
    for source in kinds:
        x = whole(source)
        for to in kinds:
            check(f"cvt.{to}.{source} %z, %a;", (x,), x.astype(dtype_of(to)))
        for to, dtype in (("f16", np.float16), ("f32", np.float32), ("f64", np.float64)):
            wanted = [dtype(v) if to == "f16" and abs(int(v)) > 65000 else rounded(Fraction(int(v)), dtype) for v in x]
            check(f"cvt.rn.{to}.{source} %z, %a;", (x,), np.array(wanted))


def test_conversions_of_floats_to_whole_numbers():
    """What lies outside becomes the nearest; NaN 0, or with 64 bits on either side the highest bit alone."""
    for source in ("f32", "f64"):
        x = floats(source)
        for to in "s16 u16 s32 u32 s64 u64".split():
            limits, wide = np.iinfo(dtype_of(to)), "64" in source + to
            for mode, round_ in MODES.items():
                wanted = [min(max(round_(float(v)), limits.min), limits.max) if np.isfinite(v) else 0 for v in x]
                wanted = np.array(wanted, limits.dtype)
                wanted[np.isposinf(x)], wanted[np.isneginf(x)] = limits.max, limits.min
                wanted[np.isnan(x)] = (limits.min or limits.max // 2 + 1) if wide else 0
                check(f"cvt.{mode}.{to}.{source} %z, %a;", (x,), wanted)


def test_conversions_of_floats():
    x, y, z = floats("f64"), floats("f16"), floats("f32")
    half, near = np.float32([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8]), z[~np.isnan(z)]  # ties
    z = np.concatenate([z, half])
    check("cvt.rn.f32.f64 %z, %a;", (x,), x.astype("f4"))
    check("cvt.rn.f16.f32 %z, %a;", (z,), z.astype("f2"))
    check("cvt.f32.f16 %z, %a;", (y,), y.astype("f4"))
    for mode, function in {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.items():
        check(f"cvt.{mode}.f32.f32 %z, %a;", (z,), function(z))
    for kind, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        bits = near.astype(dtype).view(np.uint16).astype(np.uint32)
        one = int(np.ones(1, dtype).view(np.uint16)[0]) << 16
        check(f"cvt.rn.{kind}x2.f32 %z, 0f3F800000, %a;", (near,), bits | np.uint32(one))
    check("cvt.rna.tf32.f32 %z, %a;", (near,), near.view("u4") + np.uint32(0x1000) & np.uint32(0xFFFFE000))
    nan = np.float32([np.nan])
    check("cvt.rn.bf16x2.f32 %z, %a, %a;", (nan,), np.uint32([0x7FFF7FFF]))
    check("cvt.rna.tf32.f32 %z, %a;", (nan,), np.uint32([0x7FFFE000]))
