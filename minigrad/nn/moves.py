"""What moves a Module to a device, and what converts it to an element type; methods of Module."""

from minigrad_kernels.errors import KindError

from .. import device as devices
from ..core.tensor import Tensor

__all__ = ["bfloat16", "cpu", "cuda", "double", "float", "half", "to"]


def to(self, *targets, device=None, dtype=None, non_blocking=False):
    """Move all parameters and buffers to a device, and the floating ones to an element type; returns self.

    They stay the same objects, so an optimiser made before keeps them; its state, if any, does not follow.

    targets         a device, an element type, both, or a Tensor that has them
    non_blocking    is PyTorch's and changes nothing
    """
    place = kind = None
    for target in (*targets, device, dtype):
        if isinstance(target, Tensor):
            place, kind = target.device, target.dtype
        elif devices.is_device(target):
            place = target
        elif target is not None:
            kind = devices.element_type(target)
    if kind is not None and not devices.is_floating(kind):
        raise KindError(f"to: dtype is {kind}, wanted a floating one for the parameters of a Module")

    def change(array):
        array = array if place is None else devices.move(array, place)
        wanted = kind is not None and devices.is_floating(array.dtype) and array.dtype != kind
        return devices.cast(array, kind) if wanted else array

    tensors = [*self.parameters(), *self.buffers()]
    tensors += [tensor.grad for tensor in tensors if tensor.grad is not None]
    changed = [change(tensor.array) for tensor in tensors]  # all before any, as memory may not suffice
    for tensor, array in zip(tensors, changed, strict=True):
        tensor.data = array
    return self


def float(self):
    """All floating parameters and buffers as float32; returns self."""
    return self.to("float32")


def double(self):
    """All floating parameters and buffers as float64; returns self."""
    return self.to("float64")


def half(self):
    """All floating parameters and buffers as float16; returns self."""
    return self.to("float16")


def bfloat16(self):
    """All floating parameters and buffers as bfloat16; returns self."""
    return self.to("bfloat16")


def cpu(self):
    """Move all parameters and buffers to the CPU; returns self."""
    return self.to("cpu")


def cuda(self, device=None):
    """Move all parameters and buffers to a GPU, by its number or name, or to the current one; returns self."""
    return self.to(devices.gpu_name(device))
