"""Shapes of a convolution, and what it refuses."""

from math import prod
from numbers import Integral
from typing import NamedTuple

from ..checked import Checked
from ..errors import KindError, ShapeError

__all__ = ["Geometry", "as_tuple", "output_shape"]


def _check_pair(name, value, least):
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or any(isinstance(v, bool) or not isinstance(v, Integral) for v in value)
    ):
        raise KindError(f"conv2d: {name} is {value!r}, wants a pair of integers (vertical, horizontal)")
    if min(value) < least:
        raise ShapeError(f"conv2d: {name} is {value}, wants at least {least}")


def _check_shapes(x_shape, w_shape, bias_shape, groups):
    for name, shape, axes in (("x", x_shape, "(N, C, H, W)"), ("w", w_shape, "(O, C/groups, P, Q)")):
        if len(shape) != 4:
            raise ShapeError(f"conv2d: {name} has shape {shape}, wants 4 axes: {axes}")
    if groups < 1:
        raise ShapeError(f"conv2d: groups is {groups}, wants at least 1")
    if min(w_shape) < 1:
        raise ShapeError(f"conv2d: w has shape {w_shape}, wants no axis of size 0")
    for name, channels, shape in (("x", x_shape[1], x_shape), ("w", w_shape[0], w_shape)):
        if channels % groups:
            raise ShapeError(
                f"conv2d: {name} has {channels} channels (shape {shape}), wants a multiple of groups={groups}"
            )
    if x_shape[1] != w_shape[1] * groups:
        raise ShapeError(
            f"conv2d: x has {x_shape[1]} channels (shape {x_shape}), w expects {w_shape[1] * groups} (groups={groups})"
        )
    if bias_shape is not None and bias_shape != w_shape[:1]:
        raise ShapeError(
            f"conv2d: bias has shape {bias_shape}, w has {w_shape[0]} output channels; wants {w_shape[:1]}"
        )


def output_shape(x_shape, w_shape, bias_shape, stride, padding, dilation, groups):
    """Shape (N, O, I, J) of a convolution.

    Math    I = floor((H + 2*padding - dilation*(P - 1) - 1) / stride) + 1, J likewise
    Shapes  x (N, C, H, W), w (O, C/groups, P, Q), bias (O,) or None; stride, padding, dilation: pairs
    Errors  ValueError for shapes or values that do not fit, TypeError for what is no pair of integers
    """
    shapes, given = (x_shape, w_shape, bias_shape), (stride, padding, dilation, groups)
    if not (type(x_shape) is tuple is type(w_shape)) or (bias_shape is not None and type(bias_shape) is not tuple):
        shapes = None
    elif found := _known.found(shapes, given):
        return found
    shape = _checked_shape(x_shape, w_shape, bias_shape, stride, padding, dilation, groups)
    return shape if shapes is None else _known.keep(shapes, given, shape)


_known = Checked()


def _checked_shape(x_shape, w_shape, bias_shape, stride, padding, dilation, groups):
    bias_shape = None if bias_shape is None else tuple(bias_shape)
    stride, padding, dilation = as_tuple(stride), as_tuple(padding), as_tuple(dilation)
    _check_pair("stride", stride, 1)
    _check_pair("padding", padding, 0)
    _check_pair("dilation", dilation, 1)
    if type(groups) is not int and (isinstance(groups, bool) or not isinstance(groups, Integral)):
        raise KindError(f"conv2d: groups is {groups!r}, wants an integer")
    x_shape, w_shape = tuple(x_shape), tuple(w_shape)
    _check_shapes(x_shape, w_shape, bias_shape, groups)
    padded = tuple(size + 2 * pad for size, pad in zip(x_shape[2:], padding, strict=True))
    reach = tuple(step * (kernel - 1) + 1 for kernel, step in zip(w_shape[2:], dilation, strict=True))
    if padded[0] < reach[0] or padded[1] < reach[1]:
        raise ShapeError(
            f"conv2d: w reaches over {reach} (shape {w_shape}, dilation {dilation}), "
            f"but x with its padding is only {padded} (shape {x_shape}, padding {padding})"
        )
    size = ((p - r) // s + 1 for p, r, s in zip(padded, reach, stride, strict=True))
    return (x_shape[0], w_shape[0], *size)


def as_tuple(value):
    """A list as a tuple, which can be the key of a cache; anything else as it is."""
    return tuple(value) if type(value) is list else value


class Geometry(NamedTuple):
    """A convolution without its data; hashable, so plans are kept by it."""

    x_shape: tuple
    w_shape: tuple
    out_size: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    itemsize: int
    threads: int

    @property
    def depthwise(self):
        """One filter for each channel, which makes one channel."""
        return self.groups == self.x_shape[1] == self.w_shape[0] > 1

    @property
    def work(self):
        """Multiplications of any direction."""
        return self.x_shape[0] * prod(self.out_size) * prod(self.w_shape)
