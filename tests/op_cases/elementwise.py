"""Rows of the elementwise ops: arithmetic, functions of one argument, conversions."""

import numpy as np

from . import Draw, Op, away, classes, flags, given, positive, real, refusal, sample, ties

PAIRS = (
    (real(3, 4), real(3, 4)),
    (real(3, 4), real(4)),
    (real(2, 1, 4), real(3, 1)),
    (real(), real(2, 3)),
    (real(), real()),
    (real(0, 3), real(3)),
    (real(1), real(3, 1)),
    (real(3, 4), 2.5),
    (real(3, 4), 2),
    (-1.5, real(3, 4)),
    (3, real(4)),
    (real(2, 3, 4, 5), real(1, 3, 1, 1)),
    (real(5, 1000), real(5, 1000)),
)
WHOLE = (
    (real(3, 4), classes(5, 4)),
    (classes(5, 3, 1), real(4)),
    (classes(5, 3), classes(5, 2, 1)),
    (classes(5, 3), 2),
    (1.5, classes(5, 3)),
    (real(), classes(5, 3)),
    (classes(5), real(3)),
    (classes(5, 0), real(2, 1)),
)
SHAPES = ((3, 4), (), (0, 3), (1,), (2, 1, 3), (2, 3, 4, 5), (5, 1000))


def pair(*args, **options):
    """A sample; without floating Draws it is not smooth."""
    floating = any(isinstance(one, Draw) and one.kind not in ("classes", "flags", "given") for one in args)
    return sample(*args, smooth=floating, **options)


def _binary(name, pairs, samples=(), refusals=(), **options):
    refused = (
        refusal(ValueError, f"{name}: shapes (2, 3) and (4,) do not broadcast", real(2, 3), real(4)),
        refusal(ValueError, "do not broadcast", real(5, 1000), real(4)),
        refusal(TypeError, f"{name}: got a str", real(2, 3), "2"),
        refusal(TypeError, f"{name}: got a list", real(2, 3), [1.0, 2.0, 3.0]),
        refusal(TypeError, f"{name}: got a NoneType", None, real(2)),
        refusal(TypeError, f"{name}: got elements complex128", real(2, 3), np.ones(3, complex)),
        refusal(TypeError, f"{name}: got elements <U1", real(2, 3), np.array("a")),
        refusal(ValueError, f"{name}: a number does not fit in float64", real(2, 3), 10**400),
    )
    return Op(name, (*(pair(*row) for row in pairs), *samples), (*refused, *refusals), **options)


def _unary(name, kind=real, samples=(), refusals=(), **options):
    drawn = (*(sample(kind(*shape)) for shape in SHAPES), *samples)
    if "linear" not in options:
        drawn += (pair(classes(5, 3)),)
    refused = (
        refusal(TypeError, f"{name}: got a str", "x"),
        refusal(TypeError, f"{name}: got a NoneType", None),
        refusal(TypeError, f"{name}: got a list", [1.0]),
        refusal(TypeError, f"{name}: got elements complex128", np.ones(3, complex)),
    )
    return Op(name, drawn, (*refused, *refusals), **options)


def _no_bools(name):
    return (refusal(TypeError, f"{name}: not defined for elements bool", flags(3)),)


def named(name):
    """torch's function, which wants a tensor first."""

    def counterpart(torch):
        def call(x, *rest, **options):
            first = x if isinstance(x, torch.Tensor) else torch.tensor(x)
            return getattr(torch, name)(first, *rest, **options)

        return call

    return counterpart


def _whole(name, *refusals):
    """add or sub with integers, which have no gradients."""
    samples = (*(pair(*row) for row in WHOLE),)
    refused = (refusal(ValueError, f"{name}: shapes", real(2), real(3)),)
    return Op(name, samples, (*refused, *refusals), torch=named(name))


