"""A table of the layers of a network, after a dry run."""

import math
from collections import namedtuple

from ..core import create
from ..core.check import shape_of
from ..core.tensor import Tensor
from ..units import aligned
from .layer import Affine
from .module import evaluation

# One call of a layer. shape and nbytes are of the output, of several the first; of what is no Tensor None and 0.
# A parameter counts at the first call of its layer; macs are multiply-adds.
Row = namedtuple("Row", "path kind shape parameters macs nbytes")


class Summary(namedtuple("Summary", "title input_shape rows parameters trainable")):
    """What a network is made of; print it.

    rows            a Row for each call of a layer, in the order of the calls
    parameters      of the whole network, shared ones once
    trainable       those that require a gradient
    macs, nbytes    multiply-adds of convolutions and linear layers, and bytes of all outputs, for this input
    """

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
    image = create.zeros(shape)
    paths = {module: path or type(model).__name__ for path, module in model.named_modules()}
    listed = [module for module in paths if not module._modules or module._parameters]

    def note(module, given, out):
        out = out[0] if isinstance(out, tuple) else out
        shape, nbytes = (out.shape, out.array.nbytes) if isinstance(out, Tensor) else (None, 0)
        own = {*module.parameters(recurse=False)} - counted
        counted.update(own)
        macs = 0
        if isinstance(module, Affine):  # an element of the output sums so many products; of a transpose, of the input
            macs = (given[0] if module.transposed else out).numel() * math.prod(module.weight.shape[1:])
        rows.append(Row(paths[module], type(module).__name__, shape, _count(own), macs, nbytes))

    handles = [module.register_forward_hook(note) for module in listed]
    try:
        with evaluation(model):
            model(image.to(parameters[0]) if parameters else image)
    finally:
        for handle in handles:
            handle.remove()
    trainable = _count(parameter for parameter in parameters if parameter.requires_grad)
    return Summary(type(model).__name__, shape, tuple(rows), _count(parameters), trainable)


def _count(parameters):
    return sum(parameter.numel() for parameter in parameters)
