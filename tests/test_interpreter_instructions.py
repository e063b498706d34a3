"""Instructions of PTX, one by one, against NumPy, Python's whole numbers and the C library."""

import ctypes
import ctypes.util
import operator
from fractions import Fraction

import numpy as np
import pytest

from .ptx import apply

INTERESTING = [0, 1, 2, 3, 5, 7, 8, 31, 32, 33, 63, 64, 100, 127, 128, 255, 256, 1000, 32767, 32768, 65535]
LIBM = ctypes.CDLL(ctypes.util.find_library("m"))


def whole(dtype, seed=0, count=200):
    """Small numbers, limits of the type, and random bits."""
    dtype = np.dtype(dtype)
    bits = 8 * dtype.itemsize
    rng = np.random.default_rng(seed)
    edges = [(1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1]
    values = np.array([x % (1 << bits) for x in [*INTERESTING, *edges]], f"u{dtype.itemsize}")
    random = rng.integers(0, 1 << bits, count, dtype=np.uint64, endpoint=False) if bits < 64 else rng.bytes(8 * count)
    random = np.frombuffer(random, np.uint64) if bits == 64 else random.astype(values.dtype)
    return rng.permutation(np.concatenate([values, random, values])).view(dtype)


def floats(dtype, seed=0, count=200):
    """All kinds of floats: zeros, subnormal, NaN, infinite, and random ones of any size."""
    dtype = np.dtype(dtype)
    limits = np.finfo(dtype)
    rng = np.random.default_rng(seed)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-3, 100.25, np.inf, -np.inf, np.nan]
    edges += [limits.max, limits.min, limits.smallest_normal, limits.smallest_subnormal, -limits.smallest_subnormal]
    with np.errstate(all="ignore"):
        random = (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 30, count)).astype(dtype)
    return rng.permutation(np.concatenate([np.array(edges, dtype), random, np.array(edges, dtype)]))


def exact(function, dtype, *arrays):
    """A function of Python's whole numbers on each element, wrapped to a type."""
    dtype = np.dtype(dtype)
    modulus = 1 << 8 * dtype.itemsize
    values = [function(*(int(x) for x in row)) % modulus for row in zip(*arrays, strict=True)]
    return np.array(values, f"u{dtype.itemsize}").view(dtype)


def toward_zero(a, b):
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def rest(a, b):
    return a if b == 0 else a - toward_zero(a, b) * b


def shift_left(bits):
    return lambda a, b: a << min(b, bits)


def shift_right(bits):
    return lambda a, b: a >> min(b, bits)


def clip(low, high):
    return lambda value: min(max(value, low), high)


CLIP32 = clip(-(1 << 31), (1 << 31) - 1)
TWO = [
    ("add.{t}", operator.add, "s16 u16 s32 u32 s64 u64"),
    ("sub.{t}", operator.sub, "s16 u16 s32 u32 s64 u64"),
    ("mul.lo.{t}", operator.mul, "s16 u16 s32 u32 s64 u64"),
    ("div.{t}", toward_zero, "s16 u16 s32 u32 s64 u64"),
    ("rem.{t}", rest, "s16 u16 s32 u32 s64 u64"),
    ("min.{t}", min, "s16 u16 s32 u32 s64 u64"),
    ("max.{t}", max, "s16 u16 s32 u32 s64 u64"),
    ("and.{b}", operator.and_, "u16 u32 u64"),
    ("or.{b}", operator.or_, "u16 u32 u64"),
    ("xor.{b}", operator.xor, "u16 u32 u64"),
    ("add.sat.{t}", lambda a, b: CLIP32(a + b), "s32"),
    ("sub.sat.{t}", lambda a, b: CLIP32(a - b), "s32"),
]


