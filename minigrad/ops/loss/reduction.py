"""What losses share: how input and target meet, the weight of each loss, and the reduction."""

import warnings

from minigrad_kernels.errors import KindError, ShapeError, StateError

from ... import device
from ...anomaly import outside
from ...tensor import Tensor
from ..arguments import tensor_of
from ..reduce import mean, sum

__all__ = ["REDUCTIONS", "check_pair", "check_reduction", "check_weight", "in_one_pass", "reduce"]

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(op, reduction, known=REDUCTIONS):
    if not isinstance(reduction, str) or reduction not in known:
        raise ShapeError(f"{op}: reduction is {reduction!r}, wanted one of {known}")


def reduce(losses, reduction):
    return losses if reduction == "none" else mean(losses) if reduction == "mean" else sum(losses)


def check_pair(op, input, target):
    """Refuse what is not floating, with a warning where they broadcast: (N, 1) and (N,) would make (N, N)."""
    tensor_of(op, "input", input)
    tensor_of(op, "target", target)
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
    repeated = device.place_of(g) is device.CPU and g.size and not any(g.strides)
    found = {}
    for name, sign in (("input", 1.0), ("target", -1.0)):
        if name in needs:
            dx = None
            if repeated:
                dx = device.looped(loop, input, target, *numbers(sign * float(g[(0,) * g.ndim])))
            if dx is None:
                dx = rule(Tensor.made(g) * sign, Tensor.made(input), Tensor.made(target)).data
            found[name] = dx
    return found


def check_weight(op, name, weight, input):
    """The weight, a constant that broadcasts to the shape of input, in its type; None as it is."""
    if weight is None:
        return None
    if device.broadcast_shapes(op, tensor_of(op, name, weight), input) != input.shape:
        raise ShapeError(f"{op}: {name} has shape {weight.shape}, wanted one that broadcasts to {input.shape}")
    if weight.requires_grad:
        raise StateError(f"{op}: {name} requires a gradient, but it is a constant here; pass {name}.detach()")
    return weight.to(input.dtype)
