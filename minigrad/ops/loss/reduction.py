"""What losses share: how input and target meet, the weight of each loss, and the reduction."""

import warnings

from minigrad_kernels.errors import KindError, ShapeError, StateError

from ... import device
from ...anomaly import outside
from ...primitive import Primitive, primitive
from ...tensor import Tensor
from ..arguments import tensor_of
from ..reduce import mean, sum

__all__ = [
    "REDUCTIONS",
    "check_pair",
    "check_reduction",
    "check_weight",
    "in_one_pass",
    "in_total",
    "reduce",
    "reduced",
    "repeated",
]

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(op, reduction, known=REDUCTIONS):
    if not isinstance(reduction, str) or reduction not in known:
        raise ShapeError(f"{op}: reduction is {reduction!r}, wanted one of {known}")


def reduce(losses, reduction):
    return losses if reduction == "none" else mean(losses) if reduction == "mean" else sum(losses)


_totals: dict[Primitive, Primitive] = {}  # primitives of the losses of pairs -> those of their sums


def in_total(losses, loop):
    """State that a loop of the pointwise kernels computes the losses of pairs: then they are added up in that pass.

    losses      a primitive of input, target, and settings, of which those that are not None are the loop's numbers;
                its rules are the definition here too
    """

    def total(input, target, settings, divisor):
        p, q = settings if settings and None not in settings else (0.0, 0.0)
        return device.looped_total(loop, input, target, p, q, divisor)

    def rule_of(name):
        def rule(g, input, target, settings, divisor):
            values = dict(zip(losses.names, (input, target, *settings), strict=True))
            return losses.call_rule(name, values | {"g": g / divisor}, ())

        return rule

    total.__name__ = f"{losses.name}_total"
    _totals[losses] = added = primitive(total, fixed=("settings", "divisor"))
    added.grads(input=rule_of("input"), target=rule_of("target"))

    @added.fast_grads
    def at_once(g, input, target, settings, divisor, needs):
        share = device.empty((), g.dtype, like=g)
        share[...] = g / divisor
        return losses.fast(share, input, target, *settings, needs)


def reduced(losses, input, target, reduction, *settings):
    """The losses of pairs by a primitive, reduced: in one pass where the kernel for it takes such arrays."""
    x, y = input.data, target.data
    if reduction == "none" or not x.size or not device.is_looped(x, y):
        return reduce(losses(input, target, *settings), reduction)
    return _totals[losses](input, target, settings, float(x.size) if reduction == "mean" else 1.0)


def check_pair(op, input, target):
    """Refuse what is not floating, with a warning where they broadcast: (N, 1) and (N,) would make (N, N)."""
    tensor_of(op, "input", input)
    tensor_of(op, "target", target)
    if input.shape == target.shape and device.is_floating(input.dtype):
        return
    if not device.is_floating(input.dtype) and not device.is_floating(target.dtype):
        raise KindError(f"{op}: input has elements {input.dtype}, target {target.dtype}; wanted floating ones")
    shape = device.broadcast_shapes(op, input, target)
    if input.shape != target.shape:
        text = f"{op}: input has shape {input.shape}, target {target.shape}; they broadcast to {shape}"
        warnings.warn(f"{text}, wanted equal shapes", stacklevel=1 + outside()[1])  # the user's line


def in_one_pass(loop, rule, g, input, target, needs, numbers):
    """The gradients of a loss of input - target by a loop over both, where what arrives is one number; else by rule.

    rule        of (g, input, target): the gradient for input; with its sign changed it is that for target
    numbers     of what arrives: the numbers that the loop takes
    """
    arrived, found = repeated(g), {}
    for name, sign in (("input", 1.0), ("target", -1.0)):
        if name in needs:
            dx = None
            if arrived is not None:
                dx = device.looped(loop, input, target, *numbers(sign * arrived))
            if dx is None:
                dx = rule(Tensor.made(g) * sign, Tensor.made(input), Tensor.made(target)).data
            found[name] = dx
    return found


def repeated(g):
    """The one number that a gradient on the CPU repeats; None if it does not."""
    if device.place_of(g) is device.CPU and g.size and not any(g.strides):
        return float(g[(0,) * g.ndim])
    return None


def check_weight(op, name, weight, input):
    """The weight, a constant that broadcasts to the shape of input, in its type; None as it is."""
    if weight is None:
        return None
    if device.broadcast_shapes(op, tensor_of(op, name, weight), input) != input.shape:
        raise ShapeError(f"{op}: {name} has shape {weight.shape}, wanted one that broadcasts to {input.shape}")
    if weight.requires_grad:
        raise StateError(f"{op}: {name} requires a gradient, but it is a constant here; pass {name}.detach()")
    return weight.to(input.dtype)
