"""Layers that read the number of their inputs from the first batch: LazyLinear(10) becomes Linear(n, 10).

Until then they have no parameters, so make the optimiser after a first forward pass, as in PyTorch.
"""

from .conv import Conv2d
from .linear import Linear
from .module import Module
from .norm import BatchNorm1d, BatchNorm2d


class _Lazy(Module):
    """becomes: the layer; axis: of the input, along which its size is read."""

    becomes: type
    axis = 1

    def __init__(self, *args, **kwargs):
        self.options = args, kwargs

    def forward(self, input):
        args, kwargs = self.options
        made = self.becomes(input.shape[self.axis], *args, **kwargs).to(input).train(self.training)
        del self.options
        self.__class__ = self.becomes
        self.__dict__.update(made.__dict__ | {"_hooks": self._hooks})
        return self.forward(input)


def _lazy(layer, axis=1):
    name = f"Lazy{layer.__name__}"
    about = f"{layer.__name__} whose first argument is read from the first batch, and is left out here."
    return type(name, (_Lazy,), {"becomes": layer, "axis": axis, "__doc__": about, "__module__": __name__})


LazyLinear, LazyConv2d = _lazy(Linear, -1), _lazy(Conv2d)
LazyBatchNorm1d, LazyBatchNorm2d = _lazy(BatchNorm1d), _lazy(BatchNorm2d)
