"""Layers that compute nothing: they put elements elsewhere, repeat them, or pad.

padding     a width for all sides, or one a side, (left, right) or (left, right, top, bottom); negative widths cut off
"""

from dataclasses import field

from ..core.check import each
from . import functional as F
from .layer import Layer, Sizes
from .module import Module

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


class Upsample(Layer, op=F.interpolate):
    """Images of another size, each element taken from the nearest one, or from a mean of near ones.

    size            of the output, or scale_factor, what the size is multiplied by: a number, or one a dimension
    mode, align_corners     as in interpolate
    """

    size: Sizes | None = None
    scale_factor: float | tuple[float, ...] | None = None
    mode: str = "nearest"
    align_corners: bool | None = field(default=None, repr=False)


# ---- padding ---------------------------------------------------------------------------------------------------------


class _Pad(Layer, unnamed=1):
    """Keeps a width for each side."""

    padding: Sizes

    def __post_init__(self):
        super().__post_init__()
        self.padding = each(type(self).__name__, "padding", self.padding, 2 * self.dims, ANY)

    def forward(self, input):
        return F.pad(input, self.padding, self.mode, getattr(self, "value", None))


class ReflectionPad1d(_Pad, dims=1, mode="reflect"):
    """The input mirrored in its first and last elements."""


class ReflectionPad2d(_Pad, dims=2, mode="reflect"):
    """The image mirrored in its outermost rows and columns."""


class ReplicationPad1d(_Pad, dims=1, mode="replicate"):
    """The first and last elements repeated."""


class ReplicationPad2d(_Pad, dims=2, mode="replicate"):
    """The outermost rows and columns repeated."""


class CircularPad1d(_Pad, dims=1, mode="circular"):
    """The input continued by itself, as if its ends met."""


class CircularPad2d(_Pad, dims=2, mode="circular"):
    """The image continued by itself, as if opposite edges met."""


class ZeroPad1d(_Pad, dims=1, mode="constant"):
    """Zeros before and after the input."""


class ZeroPad2d(_Pad, dims=2, mode="constant"):
    """Zeros around the image."""


class ConstantPad1d(ZeroPad1d, unnamed=0):
    """One value before and after the input."""

    value: float


class ConstantPad2d(ZeroPad2d, unnamed=0):
    """One value around the image."""

    value: float
