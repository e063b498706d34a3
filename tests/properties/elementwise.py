"""Rules of the ops that work element by element."""

import math

import numpy as np

from .draws import Rule, Value, call

ALL = "int64", "int32", "int16", "int8", "uint8", "bool"
erf = np.vectorize(math.erf, otypes=[float])


def _operand(draws, shape, kind, kinds):
    """Floating elements, mostly, or integers of one of these types."""
    if kinds and draws.chance(25):
        return draws.whole(shape, 0, 2 if kinds == ("bool",) else 5, kinds)
    return draws.real(shape, kind)


def _special(draws, value):
    """Now and then NaN, infinities and -0 among the floating elements, where no derivative is asked for."""
    if not value.floating or not value.array.size or not draws.chance(12):
        return value, True
    array = value.array.copy()
    places = draws.rng.integers(0, array.size, 3)
    array.flat[places] = draws.rng.choice([np.nan, np.inf, -np.inf, -0.0], 3)
    return Value(array), False


def _unary(name, reference, kind="normal", kinds=ALL, out="float", repeats=True, draw=None):
    def drawn(draws):
        value, smooth = _special(draws, _operand(draws, draws.shape(), kind, kinds))
        return call(value, smooth=smooth, **(draw(draws) if draw else {}))

    return Rule(name, drawn, reference, out, repeats=repeats)


def _pair(draws, kind, kinds, other=None):
    """Two operands whose shapes broadcast; one may be a Python number."""
    shape = draws.shape()
    first, smooth = _special(draws, _operand(draws, shape, kind, kinds))
    if first.floating and draws.chance(20):
        return first, draws.number(1, 3), smooth
    second = _operand(draws, draws.alike(shape), other or kind, kinds)
    if first.floating is not second.floating:  # mixed types have tests of their own
        second = Value(second.array.astype(first.array.dtype), first.floating, first.floating)
    elif not first.floating:
        second = Value(second.array.astype(first.array.dtype), False, False)
    return (second, first, smooth) if draws.chance(20) else (first, second, smooth)


def _binary(name, reference, kind="normal", kinds=("int64", "int32", "uint8"), out="same", other=None, draw=None):
    def drawn(draws):
        first, second, smooth = _pair(draws, kind, kinds, other)
        return call(first, second, smooth=smooth, **(draw(draws) if draw else {}))

    return Rule(name, drawn, reference, out, repeats=kind != "away")


def _sigmoid(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def _softplus(x, beta=1, threshold=20):
    return np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta)


def _elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


FUNCTIONS = [
    *(_unary(name, getattr(np, name)) for name in ("exp", "expm1", "sin", "cos", "tanh")),
    *(_unary(name, getattr(np, name), "positive") for name in ("log", "log1p", "sqrt")),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), "positive"),
    _unary("reciprocal", lambda x: 1 / x, "away"),
    _unary("sigmoid", _sigmoid),
    _unary("erf", erf),
    _unary("abs", np.abs, "away", ("int64", "int8"), "same"),
    _unary("neg", np.negative, kinds=("int64", "int8"), out="same"),
    _unary("square", np.square, kinds=("int64", "int32"), out="same"),
    _unary(
        "sign", lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)).astype(x.dtype), "away", ("int64", "int8"), "same"
    ),
    *(_unary(name, getattr(np, name), out="bool") for name in ("isnan", "isinf", "isfinite", "logical_not")),
]
ACTIVATIONS = [
    _unary("relu", lambda x: np.maximum(x, 0), "away", (), "same"),
    _unary("relu6", lambda x: np.clip(x, 0, 6), "away", (), "same"),
    _unary(
        "hardtanh",
        lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val),
        "away",
        (),
        draw=lambda draws: {"min_val": draws.number(-3, 0) - 0.03, "max_val": draws.number(0, 3) + 0.03},
    ),
    _unary(
        "leaky_relu",
        lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
        "away",
        (),
        draw=lambda draws: {"negative_slope": draws.number(-1, 2)} if draws.flag() else {},
    ),
    _unary("elu", _elu, "away", (), draw=lambda draws: {"alpha": draws.number(-2, 3)} if draws.flag() else {}),
    _unary("silu", lambda x: x * _sigmoid(x), kinds=()),
    _unary("gelu", _gelu, kinds=(), draw=lambda draws: {"approximate": draws.choice("none", "tanh")}),
    _unary("logsigmoid", lambda x: -np.logaddexp(0, -x), kinds=()),
    _unary("softplus", _softplus, kinds=(), draw=lambda draws: {"beta": draws.choice(0.5, 1, 2)}),
]


