"""New Tensors.

Types   dtype an element type or its name, float32 by default; device the name of a device
"""

from . import device as devices
from .tensor import Tensor

__all__ = ["arange", "from_dlpack", "full", "ones", "rand", "randn", "tensor", "zeros"]


def _made(array, device, requires_grad):
    return Tensor(devices.move(array, device), requires_grad)


def tensor(data, dtype=None, device="cpu", requires_grad=False):
    """A Tensor with a copy of data: numbers, nested lists, or an array."""
    array = data.data if isinstance(data, Tensor) else devices.asarray(data, dtype)
    array = devices.cast(array, array.dtype if dtype is None else dtype)
    return _made(array, device, requires_grad)


def full(shape, fill_value, dtype="float32", device="cpu", requires_grad=False):
    """A Tensor filled with one value."""
    return _made(devices.full(_shape(shape), fill_value, dtype), device, requires_grad)


def zeros(*shape, dtype="float32", device="cpu", requires_grad=False):
    """A Tensor of zeros."""
    return full(shape, 0, dtype, device, requires_grad)


def ones(*shape, dtype="float32", device="cpu", requires_grad=False):
    """A Tensor of ones."""
    return full(shape, 1, dtype, device, requires_grad)


def rand(*shape, dtype="float32", device="cpu", requires_grad=False, generator=None):
    """Numbers drawn evenly from [0, 1)."""
    draw = (generator or devices.default_generator).numpy.random(_shape(shape), _drawn(dtype))
    return _made(draw, device, requires_grad)


def randn(*shape, dtype="float32", device="cpu", requires_grad=False, generator=None):
    """Numbers drawn from the normal distribution with mean 0 and variance 1."""
    draw = (generator or devices.default_generator).numpy.standard_normal(_shape(shape), _drawn(dtype))
    return _made(draw, device, requires_grad)


def arange(start, end=None, step=1, dtype=None, device="cpu"):
    """Numbers from start (from 0 if it stands alone) up to end, end not included, step apart."""
    start, end = (0, start) if end is None else (start, end)
    count = max(0, -int((start - end) // step))
    values = devices.asarray([start + i * step for i in range(count)], dtype)
    whole = all(isinstance(value, int) for value in (start, end, step))
    return _made(devices.cast(values, "int64") if whole and dtype is None else values, device, False)


def from_dlpack(source):
    """A Tensor on the memory of an array of another library (DLPack), without a copy."""
    return Tensor(devices.from_dlpack(source))


def _shape(shape):
    if isinstance(shape, int):
        return (shape,)
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else tuple(shape)


def _drawn(dtype):
    return devices.element_type(dtype)
