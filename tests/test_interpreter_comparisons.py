"""Comparisons, choices, conversions, moves and approximate functions of PTX against NumPy."""

import numpy as np
import pytest

from .ptx import apply
from .test_interpreter_instructions import dtype_of, floats, same, whole

COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
SET = "selp.u32 %z, 1, 0, %p1;"


def truth(code, *inputs):
    return apply(code + SET, *inputs, result=np.uint32).astype(bool)


def pairs(kind):
    """Two arrays, equal in places."""
    make = floats if kind[0] == "f" else whole
    a, b = make(dtype_of(kind), 1), make(dtype_of(kind), 2)
    b[::5] = a[::5]
    return a, b


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_setp_of_integers(kind):
    a, b = pairs(kind)
    for name, test in COMPARE.items():
        assert np.array_equal(truth(f"setp.{name}.{kind} %p1, %a, %b;", a, b), test(a, b))
    if kind[0] == "u":
        for name, test in (("lo", np.less), ("ls", np.less_equal), ("hi", np.greater), ("hs", np.greater_equal)):
            assert np.array_equal(truth(f"setp.{name}.{kind} %p1, %a, %b;", a, b), test(a, b))


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_setp_of_floats(kind):
    """eq, ne, lt ... are false where one is NaN, equ, neu, ltu ... are true there."""
    a, b = pairs(kind)
    nan = np.isnan(a) | np.isnan(b)
    for name, test in COMPARE.items():
        assert np.array_equal(truth(f"setp.{name}.{kind} %p1, %a, %b;", a, b), test(a, b) & ~nan)
        assert np.array_equal(truth(f"setp.{name}u.{kind} %p1, %a, %b;", a, b), test(a, b) | nan)
    assert np.array_equal(truth(f"setp.nan.{kind} %p1, %a, %b;", a, b), nan)
    assert np.array_equal(truth(f"setp.num.{kind} %p1, %a, %b;", a, b), ~nan)


def test_setp_combines_and_gives_a_second_predicate():
    a, b = pairs("s32")
    c = whole(np.int32, 3)
    head = "setp.gt.s32 %p2, %c, 0;"
    positive, less = c > 0, a < b
    for name, combine in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        code = head + f"setp.lt.{name}.s32 %p1|%p3, %a, %b, %p2;"
        assert np.array_equal(truth(code, a, b, c), combine(less, positive))
        code = head + f"setp.lt.{name}.s32 %p3|%p1, %a, %b, %p2;"
        assert np.array_equal(truth(code, a, b, c), combine(~less, positive))
        code = head + f"setp.lt.{name}.s32 %p1, %a, %b, !%p2;"
        assert np.array_equal(truth(code, a, b, c), combine(less, ~positive))
    code = head + "setp.lt.s32 %p1, %a, %b; not.pred %p1, %p1; and.pred %p1, %p1, %p2;"
    assert np.array_equal(truth(code, a, b, c), ~less & positive)


