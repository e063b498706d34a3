"""Rows of the losses of probabilities."""

import functools
import warnings

from . import Draw, Op, classes, flags, positive, probabilities, real, refusal, sample

REDUCTIONS = ("mean", "sum", "none")
SHAPES = ((3, 4), (5,), (2, 3, 1), (0, 3), (1, 4))


def constant(*shape):
    return Draw(shape, "positive", False)


def _quiet(name):
    """PyTorch's function without the warnings that it gives."""

    def counterpart(torch):
        function = getattr(torch.nn.functional, name)

        @functools.wraps(function)
        def quiet(*args, **kwargs):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return function(*args, **kwargs)

        return quiet

    return counterpart


def _binary(draw, options=()):
    """Every reduction on every shape; weights, alike and broadcast, of every type."""
    for reduction in REDUCTIONS:
        for shape in SHAPES:
            smooth = 0 not in shape or reduction != "mean"  # the mean of nothing is NaN
            yield sample(draw(*shape), probabilities(*shape), reduction=reduction, smooth=smooth)
        yield sample(draw(3, 4), probabilities(3, 4), constant(3, 4), reduction=reduction)
        for option in options:
            yield sample(draw(3, 4), probabilities(3, 4), constant(3, 1), reduction=reduction, **option)
    for weight in (constant(4), constant(3, 1), constant(1, 1), constant(), classes(5, 4), flags(3, 4)):
        yield sample(draw(3, 4), probabilities(3, 4), weight)
    for option in options:
        yield sample(draw(3, 4), probabilities(3, 4), **option)


def _refusals(name, draw):
    for shape in ((4,), (3, 1), (3, 4, 1), ()):
        text = f"{name}: input has shape (3, 4), target {shape}; wanted equal shapes"
        yield refusal(ValueError, text, draw(3, 4), probabilities(*shape) if shape else positive())
    yield refusal(TypeError, f"{name}: target has elements int64", draw(3), classes(2, 3))
    yield refusal(TypeError, f"{name}: target has elements bool", draw(3), flags(3))
    yield refusal(TypeError, f"{name}: input has elements int64", classes(2, 3), probabilities(3))
    yield refusal(TypeError, f"{name}: target is a float", draw(3), 1.0)
    for value in ("median", "batchmean", None, 2):
        yield refusal(ValueError, f"{name}: reduction is", draw(3), probabilities(3), reduction=value)
    yield refusal(ValueError, f"{name}: shapes", draw(3, 4), probabilities(3, 4), constant(3))
    text = f"{name}: weight has shape (2, 3, 4), wanted one that broadcasts to (3, 4)"
    yield refusal(ValueError, text, draw(3, 4), probabilities(3, 4), constant(2, 3, 4))
    yield refusal(TypeError, f"{name}: weight is a float", draw(3), probabilities(3), 2.0)


def _refusals_of_logits(name):
    for error, value in ((ValueError, constant(2)), (TypeError, 2.0)):
        yield refusal(error, f"{name}: ", real(3), probabilities(3), pos_weight=value)


def _divergences():
    for reduction in (*REDUCTIONS, "batchmean"):
        for shape in ((3, 4), (5,), (2, 1, 3)):
            yield sample(real(*shape), positive(*shape), reduction=reduction)
            yield sample(real(*shape), real(*shape), reduction=reduction, log_target=True)
        for shape in ((3, 4), (1, 4), (4,), (3, 1)):
            yield sample(real(3, 4), positive(*shape), reduction=reduction, log_target=False)
        yield sample(real(4), real(3, 4), reduction=reduction, log_target=True)
        yield sample(real(), positive(), reduction=reduction)
        yield sample(real(0, 3), positive(0, 3), reduction=reduction, smooth="mean" not in reduction)
        ties = Draw((3, 4), "ties", False)
        yield sample(real(3, 4), ties, reduction=reduction, smooth=False)  # 0 ln 0 = 0, and NaN below 0


LOGITS = ({"pos_weight": constant(4)}, {"pos_weight": constant(3, 4)}, {"pos_weight": classes(5)}, {"pos_weight": None})

OPS = [
    Op(
        "binary_cross_entropy",
        tuple(_binary(probabilities)),
        (
            *_refusals("binary_cross_entropy", probabilities),
            refusal(ValueError, "binary_cross_entropy: input has elements out of range", real(9), probabilities(9)),
            refusal(ValueError, "binary_cross_entropy: target has elements out of range", probabilities(9), real(9)),
        ),
    ),
    Op(
        "binary_cross_entropy_with_logits",
        (*_binary(real, LOGITS), sample(real(3, 4), real(3, 4), pos_weight=constant(4))),
        (
            *_refusals("binary_cross_entropy_with_logits", real),
            *_refusals_of_logits("binary_cross_entropy_with_logits"),
        ),
    ),
    Op(
        "kl_div",
        tuple(_divergences()),
        (
            refusal(ValueError, "kl_div: shapes (3, 4) and (3,) do not broadcast", real(3, 4), positive(3)),
            refusal(ValueError, "kl_div: reduction is 'median'", real(3), positive(3), reduction="median"),
            refusal(ValueError, "kl_div: reduction is None", real(3), positive(3), reduction=None),
            refusal(TypeError, "kl_div: target has elements int64", real(3), classes(2, 3)),
            refusal(TypeError, "kl_div: input has elements int64", classes(2, 3), real(3)),
            refusal(TypeError, "kl_div: target is a float", real(3), 1.0),
        ),
        _quiet("kl_div"),
    ),
]
