"""Parameter: a leaf Tensor that a Module finds and an optimiser changes."""

from ..tensor import Tensor

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A Tensor that becomes part of the parameters of the Module to which it is assigned.

    data            numbers, an array, or a Tensor, whose memory is shared and whose history is left behind
    requires_grad   whether gradients flow to it
    Errors  TypeError if a gradient is wanted and the elements are not floating
    """

    __slots__ = ()

    def __init__(self, data, requires_grad=True):
        shared = isinstance(data, Tensor)
        super().__init__(data.array if shared else data, requires_grad)
        if shared:
            self.version = data.version

    def __repr__(self):
        return f"Parameter containing:\n{super().__repr__()}"
