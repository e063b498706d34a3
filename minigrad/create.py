"""New Tensors.

Types   dtype an element type or its name, float32 by default; device the name of a device
Errors  ValueError for sizes below 0 and values out of range, TypeError for what is no size, number or element type
"""

import math

from minigrad_kernels.errors import KindError, ShapeError

from . import device as devices
from .ops.arguments import number_of, shape_of
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
    shape = shape_of("full", "shape", (shape,))
    fill_value = number_of("full", "fill_value", fill_value)
    return _made(devices.full(shape, fill_value, devices.element_type(dtype)), device, requires_grad)


def zeros(*shape, dtype="float32", device="cpu", requires_grad=False):
    """A Tensor of zeros."""
    return full(shape_of("zeros", "shape", shape), 0, dtype, device, requires_grad)


def ones(*shape, dtype="float32", device="cpu", requires_grad=False):
    """A Tensor of ones."""
    return full(shape_of("ones", "shape", shape), 1, dtype, device, requires_grad)


def rand(*shape, dtype="float32", device="cpu", requires_grad=False, generator=None):
    """Numbers drawn evenly from [0, 1)."""
    values = _drawn("rand", "random", shape, dtype, generator)
    if values.dtype.itemsize < 4:
        values[values == 1] = 1 - 2**-11  # float16 rounds the last numbers below 1 up to it
    return _made(values, device, requires_grad)


def randn(*shape, dtype="float32", device="cpu", requires_grad=False, generator=None):
    """Numbers drawn from the normal distribution with mean 0 and variance 1."""
    return _made(_drawn("randn", "standard_normal", shape, dtype, generator), device, requires_grad)


def arange(start, end=None, step=1, dtype=None, device="cpu"):
    """Numbers from start (from 0 if it stands alone) up to end, end not included, step apart.

    Types   int64 if all three are whole numbers, else float32, where dtype is None
    """
    named = {"start": 0 if end is None else start, "end": start if end is None else end, "step": step}
    start, end, step = (number_of("arange", name, value) for name, value in named.items())
    if not all(map(math.isfinite, (start, end, step))) or not step:
        raise ShapeError(f"arange: start, end, step are {start}, {end}, {step}; wanted finite ones and a step not 0")
    if dtype is None:
        whole = all(isinstance(value, int) for value in (start, end, step))
        dtype = "int64" if whole else devices.default_dtype
    count = max(0, -int((start - end) // step))
    return _made(devices.asarray([start + i * step for i in range(count)], dtype), device, False)


def from_dlpack(source):
    """A Tensor on the memory of an array of another library (DLPack), without a copy."""
    return Tensor(devices.from_dlpack(source))


def _drawn(op, method, shape, dtype, generator):
    """Numbers from a method of the generator; a type that it does not know is drawn as float32 and rounded."""
    shape, dtype = shape_of(op, "shape", shape), devices.element_type(dtype)
    if not devices.is_floating(dtype):
        raise KindError(f"{op}: dtype is {dtype}, wanted a floating one")
    if not isinstance(generator, devices.Generator | None):
        raise KindError(f"{op}: generator is a {type(generator).__name__}, wanted a Generator or None")
    drawn = dtype if dtype.itemsize >= 4 else devices.default_dtype
    values = getattr((generator or devices.default_generator).numpy, method)(shape, drawn)
    return values if drawn == dtype else devices.cast(values, dtype)
