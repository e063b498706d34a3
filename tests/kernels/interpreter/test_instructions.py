"""Instructions from registers to registers, one by one, against Python's whole numbers, NumPy and the C library."""

import ctypes
import ctypes.util
from fractions import Fraction

import numpy as np
import pytest

from .ptx import apply

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
SIX = "s16 u16 s32 u32 s64 u64"


def dtype_of(kind):
    return np.dtype({"s": "i", "u": "u", "b": "u", "f": "f"}[kind[0]] + str(int(kind[1:]) // 8))


def whole(kind, seed=0, count=150):
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


def same(found, expected):
    """Equal bits, or NaN in both."""
    nan, bits = np.isnan(found) & np.isnan(expected), f"u{found.itemsize}"
    return np.array_equal(np.where(nan, 0, found.view(bits)), np.where(nan, 0, expected.astype(found.dtype).view(bits)))


# ---- whole numbers ---------------------------------------------------------------------------------------------------


def toward_zero(n, a, b):
    quotient = abs(a) // abs(b) if b else -1
    return -quotient if b and (a < 0) != (b < 0) else quotient


def clipped(value):
    return min(max(value, -(1 << 31)), (1 << 31) - 1)


def signed_field(n, a, place, length):
    """What stands above a field is its sign, also where the field ends above the register."""
    place, length = place & 255, min(length & 255, n)
    value = (a >> place) & (1 << length) - 1
    return value - (1 << length) if length and value >> length - 1 else value


def inserted(n, a, b, place, length):
    mask = (1 << (length & 255)) - 1 << (place & 255)
    return b & ~mask | a << (place & 255) & mask


def permuted(n, x, y, choices):
    both = (y << 32 | x).to_bytes(8, "little")
    picks = [choices >> 4 * i & 15 for i in range(4)]
    return int.from_bytes(bytes((255 * (both[p & 7] >> 7)) if p & 8 else both[p & 7] for p in picks), "little")


def looked_up(table):
    return lambda n, x, y, z: sum(
        (table >> (4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1)) & 1) << i for i in range(32)
    )


def dotted(n, x, y, z):
    bytes_ = lambda v: np.array([v % 2**32], np.uint32).view(np.int8).astype(int)
    return int(bytes_(x) @ bytes_(y)) + z


# Code, types of %a, %b, ... and of %z (t the kind, b without a sign, w twice as wide, u u32, n a small u32), a function
# of the bits of the kind and of whole numbers, and kinds.
ROWS = [
    ("add.{t} %z, %a, %b;", "ttt", lambda n, a, b: a + b, SIX),
    ("sub.{t} %z, %a, %b;", "ttt", lambda n, a, b: a - b, SIX),
    ("add.sat.{t} %z, %a, %b;", "ttt", lambda n, a, b: clipped(a + b), "s32"),
    ("sub.sat.{t} %z, %a, %b;", "ttt", lambda n, a, b: clipped(a - b), "s32"),
    ("mul.lo.{t} %z, %a, %b;", "ttt", lambda n, a, b: a * b, SIX),
    ("mul.hi.{t} %z, %a, %b;", "ttt", lambda n, a, b: a * b >> n, SIX),
    ("mul.wide.{t} %z, %a, %b;", "ttw", lambda n, a, b: a * b, "s16 u16 s32 u32"),
    ("mad.lo.{t} %z, %a, %b, %c;", "tttt", lambda n, a, b, c: a * b + c, SIX),
    ("mad.hi.{t} %z, %a, %b, %c;", "tttt", lambda n, a, b, c: (a * b >> n) + c, SIX),
    ("mad.wide.{t} %z, %a, %b, %c;", "ttww", lambda n, a, b, c: a * b + c, "s16 u16 s32 u32"),
    ("div.{t} %z, %a, %b;", "ttt", toward_zero, SIX),
    ("rem.{t} %z, %a, %b;", "ttt", lambda n, a, b: a - toward_zero(n, a, b) * b if b else a, SIX),
    ("min.{t} %z, %a, %b;", "ttt", lambda n, a, b: min(a, b), SIX),
    ("max.{t} %z, %a, %b;", "ttt", lambda n, a, b: max(a, b), SIX),
    ("abs.{t} %z, %a;", "tt", lambda n, a: abs(a), "s16 s32 s64"),
    ("neg.{t} %z, %a;", "tt", lambda n, a: -a, "s16 s32 s64"),
    ("sad.{t} %z, %a, %b, %c;", "ttbb", lambda n, a, b, c: abs(a - b) + c, "s32 u32"),
    ("dp4a.s32.s32 %z, %a, %b, %c;", "tttt", dotted, "s32"),
    ("and.b{n} %z, %a, %b;", "ttt", lambda n, a, b: a & b, "u16 u32 u64"),
    ("or.b{n} %z, %a, %b;", "ttt", lambda n, a, b: a | b, "u16 u32 u64"),
    ("xor.b{n} %z, %a, %b;", "ttt", lambda n, a, b: a ^ b, "u16 u32 u64"),
    ("not.b{n} %z, %a;", "tt", lambda n, a: ~a, "u16 u32 u64"),
    ("cnot.b{n} %z, %a;", "tt", lambda n, a: a == 0, "u32"),
    ("lop3.b32 %z, %a, %b, %c, 0x96;", "tttt", looked_up(0x96), "u32"),
    ("lop3.b32 %z, %a, %b, %c, 0xCA;", "tttt", looked_up(0xCA), "u32"),
    ("prmt.b32 %z, %a, %b, %c;", "tttt", permuted, "u32"),
    ("shl.b{n} %z, %a, %b;", "tnt", lambda n, a, b: a << min(b, n), SIX),
    ("shr.{t} %z, %a, %b;", "tnt", lambda n, a, b: a >> min(b, n), SIX),
    ("shf.l.wrap.b32 %z, %a, %b, %c;", "ttnt", lambda n, a, b, c: (b << 32 | a) << (c & 31) >> 32, "u32"),
    ("shf.r.wrap.b32 %z, %a, %b, %c;", "ttnt", lambda n, a, b, c: (b << 32 | a) >> (c & 31), "u32"),
    ("shf.l.clamp.b32 %z, %a, %b, %c;", "ttnt", lambda n, a, b, c: (b << 32 | a) << min(c, 32) >> 32, "u32"),
    ("shf.r.clamp.b32 %z, %a, %b, %c;", "ttnt", lambda n, a, b, c: (b << 32 | a) >> min(c, 32), "u32"),
    (
        "bfe.{t} %z, %a, %b, %c;",
        "tnnt",
        lambda n, a, place, length: a >> (place & 255) & (1 << (length & 255)) - 1,
        "u32 u64",
    ),
    ("bfe.{t} %z, %a, %b, %c;", "tnnt", signed_field, "s32 s64"),
    ("bfi.b{n} %z, %a, %b, %c, %d;", "ttnnt", inserted, "u32 u64"),
    ("popc.b{n} %z, %a;", "tu", lambda n, a: a.bit_count(), "u32 u64"),
    ("clz.b{n} %z, %a;", "tu", lambda n, a: n - a.bit_length(), "u32 u64"),
    ("brev.b{n} %z, %a;", "tt", lambda n, a: int(format(a, f"0{n}b")[::-1], 2), "u32 u64"),
    ("bfind.{t} %z, %a;", "tu", lambda n, a: (~a if a < 0 else a).bit_length() - 1, "u32 s32 u64 s64"),
    ("bfind.shiftamt.{t} %z, %a;", "tu", lambda n, a: n - a.bit_length() if a else -1, "u32 u64"),
    ("slct.{t}.s32 %z, %a, %a, %b;", "ttt", lambda n, a, b: a, "s32"),
]


@pytest.mark.parametrize("code, letters, function, kinds", ROWS, ids=[row[0].split(" ")[0] for row in ROWS])
def test_whole_numbers(code, letters, function, kinds):
    for kind in kinds.split():
        bits = int(kind[1:])
        types = {"t": kind, "b": f"u{bits}", "w": f"{kind[0]}{2 * bits}", "u": "u32", "n": "u32"}
        arrays = [whole(types[letter], seed) for seed, letter in enumerate(letters[:-1])]
        for letter, array in zip(letters, arrays, strict=False):
            array[::2] = array[::2] % 80 if letter == "n" else array[::2]
        result = dtype_of(types[letters[-1]])
        found = apply(code.format(t=kind, n=bits), *arrays, result=result)
        modulus = 1 << 8 * result.itemsize
        exact = [int(function(bits, *map(int, row))) % modulus for row in zip(*arrays, strict=True)]
        assert found.view(f"u{result.itemsize}").tolist() == exact, kind


def test_carries_make_sums_and_products_of_128_bits():
    a, b = (whole("u64", seed) for seed in (1, 2))
    head = ".reg .u32 %a0, %a1, %b0, %b1, %x0, %x1, %x2, %x3; mov.b64 {%a0, %a1}, %a; mov.b64 {%b0, %b1}, %b;"
    add = head + "add.cc.u32 %x0, %a0, %b0; addc.u32 %x1, %a1, %b1; mov.b64 %z, {%x0, %x1};"
    assert np.array_equal(apply(add, a, b, result=np.uint64), a + b)
    subtract = head + "sub.cc.u32 %x0, %a0, %b0; subc.u32 %x1, %a1, %b1; mov.b64 %z, {%x0, %x1};"
    assert np.array_equal(apply(subtract, a, b, result=np.uint64), a - b)
    code = (
        head
        + """mul.lo.u32 %x0, %a0, %b0; mul.hi.u32 %x1, %a0, %b0;
    mad.lo.cc.u32 %x1, %a0, %b1, %x1; madc.hi.u32 %x2, %a0, %b1, 0;
    mad.lo.cc.u32 %x1, %a1, %b0, %x1; madc.hi.cc.u32 %x2, %a1, %b0, %x2; madc.hi.u32 %x3, %a1, %b1, 0;
    mad.lo.cc.u32 %x2, %a1, %b1, %x2; addc.u32 %x3, %x3, 0; mov.b64 %z, {%x2, %x3};"""
    )
    high = [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    assert apply(code, a, b, result=np.uint64).tolist() == high


# ---- comparisons -----------------------------------------------------------------------------------------------------

COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
WITHOUT_SIGN = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


def truth(code, *inputs):
    return apply(code + "selp.u32 %z, 1, 0, %p1;", *inputs, result=np.uint32).astype(bool)


def pairs(kind):
    """Two arrays, equal in places."""
    a, b = ((floats if kind[0] == "f" else whole)(kind, seed) for seed in (1, 2))
    b[::5] = a[::5]
    return a, b


@pytest.mark.parametrize("kind", [*SIX.split(), "f16", "f32", "f64"])
def test_setp(kind):
    """On floats eq, ne, lt ... are false where one is NaN, equ, neu, ltu ... are true there."""
    a, b = pairs(kind)
    nan = np.isnan(a) | np.isnan(b)
    wanted = {name: test(a, b) & ~nan for name, test in COMPARE.items()}
    if kind[0] == "f":
        wanted |= {f"{name}u": test(a, b) | nan for name, test in COMPARE.items()} | {"nan": nan, "num": ~nan}
    elif kind[0] == "u":
        wanted |= {name: test(a, b) for name, test in WITHOUT_SIGN.items()}
    for name, expected in wanted.items():
        assert np.array_equal(truth(f"setp.{name}.{kind} %p1, %a, %b;", a, b), expected), name


def test_setp_combines_and_gives_a_second_predicate():
    (a, b), c = pairs("s32"), whole("s32", 3)
    head, positive, less = "setp.gt.s32 %p2, %c, 0;", c > 0, a < b
    for name, combine in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        for code, expected in (
            (f"setp.lt.{name}.s32 %p1|%p3, %a, %b, %p2;", combine(less, positive)),
            (f"setp.lt.{name}.s32 %p3|%p1, %a, %b, %p2;", combine(~less, positive)),
            (f"setp.lt.{name}.s32 _|%p1, %a, %b, %p2;", combine(~less, positive)),
            (f"setp.lt.{name}.s32 %p1, %a, %b, !%p2;", combine(less, ~positive)),
            (f"setp.lt.s32 %p1, %a, %b; not.pred %p1, %p1; {name}.pred %p1, %p1, %p2;", combine(~less, positive)),
        ):
            assert np.array_equal(truth(head + code, a, b, c), expected), code


# ---- floats ----------------------------------------------------------------------------------------------------------

FLOATS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.fmin, "max": np.fmax, "min.NaN": np.minimum,
    "copysign": lambda a, b: np.copysign(b, a), "neg": lambda a, b: -a, "abs": lambda a, b: np.abs(a),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats(kind, name):
    a, b = pairs(kind)
    with np.errstate(all="ignore"):
        expected = FLOATS[name](a, b)
    code = f"{name}.{kind} %z, %a" + ("" if name in ("neg", "abs") else ", %b") + ";"
    found = apply(code, a, b, result=a.dtype)
    zeros = (a == 0) & (b == 0) & (name[:3] in ("min", "max"))
    assert same(np.where(zeros, 0, found).astype(a.dtype), np.where(zeros, 0, expected).astype(a.dtype))
    negative = np.signbit(a) | np.signbit(b) if name[:3] == "min" else np.signbit(a) & np.signbit(b)
    assert np.array_equal(np.signbit(found[zeros]), negative[zeros])


@pytest.mark.parametrize(
    "kind, routine, c_type", [("f32", LIBM.fmaf, ctypes.c_float), ("f64", LIBM.fma, ctypes.c_double)]
)
def test_fused_multiply_add(kind, routine, c_type):
    routine.restype, routine.argtypes = c_type, [c_type] * 3
    a, b, c = (floats(kind, seed, 800) for seed in (1, 2, 3))
    with np.errstate(all="ignore"):
        c[::3] = -(a * b)[::3]  # only the rounding error of the product is left
    expected = np.array([routine(*(float(x) for x in row)) for row in zip(a, b, c, strict=True)], a.dtype)
    assert same(apply(f"fma.rn.{kind} %z, %a, %b, %c;", a, b, c, result=a.dtype), expected)


def directed(value, mode):
    """A fraction rounded to float32."""
    down = up = np.float32(float(value))
    while Fraction(float(down)) > value:
        down = np.nextafter(down, np.float32(-np.inf))
    while Fraction(float(up)) < value:
        up = np.nextafter(up, np.float32(np.inf))
    return {"rm": down, "rp": up, "rz": down if value > 0 else up}[mode]


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_rounding(mode):
    a, b, c = (np.random.default_rng(seed).standard_normal(300).astype(np.float32) for seed in range(3))
    rows = [[Fraction(float(v)) for v in row] for row in zip(a, b, c, strict=True)]
    for code, function in (
        (f"add.{mode}.f32 %z, %a, %b;", lambda x, y, z: x + y),
        (f"sub.{mode}.f32 %z, %a, %b;", lambda x, y, z: x - y),
        (f"mul.{mode}.f32 %z, %a, %b;", lambda x, y, z: x * y),
        (f"div.{mode}.f32 %z, %a, %b;", lambda x, y, z: x / y),
        (f"rcp.{mode}.f32 %z, %a;", lambda x, y, z: 1 / x),
        (f"fma.{mode}.f32 %z, %a, %b, %c;", lambda x, y, z: x * y + z),
    ):
        expected = np.array([directed(function(*row), mode) for row in rows])
        assert np.array_equal(apply(code, a, b, c, result=np.float32), expected), code
    zero = apply(f"mul.{mode}.f32 %z, %a, %b;", np.float32([0, -0.0]), np.float32([1, 1]), result=np.float32)
    assert np.signbit(zero).tolist() == [False, True]


def test_flushing_and_saturation():
    tiny = np.float32([1e-40, -1e-40, 1.5, -1.5, np.nan, np.inf, 0.25, 1e-30])
    one = np.ones_like(tiny)
    for code, expected in (
        ("mul.ftz.f32 %z, %a, %b;", [0, -0.0, 1.5, -1.5, np.nan, np.inf, 0.25, 1e-30]),
        ("add.sat.f32 %z, %a, 0f00000000;", [1e-40, 0, 1, 0, 0, 1, 0.25, 1e-30]),
        ("mul.ftz.f32 %z, %a, 0f2EDBE6FF;", [0, -0.0, 1.5e-10, -1.5e-10, np.nan, np.inf, 2.5e-11, 0]),
        ("fma.rn.relu.f32 %z, %a, %b, 0f00000000;", [1e-40, 0, 1.5, 0, np.nan, np.inf, 0.25, 1e-30]),
    ):
        assert np.allclose(apply(code, tiny, one, result=np.float32), np.float32(expected), 1e-6, 0, True), code
    assert truth("setp.eq.ftz.f32 %p1, %a, 0f00000000;", tiny).tolist() == [True] * 2 + [False] * 6


def test_pairs_of_half_floats():
    a, b, c = (floats("f16", seed).view(np.uint32) for seed in (1, 2, 3))
    halves, sign = (lambda x: x.view(np.float16)), np.uint32(0x80008000)
    with np.errstate(all="ignore"):
        product = (halves(a).astype("f8") * halves(b).astype("f8") + halves(c).astype("f8")).astype("f2")
        assert same(halves(apply("add.f16x2 %z, %a, %b;", a, b, result=np.uint32)), halves(a) + halves(b))
    assert same(halves(apply("fma.rn.f16x2 %z, %a, %b, %c;", a, b, c, result=np.uint32)), product)
    x, y, z = (np.random.default_rng(seed).integers(-8, 9, 600).astype("f4") for seed in (1, 2, 3))
    short = lambda values: (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)  # exact in bfloat16
    found = apply("fma.rn.bf16x2 %z, %a, %b, %c;", short(x), short(y), short(z), result=np.uint32)
    assert np.array_equal(found, short(x * y + z))
    assert np.array_equal(apply("max.bf16x2 %z, %a, %b;", short(x), short(y), result=np.uint32), short(np.fmax(x, y)))
    assert np.array_equal(apply("neg.f16x2 %z, %a;", a, result=np.uint32), a ^ sign)
    assert np.array_equal(apply("abs.bf16x2 %z, %a;", a, result=np.uint32), a & ~sign)


FUNCTIONS = {
    "ex2.approx.ftz": np.exp2, "lg2.approx": np.log2, "rcp.approx.ftz": np.reciprocal, "rcp.rn": np.reciprocal,
    "sqrt.rn": np.sqrt, "sqrt.approx": np.sqrt, "rsqrt.approx": lambda x: 1 / np.sqrt(x), "sin.approx": np.sin,
    "cos.approx": np.cos, "tanh.approx": np.tanh,
}  # fmt: skip


def test_functions():
    x = np.linspace(0.01, 20, 300, dtype=np.float32)
    for code, function in FUNCTIONS.items():
        found = apply(f"{code}.f32 %z, %a;", x, result=np.float32)
        assert np.array_equal(found, function(x.astype(np.float64)).astype(np.float32)), code


# ---- conversions and moves -------------------------------------------------------------------------------------------

ALL = "u8 s8 u16 s16 u32 s32 u64 s64".split()
MODES = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def test_conversions_of_whole_numbers():
    """Truncated or extended by the sign of the source; .sat clamps; floats clamp."""
    for source in ALL:
        x = whole(source)
        for to in ALL:
            dtype = dtype_of(to)
            limits = np.iinfo(dtype)
            assert np.array_equal(apply(f"cvt.{to}.{source} %z, %a;", x, result=dtype), x.astype(dtype))
            clamped = [min(max(int(v), limits.min), limits.max) for v in x]
            assert apply(f"cvt.sat.{to}.{source} %z, %a;", x, result=dtype).tolist() == clamped
        for to in ("f16", "f32", "f64"):
            with np.errstate(over="ignore"):
                expected = x.astype(dtype_of(to))
            assert np.array_equal(apply(f"cvt.rn.{to}.{source} %z, %a;", x, result=dtype_of(to)), expected)
    for to, source in (("s32", "f32"), ("u32", "f32"), ("s64", "f32"), ("u8", "f32"), ("s16", "f32"), ("u64", "f64")):
        x = floats(source)
        x, limits = x[~np.isnan(x)], np.iinfo(dtype_of(to))
        for mode, round_ in MODES.items():
            finite = np.clip(x.astype(object), -(2**70), 2**70)
            expected = [min(max(int(round_(float(v))), limits.min), limits.max) for v in finite]
            assert apply(f"cvt.{mode}.{to}.{source} %z, %a;", x, result=dtype_of(to)).tolist() == expected


def test_conversions_of_floats():
    x, y, z = floats("f64"), floats("f16"), floats("f32")
    with np.errstate(all="ignore"):
        assert same(apply("cvt.rn.f32.f64 %z, %a;", x, result=np.float32), x.astype("f4"))
        assert same(apply("cvt.rn.f16.f32 %z, %a;", z, result=np.float16), z.astype("f2"))
        unit = np.nan_to_num(np.clip(z, 0, 1), nan=0.0)
    assert same(apply("cvt.f32.f16 %z, %a;", y, result=np.float32), y.astype("f4"))
    for mode, function in MODES.items():
        assert same(apply(f"cvt.{mode}.f32.f32 %z, %a;", z, result=np.float32), function(z))
    assert np.array_equal(apply("cvt.sat.f32.f32 %z, %a;", z, result=np.float32), unit)
    ones = (z.view("u4") + 0x7FFF + (z.view("u4") >> 16 & 1) >> 16)[~np.isnan(z)]  # bfloat16
    pair = ".reg .b32 %o; cvt.rn.bf16x2.f32 %o, 0f3F800000, %a; mov.b32 %z, %o;"
    assert np.array_equal(apply(pair, z, result=np.uint32)[~np.isnan(z)], ones | 0x3F800000)
    tf32 = apply("cvt.rna.tf32.f32 %z, %a;", z, result=np.uint32)[~np.isnan(z)]
    assert np.array_equal(tf32, (z.view("u4") + 0x1000 & 0xFFFFE000)[~np.isnan(z)])


def test_registers_are_taken_apart_and_put_together():
    x, y = whole("u64"), floats("f32")
    swap = ".reg .b32 %lo, %hi; mov.b64 {%lo, %hi}, %a; mov.b64 %z, {%hi, %lo};"
    assert np.array_equal(apply(swap, x, result=np.uint64), x << np.uint64(32) | x >> np.uint64(32))
    quarters = ".reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %z, {%h3, %h2, %h1, %h0};"
    expected = x.view("u2").reshape(-1, 4)[:, ::-1].copy().view("u8")[:, 0]
    assert np.array_equal(apply(quarters, x, result=np.uint64), expected)
    assert np.array_equal(apply("mov.b32 %z, %a;", y, result=np.uint32), y.view("u4"))
    upper = ".reg .b16 %h; mov.b32 {_, %h}, %a; cvt.u32.u16 %z, %h;"
    assert np.array_equal(apply(upper, y, result=np.uint32), y.view("u4") >> 16)