def _to(torch):
    def call(x, *rest, **options):
        types = {"float64": torch.float64, "float32": torch.float32, "int64": torch.int64, "bool": torch.bool}
        rest = [types.get(one, one) if isinstance(one, str) else one for one in rest]
        options = {key: types.get(one, one) if isinstance(one, str) else one for key, one in options.items()}
        return x.to(*rest, **options)

    return call


QUOTIENTS = (
    (away(3, 4), positive(4)),
    (away(2, 1, 4), away(3, 1)),
    (away(3, 4), 0.7),
    (-1.5, positive(3)),
    (away(), away(3)),
    (real(0, 3), positive(3)),
    (ties(40), ties(5, 1)),
    (classes(9, 3, 4), -2),
    (7, given(1, -2, 3)),
)
DIVISORS = (
    refusal(ValueError, "{}: other has a 0, by which integers cannot be divided", classes(5, 3), 0),
    refusal(ValueError, "{}: other has a 0, by which integers cannot be divided", 3, classes(1, 3)),
    refusal(TypeError, "{}: not defined for elements bool", flags(3), flags(3)),
)


def _divisors(name, **options):
    return tuple(refusal(row.error, row.message.format(name), *row.call.args, **options) for row in DIVISORS)


OPS = [
    _binary("add", PAIRS, (), torch=named("add"), linear=(0, 1)),
    _whole("add"),
    _binary("sub", PAIRS, (), torch=named("sub"), linear=(0, 1)),
    _whole(
        "sub",
        refusal(TypeError, "sub: not defined for elements bool", flags(3), flags(3)),
        refusal(TypeError, "sub: not defined for elements bool", real(3), flags(3)),
        refusal(TypeError, "sub: not defined for elements bool", True, real(3)),
    ),
    _binary("mul", PAIRS, torch=named("mul"), linear=(0, 1)),
    _binary("mul", (*WHOLE, (flags(4), flags(3, 4)), (flags(4), real(3, 4))), torch=named("mul")),
    _binary(
        "div",
        tuple((x, positive(*y.shape) if isinstance(y, Draw) else y) for x, y in PAIRS),
        (
            pair(classes(5, 3), 2),
            pair(classes(5, 3), given(-2, 1, 4)),
            *(sample(x, y, rounding_mode=mode, smooth=False) for x, y in QUOTIENTS for mode in ("floor", "trunc")),
        ),
        (
            refusal(ValueError, "div: rounding_mode is 3", real(2), real(2), rounding_mode=3),
            refusal(ValueError, "div: rounding_mode is 'round'", real(2), real(2), rounding_mode="round"),
            *_divisors("div", rounding_mode="floor"),
            *_divisors("div", rounding_mode="trunc"),
            refusal(ValueError, "div: shapes (2,) and (3,)", real(2), real(3), rounding_mode="trunc"),
            refusal(TypeError, "div: got a str", "a", real(3), rounding_mode="floor"),
        ),
        torch=named("div"),
    ),
    _binary(
        "remainder",
        QUOTIENTS[:1],
        tuple(sample(*row, smooth=False) for row in QUOTIENTS[1:]),
        _divisors("remainder"),
        torch=named("remainder"),
    ),
    Op(
        "pow",
        (
            sample(positive(3, 4), 3),
            sample(real(3, 4), 2),
            sample(real(3, 4), 1),
            sample(real(3, 4), 0),
            sample(away(3, 4), -2),
            sample(positive(3, 4), -1.5),
            sample(positive(3, 4), 0.5),
            sample(real(3, 4), 5.0),
            sample(away(3, 4), -1),
            sample(away(3, 4), -7),
            sample(ties(3, 4), 3, smooth=False),
            sample(real(3, 4), 9),
            sample(positive(3, 4), real(3, 4)),
            sample(positive(3, 1), real(4)),
            sample(2.5, real(3, 4)),
            sample(2, real(3, 4)),
            sample(1, real()),
            sample(positive(), real(2)),
            sample(positive(), real()),
            sample(positive(0, 2), 2.0),
            sample(positive(3), classes(4, 2, 1)),
            sample(classes(4, 3), positive(3)),
            pair(classes(4, 3), 3),
            pair(classes(4, 3), 0.5),
            sample(ties(3, 4), 2.0, smooth=False),
            sample(ties(3, 4), 1.0),
            sample(positive(5, 1000), real(1000)),
        ),
        (
            refusal(ValueError, "pow: shapes (2, 3) and (4,) do not broadcast", positive(2, 3), real(4)),
            refusal(TypeError, "pow: got a str", real(2), "2"),
            refusal(TypeError, "pow: got a list", [1.0], real(2)),
            refusal(TypeError, "pow: not defined for elements int64", classes(3, 2), -1),
            refusal(TypeError, "pow: not defined for elements bool", flags(3), flags(3)),
            refusal(ValueError, "pow: a number does not fit in float64", real(2), 10**400),
        ),
        torch=lambda torch: torch.pow,
    ),
    _unary("neg", samples=(sample(ties(9)), sample(ties(4, 1))), refusals=_no_bools("neg"), linear=(0,)),
    _unary("exp"),
    _unary("expm1", samples=(sample(away(40)),)),
    _unary("log", positive),
    _unary("log1p", positive, (sample(real(0)),)),
    _unary("sqrt", positive),
    _unary("rsqrt", positive),
    _unary("reciprocal", away),
    _unary("sin"),
    _unary("cos"),
    _unary("tanh", samples=(sample(away(40)),)),
    _unary("sigmoid", samples=(sample(away(40)), pair(flags(3)))),
    _unary("erf", samples=(sample(away(90)), pair(flags(3)))),
    _unary("abs", away, (sample(ties(9), smooth=False),), _no_bools("abs")),
    _unary("sign", away, (sample(ties(9), smooth=False), pair(flags(3)))),
    Op(
        "square",
        (*(sample(real(*shape)) for shape in SHAPES), pair(classes(5, 3)), pair(flags(3))),
        (
            refusal(TypeError, "square: input is a str, wanted a Tensor", "x"),
            refusal(TypeError, "square: input is a float, wanted a Tensor", 2.0),
            refusal(TypeError, "square: input is a ndarray, wanted a Tensor; wrap it", np.ones(2)),
        ),
    ),
    Op(
        "to",
        (
            sample(real(3, 4), "float64"),
            sample(real(2, 3, 4, 5), "float64"),
            sample(real(2), "cpu"),
            sample(real(2), "cpu", "float64"),
            sample(real(2), "cpu", "float64", True, True),
            sample(real(0, 3), device="cpu", copy=True),
            sample(real(3), None, "float64"),
            sample(real(3), non_blocking=True),
            sample(real(3), None),
            sample(real(3, 1), dtype="float64"),
            sample(real(3), real(2)),
            sample(away(3), "int64", smooth=False),
            sample(classes(3, 4), "bool", smooth=False),
            sample(classes(3, 4), dtype="float32", smooth=False),
            sample(flags(3, 4), "float64", smooth=False),
        ),
        (
            refusal(TypeError, "to: input is a ndarray", np.ones(2), "float64"),
            refusal(TypeError, "wanted an element type", real(2), "complex64"),
            refusal(TypeError, "to: dtype is 'no such type', wanted an element type", real(2), "no such type"),
            refusal(TypeError, "to: dtype is 'a', wanted an element type", real(2), "a"),
            refusal(TypeError, "to: dtype is 'float', wanted an element type", real(2), "float"),
            refusal(TypeError, "element type is object", real(2), dtype=dict),
            refusal(TypeError, "to: device is 'float64', wanted the name of a device", real(2), "float64", "float32"),
            refusal(RuntimeError, "device is 'cuda:77', but", real(2), "cuda:77"),
            refusal(RuntimeError, "device is 'cuda:78', but", real(2), device="cuda:78"),
        ),
        torch=_to,
        views=True,
    ),
]