def test_set_slct_selp():
    a, b = pairs("f32")
    expected = np.where(a < b, np.uint32(0xFFFFFFFF), np.uint32(0))
    assert np.array_equal(apply("set.lt.u32.f32 %z, %a, %b;", a, b, result=np.uint32), expected)
    assert np.array_equal(apply("set.lt.f32.f32 %z, %a, %b;", a, b, result=np.float32), (a < b).astype("f4"))
    c = whole(np.int32, 3)[: len(a)]
    a, b = a[: len(c)], b[: len(c)]
    assert same(apply("slct.f32.s32 %z, %a, %b, %c;", a, b, c, result=np.float32), np.where(c >= 0, a, b))
    assert same(apply("slct.f32.f32 %z, %a, %b, %b;", a, b, result=np.float32), np.where(b >= 0, a, b))
    assert same(apply("setp.ge.s32 %p1, %c, 0; selp.f32 %z, %a, %b, %p1;", a, b, c, result=np.float32),
                np.where(c >= 0, a, b))  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_classes_and_signs(kind):
    a, b = pairs(kind)
    limits = np.finfo(a.dtype)
    tests = {
        "finite": np.isfinite(a),
        "infinite": np.isinf(a),
        "number": ~np.isnan(a),
        "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & (np.abs(a) >= limits.smallest_normal),
        "subnormal": (a != 0) & (np.abs(a) < limits.smallest_normal),
    }
    for name, expected in tests.items():
        assert np.array_equal(truth(f"testp.{name}.{kind} %p1, %a;", a), expected)
    bits = f"u{a.itemsize}"
    found = apply(f"copysign.{kind} %z, %a, %b;", a, b, result=a.dtype)
    assert np.array_equal(found.view(bits), np.copysign(b, a).view(bits))
    assert np.array_equal(apply(f"neg.{kind} %z, %a;", a, result=a.dtype).view(bits), (-a).view(bits))
    assert np.array_equal(apply(f"abs.{kind} %z, %a;", a, result=a.dtype).view(bits), np.abs(a).view(bits))


def test_flushing_and_saturation():
    tiny = np.float32([1e-40, -1e-40, 1.5, -1.5, np.nan, np.inf, 0.25, 1e-30])
    one = np.ones_like(tiny)
    found = apply("mul.ftz.f32 %z, %a, %b;", tiny, one, result=np.float32)
    assert same(found, np.float32([0, -0.0, 1.5, -1.5, np.nan, np.inf, 0.25, 1e-30]))
    found = apply("add.sat.f32 %z, %a, 0f00000000;", tiny, result=np.float32)
    assert same(found, np.float32([1e-40, 0, 1, 0, 0, 1, 0.25, 1e-30]))
    assert truth("setp.eq.ftz.f32 %p1, %a, 0f00000000;", tiny).tolist() == [True] * 2 + [False] * 6
    smallest = apply("mul.ftz.f32 %z, %a, %b;", np.float32([1e-30]), np.float32([1e-10]), result=np.float32)
    assert smallest == 0
    assert same(apply("min.NaN.f32 %z, %a, %b;", tiny, one, result=np.float32), np.minimum(tiny, one))


FLOAT_TO_INTEGER = [("s32", "f32"), ("u32", "f32"), ("s64", "f32"), ("u8", "f32"), ("s16", "f32"), ("u64", "f64")]


@pytest.mark.parametrize("to, source", FLOAT_TO_INTEGER)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers_clamp(to, source, mode):
    x = floats(dtype_of(source))
    x = x[~np.isnan(x)]
    limits = np.iinfo(dtype_of(to))
    round_ = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    expected = [
        limits.max if v == np.inf else limits.min if v == -np.inf else min(max(int(round_(v)), limits.min), limits.max)
        for v in x
    ]
    found = apply(f"cvt.{mode}.{to}.{source} %z, %a;", x, result=dtype_of(to))
    assert [int(v) for v in found] == expected


@pytest.mark.parametrize("to, source", [("f32", "s32"), ("f32", "u64"), ("f64", "s64"), ("f64", "u32"), ("f16", "s16")])
def test_integers_to_floats(to, source):
    x = whole(dtype_of(source))
    assert np.array_equal(apply(f"cvt.rn.{to}.{source} %z, %a;", x, result=dtype_of(to)), x.astype(dtype_of(to)))


@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_to_integers(to, source):
    """Truncated or extended by the sign of the source; .sat clamps."""
    x = whole(dtype_of(source))
    assert np.array_equal(apply(f"cvt.{to}.{source} %z, %a;", x, result=dtype_of(to)), x.astype(dtype_of(to)))
    limits = np.iinfo(dtype_of(to))
    clamped = [min(max(int(v), limits.min), limits.max) for v in x]
    assert apply(f"cvt.sat.{to}.{source} %z, %a;", x, result=dtype_of(to)).tolist() == clamped


