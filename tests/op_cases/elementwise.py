"""Rows of the elementwise ops."""

import numpy as np

from . import Op, away, classes, flags, positive, real, refusal, sample, ties

PAIRS = (
    (real(3, 4), real(3, 4)),
    (real(3, 4), real(4)),
    (real(2, 1, 4), real(3, 1)),
    (real(), real(2, 3)),
    (real(0, 3), real(3)),
    (real(3, 4), 2.5),
    (-1.5, real(3, 4)),
    (real(2, 3, 4, 5), real(1, 3, 1, 1)),
    (real(5, 1000), real(5, 1000)),
)
SHAPES = ((3, 4), (), (0, 3), (1,), (2, 3, 4, 5), (5, 1000))


def _binary(name, pairs, **options):
    samples = tuple(sample(x, y) for x, y in pairs)
    refusals = (
        refusal(ValueError, "do not broadcast", real(2, 3), real(4)),
        refusal(ValueError, "do not broadcast", real(5, 1000), real(4)),
        refusal(TypeError, "got a str", real(2, 3), "2"),
        refusal(TypeError, "got a list", real(2, 3), [1.0, 2.0, 3.0]),
        refusal(TypeError, f"{name}: got elements complex128", real(2, 3), np.ones(3, complex)),
        refusal(TypeError, f"{name}: got elements <U1", real(2, 3), np.array("a")),
        refusal(ValueError, f"{name}: a number does not fit in float64", real(2, 3), 10**400),
    )
    return Op(name, samples, refusals, **options)


def _unary(name, kind=real, extra=(), refusals=(), **options):
    samples = tuple(sample(kind(*shape)) for shape in SHAPES) + tuple(extra)
    return Op(name, samples, (refusal(TypeError, f"{name}: got a str", "x"), *refusals), **options)


def _no_bools(name):
    return (refusal(TypeError, f"{name}: not defined for elements bool", flags(3)),)


def _comparison(name):
    samples = (
        sample(ties(3, 4), ties(4)),
        sample(ties(3, 4), 0.0),
        sample(ties(5, 1000), ties(5, 1)),
        sample(ties(0), 1),
    )
    refusals = (
        refusal(ValueError, f"{name}: shapes", real(2), real(3)),
        refusal(TypeError, "got a str", real(2), "a"),
    )
    return Op(name, samples, refusals, differentiable=False, torch=lambda torch: _scalar_first(torch, name))


def _scalar_first(torch, name):
    """torch's functions want a tensor first."""

    def call(x, *rest):
        first = x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=rest[0].dtype)
        return getattr(torch, name)(first, *rest)

    return call


def _named(name):
    return lambda torch: _scalar_first(torch, name)


_TIED = (
    sample(ties(4, 5), ties(4, 5), smooth=False),
    sample(away(4, 5), real(5)),
    sample(away(3, 4), real(1, 4)),
)
_EXTREME = _TIED + (
    sample(real(5, 1000), real(1000)),
    sample(away(2, 3), 0.0, smooth=True),
    sample(real(0, 3), real(3)),
)

