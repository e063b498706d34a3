"""Updates in place: what writes into the memory of a leaf instead of making a new Tensor.

    x.add_(y)  x.fill_(1)  x[i] = y     write into x, or are refused
    x += y                              writes into x where x is a leaf and nothing is recorded; on the result of a
                                        recorded operation, or with such a y, it makes a new Tensor, x + y

A leaf that requires a gradient is updated inside `with no_grad():`, or by way of x.data. An update raises the version
of its memory (tape.write), so a backward pass which still needs the old values is refused. All Tensors on the same
memory see the update: x.detach(), x.data, a view, an array that was given to Tensor.

Shapes  what is written broadcasts to the shape of input, which stays as it is
Types   input keeps its element type: floating results are refused by integers, all but bools by bools; a result of
        another number of bits is rounded, or wraps around
Errors  RuntimeError for a leaf that requires a gradient outside of no_grad, for the result of a recorded operation,
        where other requires a gradient and this would be recorded, and for memory that is read-only or stands for
        several elements; ValueError for a result of another shape, TypeError for one of another kind. Nothing is
        changed then
"""

import math

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device
from ..core.check import float_of, number_in, number_of, source_of
from ..core.interceptors import interceptors
from ..core.modes import recording
from ..core.tape import write
from ..core.tensor import Tensor, tensor_of
from ..fusion import Waiting
from .elementwise.arithmetic import add, div, mul, sub
from .elementwise.choices import clamp
from .shape.select import parsed, subscript, within

__all__ = ["METHODS", "constant", "fill", "normal", "rebinds", "setitem", "uniform", "update"]


def rebinds(input, other):
    """Whether `input += other` makes a new Tensor: where it is recorded, by the tape or by an export, or waits."""
    if input.__class__ is Waiting or not input.is_leaf or not _allowed():
        return True
    recorded = isinstance(other, Tensor) and other._requires_grad and recording.get()
    return recorded and not input._requires_grad


def bare(value):
    """A Tensor without dimensions and without a gradient as the number in it; anything else as it is."""
    return value.item() if isinstance(value, Tensor) and not value.ndim and not value.requires_grad else value


def _allowed():
    """Whether nobody who sees the ops wants results only."""
    return all(one.in_place for one in interceptors())


def open_to(op, input, *others):
    """Refuse what cannot be updated in place by these values."""
    instead = "make a new Tensor, as by x = x + y"
    if not tensor_of(op, "input", input).is_leaf:
        made = input.node.primitive.name
        raise StateError(f"{op}: input was made by {made}, whose backward may need it; {instead}")
    if not _allowed():
        raise StateError(f"{op}: an update in place cannot be exported; {instead}")
    if recording.get():
        if input._requires_grad:
            hint = "put the update under `with no_grad():`, or use an optimiser"
            raise StateError(f"{op}: input is a leaf that requires a gradient; {hint}")
        if any(isinstance(other, Tensor) and other._requires_grad for other in others):
            raise StateError(f"{op}: other requires a gradient, which would be lost; {instead}, or use other.detach()")
    array = input.array
    repeated = array.size and any(n > 1 and not s for n, s in zip(array.shape, array.strides, strict=True))
    if repeated or not getattr(array.flags, "writeable", True):  # arrays of GPUs always are
        raise StateError(f"{op}: the memory of input is read-only, or stands for several elements; call .clone() first")


def update(op, function, input, *values, **options):
    """Write function(input, *values) into the memory of input."""
    open_to(op, input, *values, *options.values())
    result = function(input, *values, **options)
    if result.shape != input.shape:
        raise ShapeError(f"{op}: input has shape {input.shape}, the result would have {result.shape}")
    _check_kind(op, result.dtype, input.dtype)
    device.assign(write(input), result.array)
    return input


def _check_kind(op, dtype, own):
    """Refuse elements that those of the type `own` cannot stand for."""
    rank, most = (2 if device.is_floating(one) else int(one.kind != "b") for one in (dtype, own))
    if rank > most:
        hint = f"convert before, as by .to({str(own)!r}), or make a new Tensor"
        raise KindError(f"{op}: input has elements {own}, the result would have {dtype}; {hint}")


# ---- methods ---------------------------------------------------------------------------------------------------------


def add_(input, other, *, alpha=1):
    """Add to input; returns it.

    Math    input = input + alpha * other
    """
    return update("add_", add, input, _scaled_by("add_", other, alpha))


def sub_(input, other, *, alpha=1):
    """Subtract from input; returns it.

    Math    input = input - alpha * other
    """
    return update("sub_", sub, input, _scaled_by("sub_", other, alpha))


