"""What losses share: how input and target meet, the weight of each loss, and the reduction."""

import warnings

from minigrad_kernels.errors import KindError, ShapeError, StateError

from ... import device
from ...anomaly import outside
from ...core.tensor import tensor_of
from ..reduce import mean, sum

__all__ = ["REDUCTIONS", "check_pair", "check_reduction", "check_weight", "reduce"]

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
    if input.shape != target.shape:
        shape = device.broadcast_shapes(op, input, target)
        text = f"{op}: input has shape {input.shape}, target {target.shape}; they broadcast to {shape}"
        warnings.warn(f"{text}, wanted equal shapes", stacklevel=1 + outside()[1])  # the user's line


def check_weight(op, name, weight, input):
    """The weight, a constant that broadcasts to the shape of input, in its type; None as it is."""
    if weight is None:
        return None
    if device.broadcast_shapes(op, tensor_of(op, name, weight), input) != input.shape:
        raise ShapeError(f"{op}: {name} has shape {weight.shape}, wanted one that broadcasts to {input.shape}")
    if weight.requires_grad:
        raise StateError(f"{op}: {name} requires a gradient, but it is a constant here; pass {name}.detach()")
    return weight.to(input.dtype)