OPS = [
    _binary("add", PAIRS, torch=_named("add"), linear=(0, 1)),
    _binary("sub", PAIRS, torch=_named("sub"), linear=(0, 1)),
    _binary("mul", PAIRS, torch=_named("mul"), linear=(0, 1)),
    _binary(
        "div",
        tuple((x, positive(*y.shape) if hasattr(y, "shape") else y) for x, y in PAIRS),
        torch=_named("div"),
        linear=(0,),
    ),
    Op(
        "pow",
        (
            sample(positive(3, 4), 3),
            sample(real(3, 4), 2),
            sample(real(3, 4), 1),
            sample(real(3, 4), 0),
            sample(positive(3, 4), -1.5),
            sample(positive(3, 4), real(3, 4)),
            sample(positive(3, 1), real(4)),
            sample(2.5, real(3, 4)),
            sample(positive(), real(2)),
            sample(positive(0, 2), 2.0),
            sample(ties(3, 4), 2.0, smooth=False),
            sample(ties(3, 4), 1.0),
        ),
        (
            refusal(ValueError, "do not broadcast", positive(2, 3), real(4)),
            refusal(TypeError, "got a str", real(2), "2"),
            refusal(TypeError, "pow: not defined for elements int64", classes(3, 2), -1),
        ),
        torch=lambda torch: torch.pow,
    ),
    _unary("neg", refusals=_no_bools("neg"), linear=(0,)),
    _unary("exp"),
    _unary("log", positive),
    _unary("sqrt", positive),
    _unary("tanh", extra=(sample(away(40)),)),
    _unary("sigmoid", extra=(sample(away(40)),)),
    _unary("abs", away, extra=(sample(ties(9), smooth=False),)),
    _unary("sign", away, (sample(ties(9), smooth=False),), _no_bools("sign")),
    _unary("square"),
    _unary("relu", away, extra=(sample(ties(9), smooth=False), sample(away(3, 5, 7, 11)))),
    Op(
        "maximum",
        _EXTREME,
        (
            refusal(ValueError, "maximum: shapes", real(2), real(3)),
            refusal(TypeError, "got a str", real(2), "a"),
        ),
        torch=lambda torch: lambda x, y: torch.maximum(x, torch.as_tensor(y, dtype=x.dtype)),
    ),
    Op(
        "minimum",
        _EXTREME,
        (
            refusal(ValueError, "minimum: shapes", real(2), real(3)),
            refusal(TypeError, "got a str", real(2), "a"),
        ),
        torch=lambda torch: lambda x, y: torch.minimum(x, torch.as_tensor(y, dtype=x.dtype)),
    ),
    Op(
        "where",
        (
            sample(flags(3, 4), real(3, 4), real(3, 4)),
            sample(flags(3, 1), real(4), real(3, 4)),
            sample(flags(4), real(3, 4), 1.5),
            sample(flags(3), 0.0, real(2, 3)),
            sample(flags(0), real(0), real(0)),
            sample(flags(4, 5000), real(4, 5000), real(5000)),
        ),
        (
            refusal(TypeError, "where: condition", real(3), real(3), real(3)),
            refusal(ValueError, "where: shapes", flags(3), real(3), real(4)),
            refusal(TypeError, "where: got a str", flags(3), real(3), "a"),
        ),
        torch=lambda torch: torch.where,
        linear=(1, 2),
    ),
    Op(
        "clamp",
        (
            sample(away(3, 4), -0.31, 0.31),
            sample(away(3, 4), min=-0.11),
            sample(away(3, 4), max=0.21),
            sample(away(3, 4), 0.5, -0.5),
            sample(ties(20), -1.0, 1.0, smooth=False),
            sample(ties(20), 0.0, smooth=False),
            sample(away(3, 4), real(3, 4), positive(3, 4)),
            sample(away(3, 4), real(4), real(4)),
            sample(away(3, 4), max=real(3, 4)),
            sample(real(0, 2), -1.0, 1.0),
            sample(ties(50), ties(50), ties(50), smooth=False),
            sample(ties(50), min=ties(50), smooth=False),
            sample(ties(50), max=ties(50), smooth=False),
        ),
        (
            refusal(ValueError, "clamp: min and max are both None", real(3)),
            refusal(TypeError, "got a str", real(3), "0"),
            refusal(ValueError, "clamp: shapes", real(3), real(2)),
        ),
        torch=lambda torch: torch.clamp,
    ),
    *(_comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    Op("isnan", (sample(real(3, 4)), sample(real(0))), differentiable=False, torch=lambda torch: torch.isnan),
    Op(
        "isfinite",
        (sample(real(3, 4)), sample(real(0))),
        differentiable=False,
        torch=lambda torch: torch.isfinite,
    ),
    Op(
        "logical_not",
        (sample(flags(3, 4)), sample(ties(3, 4))),
        differentiable=False,
        torch=lambda torch: torch.logical_not,
    ),
    Op(
        "to",
        (sample(real(3, 4), "float64"), sample(real(2, 3, 4, 5), "float64"), sample(real(2), "cpu")),
        (
            refusal(TypeError, "element type", real(2), "complex64"),
            refusal(TypeError, "dtype", real(2), "no such type"),
            refusal(TypeError, "dtype", real(2), None),
            refusal(RuntimeError, "devices of this machine", real(2), "cuda:77"),
        ),
        torch=lambda torch: lambda x, target: x.to({"float64": torch.float64}.get(target, target)),
        views=True,
    ),
]
