"""Layers that compute nothing: they put elements elsewhere, repeat them, or pad.

padding     a width for all sides, or one a side, (left, right) or (left, right, top, bottom); negative widths cut off
"""

from dataclasses import field
from typing import Annotated

from ..core.check import each
from . import functional as F
from .layer import Layer, Sizes
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "Flatten",
    "Identity",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "Unflatten",
    "Upsample",
    "ZeroPad1d",
    "ZeroPad2d",
]

ANY = -(1 << 63)


class Identity(Module):
    """The input itself, whatever the arguments: a place in a network that does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def forward(self, input):
        return input


class Flatten(Layer, op=F.flatten):
    """The dimensions from start_dim to end_dim made into one: (N, C, H, W) -> (N, C * H * W)."""

    start_dim: int = 1
    end_dim: int = -1


class Unflatten(Layer):
    """Dimension dim made into several; one of unflattened_size may be -1, which is what remains."""

    dim: int
    unflattened_size: tuple[int, ...]

    def forward(self, input):
        return F.unflatten(input, self.dim, self.unflattened_size)


def _floats(layer, name, value):
    """The numbers, or the one number, as floats, which PyTorch shows."""
    return tuple(map(float, value)) if isinstance(value, tuple | list) else value and float(value)


class Upsample(Layer, op=F.interpolate):
    """Images of another size, each element taken from the nearest one, or from a mean of near ones.

    size            of the output, or scale_factor, what the size is multiplied by: a number, or one a dimension
    mode, align_corners     as in interpolate
    """

    size: Sizes | None = None
    scale_factor: Annotated[float | tuple[float, ...] | None, _floats] = None
    mode: str = "nearest"
    align_corners: bool | None = field(default=None, repr=False)


# ---- padding ---------------------------------------------------------------------------------------------------------


class _Pad(Layer):
    """Keeps a width for each side."""

    padding: Sizes

    unnamed = 1

    def __post_init__(self):
        super().__post_init__()
        self.padding = each(type(self).__name__, "padding", self.padding, 2 * self.dims, ANY)

    def forward(self, input):
        return F.pad(input, self.padding, self.mode, getattr(self, "value", None))


class ReflectionPad1d(_Pad):
    """The input mirrored in its first and last elements."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The image mirrored in its outermost rows and columns."""

    dims, mode = 2, "reflect"


class ReplicationPad1d(_Pad):
    """The first and last elements repeated."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The outermost rows and columns repeated."""

    dims, mode = 2, "replicate"


class CircularPad1d(_Pad):
    """The input continued by itself, as if its ends met."""

    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    """The image continued by itself, as if opposite edges met."""

    dims, mode = 2, "circular"


class ZeroPad1d(_Pad):
    """Zeros before and after the input."""

    dims, mode = 1, "constant"


class ZeroPad2d(_Pad):
    """Zeros around the image."""

    dims, mode = 2, "constant"


class ConstantPad1d(ZeroPad1d):
    """One value before and after the input."""

    value: float
    unnamed = 0


class ConstantPad2d(ZeroPad2d):
    """One value around the image."""

    value: float
    unnamed = 0
