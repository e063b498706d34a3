"""Rows of the elementwise ops: arithmetic, functions of one argument, activations, choices, comparisons."""

import math

import numpy as np

from . import Draw, away, classes, flags, given, op, positive, real, refusal, sample, ties

INF, NAN = float("inf"), float("nan")

# ---- of two arguments ------------------------------------------------------------------------------------------------

PAIRS = (
    (real(2, 1, 4), real(3, 1)),
    (real(3, 4), real(4)),
    (real(), real(2, 3)),
    (real(0, 3), real(3)),
    (real(3, 4), 2.5),
    (-1, real(3, 4)),
    (real(40, 1000), real(1000)),
)
WHOLE = ((real(3, 4), classes(5, 4)), (classes(5, 3), classes(5, 2, 1)), (classes(5, 3), 2), (1.5, classes(5, 3)))


def _binary(name, pairs, *rows, reference=None):
    return op(
        name,
        *(sample(*pair) for pair in pairs),
        *rows,
        refusal(ValueError, f"{name}: shapes (2, 3) and (4,) do not broadcast", real(2, 3), real(4)),
        refusal(TypeError, f"{name}: got a list", real(2, 3), [1.0, 2.0, 3.0]),
        refusal(TypeError, f"{name}: got elements complex128", real(3), np.ones(3, complex)),
        reference=reference,
    )


def _no_bools(name, *rest):
    return refusal(TypeError, f"{name}: not defined for elements bool", flags(3), *rest)


QUOTIENTS = ((real(3, 4), 0.7), (-1.5, positive(3)), (classes(9, 3, 4), -2), (7, given(1, -2, 3)))
NO_DIVISOR = "other has a 0, by which integers cannot be divided"
TWO = [
    _binary("add", (*PAIRS, *WHOLE), reference=np.add),
    _binary("sub", (*PAIRS, *WHOLE), _no_bools("sub", flags(3)), reference=np.subtract),
    _binary("mul", (*PAIRS, *WHOLE, (flags(4), real(3, 4))), reference=np.multiply),
    _binary(
        "div",
        [(x, positive(*y.shape) if isinstance(y, Draw) else y) for x, y in PAIRS],
        sample(classes(5, 3), given(-2, 1, 4)),
        *(sample(x, y, rounding_mode=mode, smooth=False) for x, y in QUOTIENTS for mode in ("floor", "trunc")),
        refusal(ValueError, "div: rounding_mode is 'round'", real(2), real(2), rounding_mode="round"),
        refusal(ValueError, f"div: {NO_DIVISOR}", classes(5, 3), 0, rounding_mode="floor"),
    ),
    _binary(
        "remainder",
        [(real(2, 1, 4), positive(3, 1))],
        *(sample(*row, smooth=False) for row in QUOTIENTS),
        refusal(ValueError, f"remainder: {NO_DIVISOR}", classes(5, 3), 0),
        _no_bools("remainder", flags(3)),
        reference=np.remainder,
    ),
    _binary(
        "pow",
        [(positive(3, 1), real(4)), (positive(3), classes(4, 2, 1)), (positive(5, 1000), real(1000))],
        *(sample(away(3, 4), number) for number in (0, 1, 2, 3, -1, -2, 9)),
        *(sample(positive(3, 4), number) for number in (-1.5, 0.5, 2.0)),
        *(sample(classes(4, 3), number) for number in (3, 0.5)),
        *(sample(2.5, real(3, 4)), sample(positive(0, 2), 2.0), sample(ties(3, 4), 3)),
        refusal(TypeError, "pow: not defined for elements int64", classes(3, 2), -1),
        reference=np.power,
    ),
]

# ---- functions of one argument ---------------------------------------------------------------------------------------

SHAPES = ((), (0, 3), (5, 1000))