def _scaled_by(op, other, alpha):
    alpha = number_of(op, "alpha", bare(alpha))
    return other if alpha == 1 else other * alpha


def mul_(input, other):
    """Multiply input; returns it.

    Math    input = input * other
    """
    return update("mul_", mul, input, other)


def div_(input, other, *, rounding_mode=None):
    """Divide input; returns it. The quotient is rounded as by div.

    Math    input = input / other
    """
    return update("div_", div, input, other, rounding_mode=rounding_mode)


def clamp_(input, min=None, max=None):
    """Limit input to the range from min to max; returns it.

    Math    input = min(max(input, lower), upper)
    """
    return update("clamp_", clamp, input, min, max)


def zero_(input):
    """Write 0 everywhere; returns input."""
    return constant("zero_", input, 0)


def fill_(input, value):
    """Write one number everywhere; returns input."""
    return constant("fill_", input, value)


def copy_(input, src, non_blocking=False):
    """Write the elements of src, of whatever type and device, into input; returns it.

    Types   any; converted to those of input, as by .to()
    non_blocking    is PyTorch's and changes nothing
    """
    open_to("copy_", input, src)
    array = tensor_of("copy_", "src", Tensor(src) if device.is_array(src) else src).array
    if device.broadcast_shapes("copy_", input.array, array) != input.shape:
        raise ShapeError(f"copy_: src has shape {array.shape}, which does not broadcast to {input.shape}")
    _assign(input, (...,), array)
    return input


def constant(op, input, val):
    """Write one number everywhere; returns input."""
    open_to(op, input, val)
    val = bare(val)
    number_in(op, "val", val, input.dtype)
    device.fill(write(input), val)
    return input


def fill(op, input, draw, generator):
    """Write the numbers that draw(source, shape) gives, in float64; returns input."""
    open_to(op, input)
    source = source_of(op, generator)
    with device.naming(op):
        device.assign(write(input), draw(source, input.shape))
    return input


def uniform(op, input, a, b, generator):
    """Write numbers drawn evenly from [a, b); returns input."""
    a, b = float_of(op, "a", a), float_of(op, "b", b)
    if not 0 <= b - a < math.inf:
        raise ShapeError(f"{op}: a is {a} and b {b}, wanted a <= b at a finite distance")
    return fill(op, input, lambda source, shape: source.random(shape) * (b - a) + a, generator)


def normal(op, input, mean, std, generator):
    """Write numbers drawn from the normal distribution; returns input."""
    mean, std = float_of(op, "mean", mean), number_of(op, "std", std, 0)
    return fill(op, input, lambda source, shape: source.standard_normal(shape) * std + mean, generator)


def uniform_(input, a=0.0, b=1.0, generator=None):
    """Write numbers drawn evenly from [a, b); returns input."""
    return uniform("uniform_", input, a, b, generator)


def normal_(input, mean=0.0, std=1.0, generator=None):
    """Write numbers drawn from the normal distribution; returns input."""
    return normal("normal_", input, mean, std, generator)


METHODS = (add_, clamp_, copy_, div_, fill_, mul_, normal_, sub_, uniform_, zero_)

# ---- elements --------------------------------------------------------------------------------------------------------


def setitem(input, key, value):
    """Write a number, a Tensor or an array into the elements that a subscript picks, as getitem picks them."""
    open_to("setitem", input, value)
    if isinstance(value, Tensor) or device.is_array(value):
        array = value.array if isinstance(value, Tensor) else Tensor(value).array
        _check_kind("setitem", array.dtype, input.dtype)
    else:
        array = number_in("setitem", "value", value, input.dtype)
    _assign(input, key, array)


@device.there
def _assign(input, key, array):
    """Write an array into the elements of a leaf that a key picks."""
    basic, arrays = parsed(input.shape, key)
    own = subscript(input.array, (*basic, ...))  # by Ellipsis a view, also of a single element
    places = [slice(None)] * own.ndim
    for first, width, picked in arrays:
        sizes = own.shape[first : first + width]
        flat = within("setitem", picked, math.prod(sizes), negative=True).to(input.device).array
        places[first : first + width] = device.array_module(own).unravel_index(flat, sizes)
    if not array.shape and type(array) is np.ndarray:
        array = array[()]  # a number, which needs no device
    else:
        array = device.move(array, input.device)
        array = device.copy(array) if device.may_share_memory(array, own) else array
    write(input)
    try:
        own[(*places, ...)] = array
    except ValueError as error:
        raise ShapeError(f"setitem: value has shape {array.shape}, which does not fit ({error})") from error
