"""Rows of the elementwise choices, comparisons and logic."""

import numpy as np

from . import Op, away, classes, flags, given, positive, real, refusal, sample, ties
from .elementwise import named, pair

EXTREMES = (
    sample(ties(4, 5), ties(4, 5), smooth=False),
    sample(away(4, 5), real(5)),
    sample(away(3, 4), real(1, 4)),
    sample(real(), real(3)),
    sample(real(), real()),
    sample(real(5, 1000), real(1000)),
    sample(away(2, 3), 0.0),
    sample(0.0, away(2, 3)),
    sample(real(0, 3), real(3)),
    sample(real(1), real(2, 1)),
    pair(classes(4, 9), classes(4, 2, 1)),
    pair(real(3), classes(4, 3)),
    pair(flags(4), flags(3, 1)),
)
LIMITS = (
    sample(away(3, 4), -0.31, 0.31),
    sample(away(3, 4), min=-0.11),
    sample(away(3, 4), max=0.21),
    sample(away(3, 4), 0.5, -0.5),
    sample(away(3, 4), -1, 0.31),
    sample(away(), -1, 1),
    sample(ties(20), -1.0, 1.0, smooth=False),
    sample(ties(20), 0.0, smooth=False),
    sample(ties(20), max=0, smooth=False),
    sample(ties(20), 1, 0, smooth=False),
    sample(away(3, 4), real(3, 4), positive(3, 4)),
    sample(away(3, 4), real(4), real(4)),
    sample(away(3, 4), real(), 1.5),
    sample(away(3, 4), -0.5, real()),
    sample(away(4), real(3, 1)),
    sample(away(3, 4), max=real(3, 4)),
    sample(real(0, 2), -1.0, 1.0),
    sample(ties(50), ties(50), ties(50), smooth=False),
    sample(ties(50), min=ties(50), smooth=False),
    sample(ties(50), max=ties(50), smooth=False),
    pair(classes(9, 20), 2, 5),
    pair(classes(9, 20), 2.5, 5),
    pair(classes(9, 20), classes(5, 20), 7),
    pair(flags(4), 0, 1),
)


def _extreme(name):
    def counterpart(torch):
        def call(*operands):
            like = next(one for one in operands if isinstance(one, torch.Tensor))
            return getattr(torch, name)(
                *(torch.as_tensor(one, dtype=getattr(one, "dtype", like.dtype)) for one in operands)
            )

        return call

    refusals = (
        refusal(ValueError, f"{name}: shapes (2,) and (3,) do not broadcast", real(2), real(3)),
        refusal(TypeError, f"{name}: got a str", real(2), "a"),
        refusal(TypeError, f"{name}: got a NoneType", None, real(2)),
        refusal(TypeError, f"{name}: got a list", real(2), [1.0, 2.0]),
    )
    return Op(name, EXTREMES, refusals, torch=counterpart)


def _clamp(torch):
    """torch wants limits that are both Tensors or both numbers."""

    def call(x, min=None, max=None):
        if any(isinstance(limit, torch.Tensor) for limit in (min, max)):
            min, max = (
                None
                if limit is None
                else torch.as_tensor(limit, dtype=x.dtype)
                if isinstance(limit, int | float)
                else limit
                for limit in (min, max)
            )
        return torch.clamp(x, min, max)

    return call


def _logic(name, refusals=()):
    """Comparisons, and what gives truth for numbers of all types."""
    samples = (
        (ties(3, 4), ties(4)),
        (ties(3, 4), ties()),
        (ties(5, 1000), ties(5, 1)),
        (ties(0), ties(1)),
        (ties(), ties()),
        (flags(4), flags(3, 1)),
        (classes(3, 9), classes(3, 9)),
        (classes(2, 9), ties(9)),
        (flags(9), ties(9)),
    )
    return Op(
        name,
        tuple(sample(x, y, smooth=False) for x, y in samples),
        (
            refusal(ValueError, f"{name}: shapes", real(2), real(3)),
            refusal(TypeError, f"{name}: got a str", real(2), "a"),
            refusal(TypeError, f"{name}: got a NoneType", real(2), None),
            refusal(TypeError, f"{name}: got elements complex128", real(2), np.ones(2, complex)),
            *refusals,
        ),
        differentiable=False,
        torch=named(name),
    )


def _comparison(name):
    row = _logic(name)
    numbers = ((ties(3, 4), 0.0), (ties(3, 4), 1), (0, ties(4)), (classes(3, 9), 1.5), (flags(3), True))
    return Op(
        name,
        (*row.samples, *(sample(x, y, smooth=False) for x, y in numbers)),
        row.refusals,
        differentiable=False,
        torch=row.torch,
    )


def _test(name):
    """What is asked of single numbers."""
    drawn = (real(3, 4), real(), real(0), real(1), ties(9), classes(3, 4), flags(3), real(5, 1000))
    refusals = (
        refusal(TypeError, f"{name}: got a str", "x"),
        refusal(TypeError, f"{name}: got a NoneType", None),
        refusal(TypeError, f"{name}: got elements complex128", np.ones(2, complex)),
    )
    special = sample(given(np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0))
    return Op(name, (*map(sample, drawn), special), refusals, differentiable=False, torch=named(name))


