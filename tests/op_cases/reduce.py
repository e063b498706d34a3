"""Rows of sums, means and variances, and what the rows of all reductions share."""

import numpy as np

from . import Op, classes, flags, real, refusal, sample, ties

SHAPE = (2, 3, 4, 5)


def by_torch(name):
    """torch's function, with element types by their names."""

    def choose(torch):
        function = getattr(torch, name)

        def call(*args, dtype=None, **kwargs):
            return function(*args, **kwargs, **({} if dtype is None else {"dtype": getattr(torch, dtype)}))

        return call

    return choose


def bad_dims(name, *args):
    """What every reduction refuses: args follow the Tensor."""
    return (
        refusal(IndexError, f"{name}: dim is 2", real(2, 3), *args, dim=2),
        refusal(IndexError, f"{name}: dim is -3", real(2, 3), *args, dim=-3),
        refusal(IndexError, f"{name}: dim is 1, wanted -1 to 0", real(), *args, dim=1),
        refusal(TypeError, f"{name}: dim is '0'", real(2, 3), *args, dim="0"),
        refusal(TypeError, f"{name}: dim is 0.5", real(2, 3), *args, dim=0.5),
        refusal(TypeError, f"{name}: input is a ndarray, wanted a Tensor; wrap it in Tensor(...)", np.ones(3), dim=0),
    )


def bad_keepdim(name):
    return (
        refusal(TypeError, f"{name}: keepdim is None, wanted True or False", real(2, 3), dim=0, keepdim=None),
        refusal(TypeError, f"{name}: keepdim is 'no'", real(2, 3), dim=0, keepdim="no"),
    )


def one_dim(name):
    """Refusals of those that take one dimension."""
    return (
        refusal(TypeError, f"{name}: dim is (0, 1), wanted an integer", real(2, 3), dim=(0, 1)),
        refusal(TypeError, f"{name}: dim is (), wanted an integer", real(2, 3), dim=()),
    )


def several_dims(name):
    """Refusals of those that take several."""
    return (
        refusal(ValueError, "names a dimension twice", real(2, 3), dim=(0, -2)),
        refusal(ValueError, "names a dimension twice", real(), dim=(0, -1)),
        refusal(TypeError, f"{name}: dim is 1.5", real(2, 3), dim=(1.5,)),
    )


def no_dtype():
    return (
        refusal(TypeError, "wanted an element type", real(2, 3), dim=0, dtype="number"),
        refusal(TypeError, "complex64, wanted bool, integer or floating", real(2, 3), dim=0, dtype="complex64"),
    )


def _averages(*extra):
    """Samples of sum and mean."""
    return (
        sample(real(*SHAPE)),
        sample(real(*SHAPE), 0),
        *(sample(real(*SHAPE), dim=dim) for dim in (-1, (0, 2, 3), (1, -1), (), [1, 2])),
        sample(real(*SHAPE), (0, 2, 3), True),
        sample(real(*SHAPE), dim=None, keepdim=True),
        sample(real(2, 3, 4, 3, 2), dim=(0, 2, 3)),
        sample(real(1, 3, 1), dim=(0, 2)),
        sample(real()),
        sample(real(), dim=-1, keepdim=True),
        sample(real(0, 3), dim=1),
        sample(real(5000, 3), dim=0),
        *extra,
    )


def _spreads(name):
    """Samples and refusals of var and std."""
    samples = (
        sample(real(*SHAPE)),
        sample(real(3, 4), 1, False),
        *(sample(real(*SHAPE), dim=dim) for dim in (None, 0, -1, (0, 2, 3), [1])),
        sample(real(*SHAPE), dim=(0, 2, 3), correction=0, keepdim=True),
        sample(real(6), correction=2),
        sample(real(6), correction=1.5),
        sample(real(3, 4), unbiased=False),
        sample(real(3, 4), 1, True, True),
        sample(real(3, 4), None, False, True),
        sample(real(3, 4), keepdim=True),
        sample(real(3, 4), correction=-1),
        sample(real(0, 3), dim=0, correction=-1, smooth=False),
        sample(real(), correction=0),
        sample(real(), 0, correction=-1, keepdim=True),
        sample(ties(3, 8), dim=1),
    )
    refusals = (
        *bad_dims(name),
        *bad_keepdim(name),
        *several_dims(name),
        refusal(TypeError, f"{name}: correction is 'a', wanted a number", real(3), correction="a"),
        refusal(TypeError, f"{name}: unbiased is True and correction 0", real(3), unbiased=True, correction=0),
        refusal(TypeError, f"{name}: unbiased is 2, wanted True or False", real(3), 0, 2),
        refusal(TypeError, f"{name}: input has elements int64, wanted floating", classes(5, 2, 3)),
    )
    return Op(name, samples, refusals, torch=by_torch(name))


OPS = [
    Op(
        "sum",
        _averages(sample(real(3, 0), dim=0), sample(real(3, 0), dim=1), sample(real(0))),
        (*bad_dims("sum"), *bad_keepdim("sum"), *several_dims("sum")),
        torch=by_torch("sum"),
        linear=(0,),
    ),
    Op(
        "sum",
        (
            sample(classes(5, 2, 3), 0),
            sample(flags(2, 3), dim=1, keepdim=True),
            sample(classes(300, 2, 3), dtype="uint8"),
            sample(classes(5, 2, 3), dim=1, dtype="float32"),
            sample(flags(2, 3), dtype="bool"),
            sample(flags(0, 3), 0),
        ),
        no_dtype(),
        torch=by_torch("sum"),
        differentiable=False,
    ),
    Op(
        "mean",
        _averages(),
        (
            *bad_dims("mean"),
            *bad_keepdim("mean"),
            *several_dims("mean"),
        ),
        torch=by_torch("mean"),
        linear=(0,),
    ),
    Op(
        "mean",
        (sample(classes(5, 2, 3), dtype="float32"), sample(flags(2, 3), 1, True, dtype="float64")),
        (
            *no_dtype(),
            refusal(TypeError, "mean: input has elements int64, wanted floating", classes(5, 2, 3)),
            refusal(TypeError, "mean: dtype is int64, wanted floating", real(2, 3), dtype="int64"),
        ),
        torch=by_torch("mean"),
        differentiable=False,
    ),
    _spreads("var"),
    _spreads("std"),
]