def dtype_of(kind):
    return np.dtype({"s": "i", "u": "u", "b": "u", "f": "f"}[kind[0]] + str(int(kind[1:]) // 8))


@pytest.mark.parametrize(
    "code, function, kind",
    [(code, function, kind) for code, function, kinds in TWO for kind in kinds.split()],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_integers(code, function, kind):
    dtype = dtype_of(kind)
    a, b = whole(dtype, 1), whole(dtype, 2)
    found = apply(code.format(t=kind, b="b" + kind[1:]) + " %z, %a, %b;", a, b, result=dtype)
    assert np.array_equal(found, exact(function, dtype, a, b))


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_products_of_integers(kind):
    dtype, bits = dtype_of(kind), int(kind[1:])
    a, b, c = whole(dtype, 1), whole(dtype, 2), whole(dtype, 3)
    high = lambda x, y: x * y >> bits
    assert np.array_equal(apply(f"mul.hi.{kind} %z, %a, %b;", a, b, result=dtype), exact(high, dtype, a, b))
    code = f"mad.hi.{kind} %z, %a, %b, %c;"
    expected = exact(lambda x, y, z: high(x, y) + z, dtype, a, b, c)
    assert np.array_equal(apply(code, a, b, c, result=dtype), expected)
    code = f"mad.lo.{kind} %z, %a, %b, %c;"
    expected = exact(lambda x, y, z: x * y + z, dtype, a, b, c)
    assert np.array_equal(apply(code, a, b, c, result=dtype), expected)
    if bits < 64:
        wide = np.dtype(f"{dtype.kind}{dtype.itemsize * 2}")
        d = whole(wide, 4)
        assert np.array_equal(apply(f"mul.wide.{kind} %z, %a, %b;", a, b, result=wide), exact(operator.mul, wide, a, b))
        expected = exact(lambda x, y, z: x * y + z, wide, a, b, d)
        assert np.array_equal(apply(f"mad.wide.{kind} %z, %a, %b, %c;", a, b, d, result=wide), expected)


@pytest.mark.parametrize("kind", ["u16", "u32", "u64", "s16", "s32", "s64"])
def test_shifts(kind):
    dtype, bits = dtype_of(kind), int(kind[1:])
    a, count = whole(dtype, 1), whole(np.uint32, 2)
    count[::2] %= 70
    a = a[: len(count)]
    code = f"shl.b{bits} %z, %a, %b;"
    assert np.array_equal(apply(code, a, count, result=dtype), exact(shift_left(bits), dtype, a, count))
    code = f"shr.{kind} %z, %a, %b;"
    assert np.array_equal(apply(code, a, count, result=dtype), exact(shift_right(bits), dtype, a, count))


def field(bits, is_signed):
    def extract(a, place, length):
        place, length, a = place & 255, length & 255, a % (1 << bits)
        value = a >> place & (1 << length) - 1
        last = min(place + length - 1, bits - 1)
        if is_signed and length and a >> last & 1:
            value |= -1 << min(length, max(bits - place, 0))
        return value

    return extract


def insert(bits):
    def function(a, b, place, length):
        place, length = place & 255, length & 255
        mask = (1 << length) - 1 << place
        return b & ~mask | a << place & mask

    return function


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields_and_counts(kind):
    dtype, bits = dtype_of(kind), int(kind[1:])
    a, b = whole(dtype, 1), whole(dtype, 2)
    place, length = whole(np.uint32, 3)[: len(a)] % 80, whole(np.uint32, 4)[: len(a)] % 80
    found = apply(f"bfe.{kind} %z, %a, %b, %c;", a, place, length, result=dtype)
    assert np.array_equal(found, exact(field(bits, kind[0] == "s"), dtype, a, place, length))
    found = apply(f"bfi.b{bits} %z, %a, %b, %c, %d;", a, b, place, length, result=dtype)
    assert np.array_equal(found, exact(insert(bits), dtype, a, b, place, length))
    unsigned = a.view(f"u{bits // 8}")
    text = [format(int(x), f"0{bits}b") for x in unsigned]
    counts = {
        f"popc.b{bits}": [x.count("1") for x in text],
        f"clz.b{bits}": [len(x) - len(x.lstrip("0")) for x in text],
    }
    for code, expected in counts.items():
        assert apply(f"{code} %z, %a;", a, result=np.uint32).tolist() == expected
    assert apply(f"brev.b{bits} %z, %a;", unsigned, result=unsigned.dtype).tolist() == [int(x[::-1], 2) for x in text]
    flipped = [~int(x) if x < 0 else int(x) for x in a]
    expected = [x.bit_length() - 1 for x in flipped]
    assert apply(f"bfind.{kind} %z, %a;", a, result=np.int32).tolist() == expected


def test_small_operations():
    a, b, c = (whole(np.uint32, seed) for seed in (1, 2, 3))
    for table in (0x96, 0xE8, 0xCA, 0x01):
        function = lambda x, y, z, table=table: sum(
            (table >> (4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1)) & 1) << i for i in range(32)
        )
        found = apply(f"lop3.b32 %z, %a, %b, %c, {table};", a, b, c, result=np.uint32)
        assert np.array_equal(found, exact(function, np.uint32, a, b, c))

    def permute(x, y, choices):
        both = (y << 32 | x).to_bytes(8, "little")
        picks = [choices >> 4 * i & 15 for i in range(4)]
        chosen = [(255 if both[p & 7] & 128 else 0) if p & 8 else both[p & 7] for p in picks]
        return int.from_bytes(bytes(chosen), "little")

    found = apply("prmt.b32 %z, %a, %b, %c;", a, b, c, result=np.uint32)
    assert np.array_equal(found, exact(permute, np.uint32, a, b, c))
    funnel = lambda x, y, n: (y << 32 | x) << (n & 31) >> 32
    found = apply("shf.l.wrap.b32 %z, %a, %b, %c;", a, b, c, result=np.uint32)
    assert np.array_equal(found, exact(funnel, np.uint32, a, b, c))
    funnel = lambda x, y, n: (y << 32 | x) >> min(n, 32)
    found = apply("shf.r.clamp.b32 %z, %a, %b, %c;", a, b, c, result=np.uint32)
    assert np.array_equal(found, exact(funnel, np.uint32, a, b, c))
    found = apply("sad.s32 %z, %a, %b, %c;", a.view("i4"), b.view("i4"), c, result=np.uint32)
    assert np.array_equal(found, exact(lambda x, y, z: abs(x - y) + z, np.uint32, a.view("i4"), b.view("i4"), c))
    assert np.array_equal(apply("cnot.b32 %z, %a;", a, result=np.uint32), (a == 0).astype("u4"))
    assert np.array_equal(apply("not.b32 %z, %a;", a, result=np.uint32), ~a)
    assert np.array_equal(apply("neg.s32 %z, %a;", a, result=np.uint32), -a)
    assert np.array_equal(apply("abs.s32 %z, %a;", a.view("i4"), result=np.int32), np.abs(a.view("i4")))
    low = lambda x: (x & 0xFFFFFF ^ 0x800000) - 0x800000
    expected = exact(lambda x, y: low(x) * low(y) >> 16, np.int32, a, b)
    assert np.array_equal(apply("mul24.hi.s32 %z, %a, %b;", a, b, result=np.int32), expected)


def test_carries_make_sums_and_products_of_128_bits():
    a, b, c = (whole(np.uint64, seed) for seed in (1, 2, 3))
    split = lambda name: f"mov.b64 {{%{name}0, %{name}1}}, %{name};"
    declare = ".reg .u32 %a0, %a1, %b0, %b1, %c0, %c1, %x0, %x1, %x2, %x3;"
    head = declare + split("a") + split("b") + split("c")
    add = head + "add.cc.u32 %x0, %a0, %b0; addc.u32 %x1, %a1, %b1; mov.b64 %z, {%x0, %x1};"
    assert np.array_equal(apply(add, a, b, c, result=np.uint64), a + b)
    subtract = head + "sub.cc.u32 %x0, %a0, %b0; subc.u32 %x1, %a1, %b1; mov.b64 %z, {%x0, %x1};"
    assert np.array_equal(apply(subtract, a, b, c, result=np.uint64), a - b)
    code = (
        head
        + """
        mul.lo.u32 %x0, %a0, %b0; mul.hi.u32 %x1, %a0, %b0;
        mad.lo.cc.u32 %x1, %a0, %b1, %x1; madc.hi.u32 %x2, %a0, %b1, 0;
        mad.lo.cc.u32 %x1, %a1, %b0, %x1; madc.hi.cc.u32 %x2, %a1, %b0, %x2; madc.hi.u32 %x3, %a1, %b1, 0;
        mad.lo.cc.u32 %x2, %a1, %b1, %x2; addc.u32 %x3, %x3, 0;
        mov.b64 %z, {%x2, %x3};"""
    )
    assert np.array_equal(
        apply(code, a, b, c, result=np.uint64), exact(lambda x, y, z: x * y >> 64, np.uint64, a, b, c)
    )


# ---- floats ------------------------------------------------------------------------------------------------------


def same(found, expected):
    """Equal bits, or NaN in both."""
    bits = f"u{found.itemsize}"
    nan = np.isnan(found) & np.isnan(expected)
    return np.array_equal(np.where(nan, 0, found.view(bits)), np.where(nan, 0, expected.astype(found.dtype).view(bits)))


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "min", "max"])
def test_floats(kind, name):
    dtype = dtype_of(kind)
    a, b = floats(dtype, 1), floats(dtype, 2)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.fmin, "max": np.fmax}[name]
    with np.errstate(all="ignore"):
        expected = function(a, b)
    zeros = (a == 0) & (b == 0) & (name in ("min", "max"))
    found = apply(f"{name}.{kind} %z, %a, %b;", a, b, result=dtype)
    assert same(np.where(zeros, 0, found).astype(dtype), np.where(zeros, 0, expected).astype(dtype))
    if name in ("min", "max"):
        negative = (np.signbit(a) | np.signbit(b)) if name == "min" else (np.signbit(a) & np.signbit(b))
        assert np.array_equal(np.signbit(found[zeros]), negative[zeros])