def _unary(name, reference=None, draw=real, *rows):
    """Beside NumPy's function of this name, where no other definition is given."""
    drawn = [sample(draw(3, 4)), sample(classes(5, 3)), *(sample(draw(*shape)) for shape in SHAPES)]
    kinks = [sample(ties(9), smooth=False)] if draw is away else []
    return op(name, *drawn, *kinks, *rows, reference=reference or getattr(np, name))


ONE = [
    _unary("neg", np.negative, real, _no_bools("neg")),
    *(_unary(name) for name in ("exp", "sin", "cos", "square")),
    *(_unary(name, None, real, sample(away(40))) for name in ("expm1", "tanh")),
    *(_unary(name, draw=positive) for name in ("log", "log10", "log1p", "log2", "sqrt")),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), positive),
    _unary("reciprocal", lambda x: 1 / x, positive),
    _unary("sigmoid", lambda x: 0.5 + 0.5 * np.tanh(0.5 * x), real, sample(away(400)), sample(flags(3))),
    _unary("erf", np.vectorize(math.erf, otypes=[float]), real, sample(away(90))),
    _unary("abs", None, away, _no_bools("abs")),
    _unary("sign", draw=away),
    op(
        "to",
        sample(real(2, 3), "float64"),
        sample(real(2), "cpu", "float64", True, True),
        sample(real(0, 3), device="cpu", copy=True, non_blocking=True, memory_format=None),
        sample(real(3), real(2)),
        sample(away(3), "int64", smooth=False),
        sample(flags(3, 4), dtype="float64"),
        refusal(TypeError, "to: got 'float', wanted an element type", real(2), "float"),
        refusal(TypeError, "to: device is 'float64', wanted the name of a device", real(2), "float64", "float32"),
        refusal(RuntimeError, "device is 'cuda:77', but", real(2), "cuda:77"),
        views=True,
    ),
]

# ---- activations -----------------------------------------------------------------------------------------------------


def _activation(name, *rows):
    return op(
        name,
        *(sample(away(*shape)) for shape in ((3, 4), *SHAPES)),
        sample(ties(9), smooth=False),
        *rows,
        refusal(TypeError, f"{name}: input has elements int64, wanted floating ones", classes(3, 2)),
    )


ACTIVATIONS = [  # defined as in PyTorch
    _activation("relu", sample(away(3), inplace=True)),
    _activation("relu6", sample(away(200), inplace=True)),
    _activation("leaky_relu", sample(away(3, 4), 0.3), sample(away(3, 4), negative_slope=-1, inplace=True)),
    _activation("elu", sample(away(3, 4), 0.3), sample(away(3, 4), alpha=-1.5, inplace=True)),
    _activation(
        "hardtanh",
        *(sample(away(90)), sample(away(90), -2.02, 3.03), sample(away(9), min_val=-0.33, max_val=0.22, inplace=True)),
        refusal(ValueError, "hardtanh: min_val is 2.0 and max_val 1.0, wanted min", real(3), 2, 1),
    ),
    _activation("logsigmoid", sample(away(900))),
    _activation("silu", sample(away(90), inplace=True)),
    _activation(
        "gelu",
        *(sample(away(90), approximate=how) for how in ("none", "tanh")),
        refusal(ValueError, "gelu: approximate is 'erf', wanted 'none'", real(3), approximate="erf"),
    ),
    _activation("softplus", sample(away(90), 2.03, 1.0), sample(away(90), beta=0.5, threshold=3)),
]

# ---- choices ---------------------------------------------------------------------------------------------------------


def _choice(name):
    return _binary(
        name,
        [(away(4, 5), real(5)), (real(), real(3)), (real(0, 3), real(3)), (real(5, 1000), real(1000))],
        *(sample(away(2, 3), 0.01), sample(classes(4, 9), classes(4, 2, 1)), sample(flags(4), flags(3, 1))),
        sample(ties(4, 5), ties(4, 5), smooth=False),
    )