def _bits(name):
    samples = (
        (classes(8, 3, 4), classes(8, 4)),
        (classes(8, 3), classes(8)),
        (classes(8), classes(8)),
        (classes(8, 0), classes(8, 1)),
        (flags(3, 4), flags(3, 1)),
        (flags(4), classes(8, 4)),
        (classes(8, 3), 5),
        (flags(3), True),
        (given(-3, -1, 0, 5), -2),
    )
    refusals = (
        refusal(TypeError, f"{name}: not defined for elements float", real(2), classes(3, 2)),
        refusal(TypeError, f"{name}: not defined for elements float", classes(3, 2), 1.5),
        refusal(TypeError, f"{name}: got a str", classes(3, 2), "a"),
        refusal(ValueError, f"{name}: shapes", classes(3, 2), classes(3, 3)),
    )
    return Op(name, tuple(sample(*row) for row in samples), refusals, differentiable=False, torch=named(name))


OPS = [
    _extreme("maximum"),
    _extreme("minimum"),
    Op(
        "where",
        (
            sample(flags(3, 4), real(3, 4), real(3, 4)),
            sample(flags(3, 1), real(4), real(3, 4)),
            sample(flags(4), real(3, 4), 1.5),
            sample(flags(3), 0.0, real(2, 3)),
            sample(flags(3), 2, real(2, 3)),
            sample(flags(0), real(0), real(0)),
            sample(flags(), real(), real()),
            sample(flags(1), real(2, 1), real(3)),
            sample(flags(4, 5000), real(4, 5000), real(5000)),
        ),
        (
            refusal(TypeError, "where: condition has elements float64, wanted bool", real(3), real(3), real(3)),
            refusal(TypeError, "where: condition has elements <class 'bool'>", True, real(3), real(3)),
            refusal(ValueError, "where: shapes", flags(3), real(3), real(4)),
            refusal(TypeError, "where: got a str", flags(3), real(3), "a"),
            refusal(TypeError, "where: got a NoneType", flags(3), real(3)),
            refusal(TypeError, "where: got a NoneType", flags(3), None, real(3)),
        ),
        torch=lambda torch: torch.where,
        linear=(1, 2),
    ),
    Op(
        "where",
        (
            sample(flags(4), 1.0, 0.0, smooth=False),
            sample(flags(4), 1, 0, smooth=False),
            sample(flags(4), 1, 0.5, smooth=False),
            sample(flags(4), True, False, smooth=False),
            sample(flags(4), input=classes(5, 3, 4), other=2, smooth=False),
            sample(flags(3), classes(5, 3), real(3)),
            sample(flags(3), classes(5, 3), real()),
            sample(flags(3), flags(3), classes(5, 3), smooth=False),
            sample(flags(3, 4), smooth=False),
            sample(flags(), smooth=False),
            sample(flags(0, 2), smooth=False),
            sample(ties(3, 2, 4), smooth=False),
            sample(classes(2, 9), smooth=False),
        ),
        (refusal(TypeError, "where: condition is a list, wanted a Tensor", [True, False]),),
        torch=lambda torch: torch.where,
    ),
    Op(
        "masked_fill",
        (
            sample(real(3, 4), flags(3, 4), 2.5),
            sample(real(3, 4), flags(4), -1),
            sample(real(3, 4), flags(3, 1), real()),
            sample(real(4), flags(3, 4), real()),
            sample(real(), flags(3), 1.5),
            sample(real(), flags(), real()),
            sample(real(0, 3), flags(3), 1.0),
            sample(real(1), flags(2, 1), value=True),
            sample(real(3, 5000), mask=flags(5000), value=0.0),
            sample(classes(5, 3), flags(3), 7, smooth=False),
            sample(flags(3), flags(3), 1, smooth=False),
            sample(real(3), flags(3), classes(9)),
            sample(real(3), flags(3), float("inf"), smooth=False),
        ),
        (
            refusal(TypeError, "masked_fill: mask has elements float64, wanted bool", real(3), real(3), 1.0),
            refusal(TypeError, "masked_fill: mask is a list, wanted a Tensor", real(2), [True, False], 1.0),
            refusal(ValueError, "shapes (2,) and () and (3,) do not broadcast", real(3), flags(2), 1.0),
            refusal(TypeError, "masked_fill: value is 'NoneType', wanted a number", real(3), flags(3), None),
            refusal(ValueError, "masked_fill: value has shape (1,)", real(3), flags(3), real(1)),
            refusal(ValueError, "which does not fit in int64", classes(3, 2), flags(2), float("inf")),
            refusal(ValueError, "which does not fit in int64", classes(3, 2), flags(2), 10**30),
            refusal(TypeError, "value is 1.5, wanted a number that int64 can hold", classes(5, 3), flags(3), 1.5),
        ),
    ),
    Op(
        "clamp",
        LIMITS,
        (
            refusal(ValueError, "clamp: min and max are both None", real(3)),
            refusal(TypeError, "clamp: got a str", real(3), "0"),
            refusal(TypeError, "clamp: got a list", real(3), max=[1.0, 2.0, 3.0]),
            refusal(ValueError, "clamp: shapes", real(3), real(2)),
            refusal(ValueError, "clamp: a number does not fit in int64", classes(5, 2), 0, 10**30),
        ),
        torch=_clamp,
    ),
    *(_comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(_logic(name) for name in ("logical_and", "logical_or", "logical_xor")),
    *(_test(name) for name in ("isnan", "isfinite", "isinf", "logical_not")),
    *(_bits(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    Op(
        "bitwise_not",
        tuple(
            sample(x)
            for x in (
                classes(8, 3, 4),
                classes(8),
                classes(8, 0),
                classes(8, 1),
                flags(3, 4),
                flags(),
                flags(0),
                given(-3, 0, 5),
            )
        ),
        (
            refusal(TypeError, "bitwise_not: not defined for elements float64", real(2)),
            refusal(TypeError, "bitwise_not: got a str", "x"),
            refusal(TypeError, "bitwise_not: got a NoneType", None),
        ),
        differentiable=False,
    ),
]
