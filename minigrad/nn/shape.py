"""Layers that compute nothing: they put elements elsewhere, or repeat them."""

from minigrad_kernels.errors import KindError, ShapeError

from .. import ops
from ..core.check import integer_of, one_of
from .module import Module

__all__ = [
    "Flatten",
    "Identity",
    "Unflatten",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


class Identity(Module):
    """The input itself, whatever the arguments: a place in a network that does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def forward(self, input):
        return input


class Flatten(Module):
    """The dimensions from start_dim to end_dim made into one: (N, C, H, W) -> (N, C * H * W)."""

    def __init__(self, start_dim=1, end_dim=-1):
        self.start_dim = integer_of("Flatten", "start_dim", start_dim)
        self.end_dim = integer_of("Flatten", "end_dim", end_dim)

    def forward(self, input):
        return ops.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Dimension dim made into several; one of unflattened_size may be -1, which is what remains."""

    def __init__(self, dim, unflattened_size):
        self.dim = integer_of("Unflatten", "dim", dim)
        if not isinstance(unflattened_size, tuple | list):
            raise KindError(f"Unflatten: unflattened_size is {unflattened_size!r}, wanted a tuple of integers")
        for size in unflattened_size:
            integer_of("Unflatten", "unflattened_size", size)
        self.unflattened_size = unflattened_size

    def forward(self, input):
        return ops.unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Upsample(Module):
    """Images of another size, each element taken from the nearest one, or from a mean of near ones.

    size            of the output, or scale_factor, what the size is multiplied by: a number, or one a dimension
    mode, align_corners     as in interpolate
    """

    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None):
        if (size is None) == (scale_factor is None):
            raise ShapeError(f"{type(self).__name__}: size is {size}, scale_factor {scale_factor}; wanted one of them")
        self.size, self.align_corners = size, align_corners
        self.mode = one_of(type(self).__name__, "mode", mode, ("nearest", "linear", "bilinear"))
        several = isinstance(scale_factor, tuple | list)
        self.scale_factor = tuple(map(float, scale_factor)) if several else scale_factor and float(scale_factor)

    def forward(self, input):
        return ops.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self):
        given = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode 'nearest'."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode 'bilinear' and the corners of input and output aligned."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "bilinear", True)