CHOICES = [
    *map(_choice, ("maximum", "minimum")),
    op(
        "clamp",
        *(sample(away(3, 4), -0.31, 0.31), sample(away(3, 4), min=-0.11), sample(away(3, 4), max=0.21)),
        *(sample(away(3, 4), real(4), real(4)), sample(away(3, 4), max=real(3, 4)), sample(classes(9, 20), 2, 5)),
        sample(ties(50), ties(50), ties(50), smooth=False),
        refusal(ValueError, "clamp: min and max are both None", real(3)),
    ),
    op(
        "where",
        sample(flags(3, 1), real(4), real(3, 4)),
        sample(flags(4), real(3, 4), 1.5),
        sample(flags(4), input=classes(5, 3, 4), other=2),
        sample(flags(3), classes(5, 3), real(3)),
        *(sample(flags(3, 4), smooth=False), sample(ties(3, 2, 4), smooth=False)),
        refusal(TypeError, "where: condition has elements float64, wanted bool", real(3), real(3), real(3)),
        refusal(TypeError, "where: got a NoneType", flags(3), real(3)),
    ),
    op(
        "masked_fill",
        *(sample(real(3, 4), flags(4), -1), sample(real(4), flags(3, 4), real())),
        *(sample(real(3, 5000), mask=flags(5000), value=0.0), sample(classes(5, 3), flags(3), 7)),
        sample(real(3), flags(3), INF, smooth=False),
        refusal(TypeError, "masked_fill: mask has elements float64, wanted bool", real(3), real(3), 1.0),
        refusal(ValueError, "do not broadcast", real(3), flags(2), 1.0),
        refusal(TypeError, "value is 1.5, wanted a number that int64 can hold", classes(5, 3), flags(3), 1.5),
        reference=lambda x, mask, value: np.where(mask, value, x),
    ),
]

# ---- comparisons, logic, bits ----------------------------------------------------------------------------------------


def _plain(name, *pairs, reference=None):
    """An op without gradients."""
    return op(name, *(sample(*pair) for pair in pairs), reference=reference, differentiable=False)


TRUTHS = ((ties(3, 4), ties(4)), (ties(0), ties(1)), (flags(9), ties(9)), (classes(3, 9), classes(3, 9)))
NUMBERS = ((ties(3, 4), 0.0), (0, ties(4)), (classes(3, 9), 1.5), (ties(5, 1000), ties(5, 1)))
BITS = ((classes(8, 3, 4), classes(8, 4)), (flags(3, 4), flags(3, 1)), (classes(8, 3), 5), (given(-3, -1, 0, 5), -2))
COMPARED = dict(eq=np.equal, ne=np.not_equal, lt=np.less, le=np.less_equal, gt=np.greater, ge=np.greater_equal)
ASKED = [[one] for one in (given(NAN, INF, -INF, 0.0, -0.0, 1.0), real(3, 4), real(), real(0), classes(3, 4), flags(3))]
PLAIN = [
    *(_plain(name, *TRUTHS, *NUMBERS, reference=function) for name, function in COMPARED.items()),
    *(_plain(name, *TRUTHS, reference=getattr(np, name)) for name in ("logical_and", "logical_or", "logical_xor")),
    *(_plain(name, *ASKED, reference=getattr(np, name)) for name in ("isnan", "isfinite", "isinf", "logical_not")),
    *(_plain(name, *BITS, reference=getattr(np, name)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    _plain(
        "isclose",
        [ties(3, 4), ties(4)],
        [away(40), away(40), 0.05, 0.1],
        [given(NAN), given(NAN), 1e-5, 1e-8, True],
        reference=np.isclose,
    ),
    _plain("bitwise_not", [classes(8, 3, 4)], [flags(3, 4)], [given(-3, 0, 5)], [classes(8, 0)], reference=np.invert),
]

OPS = [*TWO, *ONE, *ACTIVATIONS, *CHOICES, *PLAIN]