def _divided(x, y, rounding_mode=None):
    quotient = x / y
    return {None: quotient, "floor": np.floor_divide(x, y), "trunc": np.trunc(quotient)}[rounding_mode]


def _div(draws):
    shape = draws.shape()
    mode = draws.choice(None, None, None, "floor", "trunc")
    first, second = draws.real(shape), draws.real(draws.alike(shape), "away")
    return call(first, second, rounding_mode=mode, smooth=mode is None)


def _pow(draws):
    shape = draws.shape()
    if draws.flag():
        return call(draws.real(shape, "positive"), draws.real(draws.alike(shape)))
    return call(draws.real(shape, "away"), draws.choice(0, 1, 2, 3, -1, 2.0))


def _remainder(draws):
    shape = draws.shape()
    if draws.chance(30):
        return call(draws.whole(shape, -9, 9, ("int64",)), draws.whole(draws.alike(shape), 1, 5, ("int64",)))
    return call(draws.real(shape), draws.real(draws.alike(shape), "positive"), smooth=False)


ARITHMETIC = [
    _binary("add", np.add),
    _binary("sub", np.subtract, kinds=("int64", "int32")),
    _binary("mul", np.multiply),
    Rule("div", _div, _divided, floats=("float64", "float32"), repeats=False),
    Rule("pow", _pow, lambda x, y: np.power(x, y), floats=("float64", "float32"), repeats=False),
    Rule("remainder", _remainder, np.remainder, floats=("float64",)),
    _binary("maximum", np.maximum, "away"),
    _binary("minimum", np.minimum, "away"),
]
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor")},
}


def _bits(name):
    def drawn(draws):
        shape, kinds = draws.shape(), (draws.choice("int64", "int32", "uint8", "bool"),)
        high = 2 if kinds == ("bool",) else 100
        return call(draws.whole(shape, 0, high, kinds), draws.whole(draws.alike(shape), 0, high, kinds))

    return Rule(name, drawn, getattr(np, name))


def _bitwise_not(draws):
    kinds = (draws.choice("int64", "int32", "uint8", "bool"),)
    return call(draws.whole(draws.shape(), 0, 2 if kinds == ("bool",) else 100, kinds))


def _compared(name, function):
    def drawn(draws):
        shape = draws.shape()
        first = draws.real(shape, "ties") if draws.flag() else draws.whole(shape)
        second = draws.real(draws.alike(shape), "ties") if draws.flag() else draws.whole(draws.alike(shape))
        return call(first, second)

    return Rule(name, drawn, function, "bool")


def _clamp(draws):
    shape = draws.shape()
    x = draws.real(shape, "away")
    limits = [draws.number(-3, 0) - 0.03, draws.number(0, 3) + 0.03]
    kept = draws.choice((0, 1), (0,), (1,))
    if draws.chance(30):  # limits that lie between the elements
        limits = [Value(np.asarray(limit + 0.125 * draws.rng.integers(-2, 3, draws.alike(shape)))) for limit in limits]
    return call(x, **{("min", "max")[i]: limits[i] for i in kept})


def _clamped(x, min=-np.inf, max=np.inf):
    return np.minimum(np.maximum(x, min), max)


def _where(draws):
    shape = draws.shape()
    if draws.chance(15):
        return call(draws.flags(shape))
    return call(draws.flags(draws.alike(shape)), draws.real(shape), draws.real(draws.alike(shape)))


def _chosen(condition, x=None, y=None):
    return np.nonzero(np.atleast_1d(condition)) if x is None else np.where(condition, x, y)


def _masked_fill(draws):
    shape = draws.shape()
    return call(draws.real(shape), draws.flags(draws.alike(shape)), draws.number(-3, 3))


CHOICES = [
    *(_compared(*entry) for entry in COMPARISONS.items()),
    *(_bits(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    Rule("bitwise_not", _bitwise_not, np.invert),
    Rule("clamp", _clamp, _clamped, repeats=False, floats=("float64", "float32")),
    Rule("where", _where, _chosen),
    Rule("masked_fill", _masked_fill, lambda x, mask, value: np.where(mask, value, x)),
]

RULES = [*FUNCTIONS, *ACTIVATIONS, *ARITHMETIC, *CHOICES]
