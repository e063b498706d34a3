"""A table of the layers of a network, after a dry run."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from ..core import create
from ..core.check import shape_of
from ..core.tensor import Tensor
from ..units import aligned
from .linear import Affine
from .module import evaluation

NOTHING = None, 0, 0  # shape, multiply-adds and bytes of what is no Tensor


class Row(NamedTuple):
    """One call of a layer."""

    path: str
    kind: str
    shape: tuple | None  # of the output, of several the first; None if it is no Tensor
    parameters: int  # its own, counted at its first call
    macs: int  # multiply-adds
    nbytes: int  # of the output


@dataclass(frozen=True)
class Summary:
    """What a network is made of; print it.

    rows            a Row for each call of a layer, in the order of the calls
    parameters      of the whole network, shared ones once
    trainable       those that require a gradient
    macs, nbytes    multiply-adds of convolutions and linear layers, and bytes of all outputs, for this input
    """

    title: str
    input_shape: tuple
    rows: tuple
    parameters: int
    trainable: int

    macs = property(lambda self: sum(row.macs for row in self.rows))
    nbytes = property(lambda self: sum(row.nbytes for row in self.rows))

    def cells(self):
        """The table as text, a tuple for each row: the head, the layers, the total."""
        found = [("layer", "type", "output shape", "parameters", "multiply-adds", "output bytes")]
        for path, kind, shape, *numbers in (*self.rows, ("total", "", "", self.parameters, self.macs, self.nbytes)):
            found.append((path, kind, "-" if shape is None else str(shape), *(f"{number:,}" for number in numbers)))
        return found

    def __str__(self):
        lines = aligned(self.cells(), 3)
        rule = "-" * len(lines[0])
        trainable = f"{self.trainable:,} of {self.parameters:,} parameters trainable"
        head = f"{self.title}, input {self.input_shape}, {trainable}"
        return "\n".join([head, rule, lines[0], rule, *lines[1:-1], rule, lines[-1]])


def summary(model, input_shape):
    """A table of the layers of a network: output shapes, parameters, multiply-adds and bytes.

    The network runs once, on zeros of the type of its parameters, without a tape and as in eval, and is then as
    before. Each call of a layer without parts, or with parameters of its own, gives a row.

    input_shape     with the batch: (1, 1, 28, 28)
    Errors          those of the layers, where the shape does not fit
    """
    shape = shape_of("summary", "input_shape", (input_shape,))
    parameters, rows, counted = list(model.parameters()), [], set()
    like = {"dtype": parameters[0].dtype, "device": parameters[0].device} if parameters else {"dtype": "float32"}
    paths = {module: path or type(model).__name__ for path, module in model.named_modules()}
    listed = [module for module in paths if not module._modules or module._parameters]

    def note(module, given, out):
        out = out[0] if isinstance(out, tuple) else out
        own = [parameter for parameter in module.parameters(recurse=False) if parameter not in counted]
        counted.update(own)
        shape, *cost = (out.shape, _macs(module, given, out), out.array.nbytes) if isinstance(out, Tensor) else NOTHING
        rows.append(Row(paths[module], type(module).__name__, shape, _count(own), *cost))

    handles = [module.register_forward_hook(note) for module in listed]
    try:
        with evaluation(model):
            model(create.zeros(shape, **like))
    finally:
        for handle in handles:
            handle.remove()
    trainable = _count(parameter for parameter in parameters if parameter.requires_grad)
    return Summary(type(model).__name__, shape, tuple(rows), _count(parameters), trainable)


def _count(parameters):
    return sum(parameter.numel() for parameter in parameters)


def _macs(module, given, out):
    """Each element of the output is a sum of so many products; of a transpose, each of the input goes into so many."""
    if not isinstance(module, Affine):
        return 0
    return (given[0] if module.transposed else out).numel() * math.prod(module.weight.shape[1:])