@pytest.mark.parametrize("kind, routine", [("f32", LIBM.fmaf), ("f64", LIBM.fma)])
def test_fused_multiply_add(kind, routine):
    dtype = dtype_of(kind)
    c_type = {"f32": ctypes.c_float, "f64": ctypes.c_double}[kind]
    routine.restype, routine.argtypes = c_type, [c_type] * 3
    a, b, c = (floats(dtype, seed, 800) for seed in (1, 2, 3))
    with np.errstate(all="ignore"):
        c[::3] = -(a * b)[::3]  # only the rounding error of the product is left
    expected = np.array([routine(*(float(x) for x in row)) for row in zip(a, b, c, strict=True)], dtype)
    assert same(apply(f"fma.rn.{kind} %z, %a, %b, %c;", a, b, c, result=dtype), expected)


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
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(300).astype(np.float32) for _ in range(3))
    x, y, z = ([Fraction(float(v)) for v in array] for array in (a, b, c))
    rows = list(zip(x, y, z, strict=True))
    for code, exact_results in (
        (f"add.{mode}.f32 %z, %a, %b;", [x + y for x, y, _ in rows]),
        (f"mul.{mode}.f32 %z, %a, %b;", [x * y for x, y, _ in rows]),
        (f"div.{mode}.f32 %z, %a, %b;", [x / y for x, y, _ in rows]),
        (f"fma.{mode}.f32 %z, %a, %b, %c;", [x * y + z for x, y, z in rows]),
    ):
        expected = np.array([directed(value, mode) for value in exact_results])
        assert np.array_equal(apply(code, a, b, c, result=np.float32), expected), code
