"""Padding layers. padding: a width for all sides, or one a side, (left, right) or (left, right, top, bottom).

Negative widths cut off.
"""

from .. import ops
from ..core.check import each, number_of
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ZeroPad1d",
    "ZeroPad2d",
]

ANY = -(1 << 63)


class _Pad(Module):
    """Keeps a width for each side."""

    def __init__(self, padding):
        self.padding = each(type(self).__name__, "padding", padding, 2 * self.dims, ANY)

    def forward(self, input):
        return ops.pad(input, self.padding, self.mode)

    def extra_repr(self):
        return f"{self.padding}"


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


class _ConstantPad(_Pad):
    """One value around the input."""

    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = number_of(type(self).__name__, "value", value)

    def forward(self, input):
        return ops.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """One value before and after the input."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """One value around the image."""

    dims = 2


class ZeroPad1d(_Pad):
    """Zeros before and after the input."""

    dims, mode = 1, "constant"


class ZeroPad2d(_Pad):
    """Zeros around the image."""

    dims, mode = 2, "constant"
