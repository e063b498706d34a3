"""Parameter: a leaf Tensor that a Module finds and an optimiser changes."""

from .. import device as devices
from ..core.tensor import Tensor


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


def parameter(layer, shape, device=None, dtype=None, order=None):
    """A Parameter whose elements are still undefined and whose axes lie in memory in this order."""
    dtype = devices.default_dtype if dtype is None else devices.element_type(dtype)
    with devices.naming(layer):
        return Parameter(devices.empty(shape, dtype, order, devices.place("cpu" if device is None else device)))