def test_floats_to_floats():
    x = floats(np.float64)
    with np.errstate(all="ignore"):
        assert same(apply("cvt.rn.f32.f64 %z, %a;", x, result=np.float32), x.astype("f4"))
        assert same(apply("cvt.rn.f16.f32 %z, %a;", x.astype("f4"), result=np.float16), x.astype("f4").astype("f2"))
    y = floats(np.float16)
    assert same(apply("cvt.f32.f16 %z, %a;", y, result=np.float32), y.astype("f4"))
    z = floats(np.float32)
    for mode, function in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        assert same(apply(f"cvt.{mode}.f32.f32 %z, %a;", z, result=np.float32), function(z))
    with np.errstate(invalid="ignore"):
        unit = np.nan_to_num(np.clip(z, 0, 1), nan=0.0)
    assert np.array_equal(apply("cvt.sat.f32.f32 %z, %a;", z, result=np.float32), unit)


def test_registers_are_taken_apart_and_put_together():
    x = whole(np.uint64)
    swap = ".reg .b32 %lo, %hi; mov.b64 {%lo, %hi}, %a; mov.b64 %z, {%hi, %lo};"
    assert np.array_equal(apply(swap, x, result=np.uint64), x << np.uint64(32) | x >> np.uint64(32))
    quarters = ".reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %z, {%h3, %h2, %h1, %h0};"
    expected = x.view("u2").reshape(-1, 4)[:, ::-1].copy().view("u8")[:, 0]
    assert np.array_equal(apply(quarters, x, result=np.uint64), expected)
    y = floats(np.float32)
    assert np.array_equal(apply("mov.b32 %z, %a;", y, result=np.uint32), y.view("u4"))
    upper = ".reg .b16 %h; mov.b32 {_, %h}, %a; cvt.u32.u16 %z, %h;"
    assert np.array_equal(apply(upper, y, result=np.uint32), y.view("u4") >> 16)


def test_pairs_of_half_floats():
    a, b, c = (floats(np.float16, seed).view(np.uint32) for seed in (1, 2, 3))
    halves = lambda x: x.view(np.float16)
    with np.errstate(all="ignore"):
        expected = halves(a) + halves(b)
        product = (halves(a).astype("f8") * halves(b).astype("f8") + halves(c).astype("f8")).astype("f2")
    assert same(halves(apply("add.f16x2 %z, %a, %b;", a, b, result=np.uint32)), expected)
    assert same(halves(apply("fma.rn.f16x2 %z, %a, %b, %c;", a, b, c, result=np.uint32)), product)
    x, y, z = (np.random.default_rng(seed).integers(-8, 9, 600).astype("f4") for seed in (1, 2, 3))
    short = lambda values: (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)  # exact in bfloat16
    found = apply("fma.rn.bf16x2 %z, %a, %b, %c;", short(x), short(y), short(z), result=np.uint32)
    assert np.array_equal(found, short(x * y + z))
    assert np.array_equal(apply("max.bf16x2 %z, %a, %b;", short(x), short(y), result=np.uint32), short(np.fmax(x, y)))
    sign = np.uint32(0x80008000)
    assert np.array_equal(apply("neg.f16x2 %z, %a;", a, result=np.uint32), a ^ sign)
    assert np.array_equal(apply("abs.bf16x2 %z, %a;", a, result=np.uint32), a & ~sign)


@pytest.mark.parametrize(
    "code, function",
    [
        ("ex2.approx.ftz.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("rcp.approx.ftz.f32", np.reciprocal),
        ("rcp.rn.f32", np.reciprocal),
        ("sqrt.rn.f32", np.sqrt),
        ("sqrt.approx.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
    ],
)
def test_functions(code, function):
    x = np.linspace(0.01, 20, 300, dtype=np.float32)
    found = apply(f"{code} %z, %a;", x, result=np.float32)
    assert np.array_equal(found, function(x.astype(np.float64)).astype(np.float32))
