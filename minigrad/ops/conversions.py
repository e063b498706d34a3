"""Conversions to another element type or device, and what elementwise ops are stated with.

Types   any; gradients flow between floating types
Errors  TypeError if input is no Tensor, or for a name that is neither that of a device nor of an element type
Source  torch.Tensor.to
"""

import functools
import inspect

from minigrad_kernels.errors import KindError

from .. import device as devices
from ..core.primitive import primitive
from ..core.tensor import Tensor, tensor_of

__all__ = ["to"]

# The names that PyTorch and NumPy both use. NumPy takes others too: "float" for float64, "a" with a warning for text.
NAMES = frozenset("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64".split())


@primitive
def cast(input, dtype):
    """The same numbers in another element type, in memory of their own.

    Math    out = x, rounded to dtype
    Grads   dx = g in the type of input
    Shapes  out as input
    """
    return devices.cast(input, dtype)


cast.grads(input=lambda g: g)


@primitive
def move(input, place):
    """The same numbers on another device.

    Math    out = x
    Grads   dx = g on the device of input
    Shapes  out as input
    """
    return devices.move(input, place)


move.grads(input=lambda g, input: move(g, input.device))


def to(input, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """input on another device or in another element type; input itself if nothing changes and copy is False.

    Also to(input, dtype), and to(input, other) with the device and type of a Tensor. non_blocking and memory_format
    are PyTorch's and change nothing.

    Math    out = x
    Grads   dx = g, moved or converted back; none through integers
    Shapes  out as input
    Types   device a name such as "cpu"; dtype a type of NumPy or a name such as "float64"
    Errors  RuntimeError for a device that is not here
    """
    tensor_of("to", "input", input)
    if isinstance(device, Tensor):
        device, dtype = device.device, device.dtype
    elif device is not None and not devices.is_device(device):
        if dtype is not None:
            raise KindError(f"to: device is {device!r}, wanted the name of a device, as dtype is given too")
        device, dtype = None, device
    if isinstance(dtype, str) and dtype not in NAMES:
        raise KindError(f"to: got {dtype!r}, wanted an element type such as 'float32' or a device: {devices.DEVICES}")
    dtype = input.dtype if dtype is None else devices.element_type(dtype)
    place = None if device is None else devices.place(device).name
    out = input if place in (None, input.device) else move(input, place)
    if dtype == out.dtype and not (copy and out is input):
        return out
    return cast(out if devices.is_floating(dtype) else out.detach(), dtype)


def typed(input, dtype):
    """A Tensor in an element type, itself if it has it."""
    return input if input.dtype == dtype else to(input, dtype)


def wide(input):
    """A Tensor in the type to compute in where a result takes several steps: numbers of 16 bits become float32."""
    return to(input, "float32") if devices.is_half(input.dtype) else input


# ---- how ops are stated ----------------------------------------------------------------------------------------------


def ufunc(**rules):
    """A decorator: the primitive that the ufunc of this name computes, with these gradient rules.

    The function below it gives the signature and the docstring.
    """

    def made(stated):
        forward = functools.wraps(stated)(lambda *values: devices.elementwise(stated.__name__, *values))
        found = primitive(forward)
        found.grads(**rules)
        return found

    return made


def no_slope(g):
    """The gradient of a result that does not change with its argument: zeros, without history."""
    return Tensor.made(devices.zeros(g.shape, g.dtype, like=g.array))


def widened(forward):
    """A forward whose steps work on numbers of 16 bits in float32, so that the result alone is rounded."""

    @functools.wraps(forward)
    def run(input, *settings):
        if not devices.is_array(input) or not devices.is_half(input.dtype):
            return forward(input, *settings)
        return devices.cast(forward(devices.cast(input, "float32"), *settings), input.dtype)

    return run


def precise(rule):
    """A gradient rule of several steps that works on numbers of 16 bits in float32; the engine rounds its result."""

    @functools.wraps(rule)
    def run(g, *values):
        return rule(wide(g), *[wide(value) if isinstance(value, Tensor) else value for value in values])

    return run


def through(back, rules):
    """The rules of h(f(...)) by those of f; back, a rule too, gives the gradient of f's result from that of h's."""
    return {argument: _chained(back, rule) for argument, rule in rules.items()}


def _chained(back, rule):
    """The rule that asks for what both do, with the gradient that back gives in the place of g."""
    first, then = (inspect.signature(one).parameters for one in (back, rule))
    names = tuple({**first, **then})

    def run(*values):
        named = dict(zip(names, values, strict=True))
        named["g"] = back(*[named[name] for name in first])
        return rule(*[named[name] for name in then])

    run.__signature__ = inspect.Signature(list({**first, **then}.values()))
    return run
