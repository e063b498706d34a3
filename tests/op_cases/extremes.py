"""Rows of the largest and smallest elements, their places, and of any and all."""

from . import Op, away, classes, flags, real, refusal, sample, ties
from .reduce import SHAPE, bad_dims, bad_keepdim, by_torch, one_dim, several_dims


def _extremes(name):
    """amax and amin."""
    samples = (
        sample(away(*SHAPE), (0, 1), True),
        *(
            sample(away(*SHAPE), dim=dim, keepdim=keep)
            for dim in (0, -1, (0, 2), (1, -1), ())
            for keep in (False, True)
        ),
        sample(away(4)),
        sample(away()),
        sample(away(), dim=0, keepdim=True),
        sample(away(3, 0), dim=0),
        sample(ties(3, 8), dim=1, smooth=False),
        sample(ties(3, 8), dim=(0, 1), keepdim=True, smooth=False),
        sample(classes(5, 2, 3), dim=1, smooth=False),
        sample(flags(2, 3), smooth=False),
    )
    refusals = (
        *bad_dims(name),
        *bad_keepdim(name),
        *several_dims(name),
        refusal(
            ValueError, f"{name}: input has shape (0, 3), and nothing along dim (0,) has no extreme", real(0, 3), 0
        ),
        refusal(ValueError, "no extreme", real(0, 3)),
    )
    return Op(name, samples, refusals, torch=by_torch(name))


def _selects(name):
    """max and min."""
    samples = (
        sample(away(*SHAPE), 1, True),
        sample(away(2, 3), away(3)),
        *(sample(away(*SHAPE), dim=dim, keepdim=keep) for dim in (0, 2, -1) for keep in (False, True)),
        sample(away(7)),
        sample(away(2, 3)),
        sample(away()),
        sample(away(), 0),
        sample(away(), dim=-1, keepdim=True),
        sample(away(0, 3), 1),
        sample(ties(3, 8), dim=1, smooth=False),
        sample(ties(9), smooth=False),
        sample(classes(5, 2, 3), 0, smooth=False),
        sample(flags(2, 3), 0, smooth=False),
        sample(away(2, 3), away(2, 3), smooth=False),
        sample(away(2, 1), other=away(2, 3), smooth=False),
        sample(ties(2, 5), ties(2, 5), smooth=False),
    )
    refusals = (
        *bad_dims(name),
        *bad_keepdim(name),
        *one_dim(name),
        refusal(ValueError, "no extreme", real(0, 3), dim=0),
        refusal(ValueError, "no extreme", real(0)),
        refusal(TypeError, f"{name}: keepdim is True, which wants a dim", real(2, 3), keepdim=True),
        refusal(TypeError, f"{name}: keepdim is True, which wants a dim", real(2, 3), real(2, 3), True),
        refusal(TypeError, f"{name}: dim is 0 and other is given", real(2, 3), 0, other=real(2, 3)),
        refusal(TypeError, f"{name}: other is a float, wanted a Tensor", real(2, 3), other=2.0),
        refusal(ValueError, "do not broadcast", real(2, 3), real(2)),
    )
    return Op(name, samples, refusals, torch=by_torch(name))


def _places(name):
    """argmax and argmin."""
    samples = (
        sample(away(3, 4), None, True),
        sample(ties(3, 8), 1),
        *(sample(away(*SHAPE), dim=dim, keepdim=keep) for dim in (0, 2, -1) for keep in (False, True)),
        sample(away(3, 4)),
        sample(away(3, 4), keepdim=True),
        sample(ties(3, 8)),
        sample(away(7), dim=0),
        sample(away()),
        sample(away(), 0, True),
        sample(away(0, 3), 1),
        sample(classes(5, 2, 3), 1),
    )
    refusals = (
        *bad_dims(name),
        *bad_keepdim(name),
        *one_dim(name),
        refusal(ValueError, "no extreme", real(0, 3), dim=0),
        refusal(ValueError, "no extreme", real(0, 3)),
    )
    return Op(name, samples, refusals, torch=by_torch(name), differentiable=False)


def _logic(name):
    """any and all."""
    samples = (
        sample(flags(2, 3), 1, True),
        *(sample(flags(2, 3, 4), dim=dim) for dim in (0, -1, (0, 2), (), None)),
        sample(flags(2, 3), keepdim=True),
        sample(flags(2, 3)),
        sample(ties(2, 3), 0),
        sample(classes(2, 3, 2), dim=1),
        sample(flags()),
        sample(flags(), 0),
        sample(flags(0, 3), 0),
        sample(flags(0, 3)),
        sample(flags(3, 0), 0),
    )
    refusals = (*bad_dims(name), *bad_keepdim(name), *several_dims(name))
    return Op(name, samples, refusals, torch=by_torch(name), differentiable=False)


OPS = [
    _extremes("amax"),
    _extremes("amin"),
    _selects("max"),
    _selects("min"),
    _places("argmax"),
    _places("argmin"),
    _logic("any"),
    _logic("all"),
]
