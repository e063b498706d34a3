"""Convolutional layers and their transposes.

kernel_size, stride, padding, dilation, output_padding  a number, or one for each dimension, vertical first
padding         of a convolution also 'valid', none, or 'same', which with stride 1 keeps the size
groups          the channels are cut into so many parts that do not mix
bias has shape (out_channels,).
The ops refuse windows and padding that are out of range, when they are called.
"""

from dataclasses import InitVar

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import FILTER

from ..core.check import each
from . import functional as F
from .layer import Affine, Positive, Sizes

__all__ = ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"]

TAPS_FIRST = (2, 1, 0)  # filters of one dimension in memory: taps, in-channels, out-channels
LEAST = {"kernel_size": 1, "stride": 1, "dilation": 1, "padding": 0, "output_padding": 0}
USUAL = ("padding", "dilation", "output_padding", "groups", "bias")


class _Convolution(Affine, unnamed=2, usual=USUAL):
    """What all of them have in common; dims is the number of dimensions of the windows."""

    in_channels: Positive
    out_channels: Positive
    kernel_size: Sizes
    stride: Sizes = 1

    def shapes(self):
        layer, into, out = type(self).__name__, self.in_channels, self.out_channels
        for name, least in LEAST.items():
            value = getattr(self, name, 0)
            if name != "padding" or not isinstance(value, str):
                setattr(self, name, each(layer, name, value, self.dims, least))
        for name, channels in (("in_channels", into), ("out_channels", out)):
            if channels % self.groups:
                raise ShapeError(f"{layer}: {name} is {channels}, wanted a multiple of groups={self.groups}")
        filters = (into, out // self.groups) if self.transposed else (out, into // self.groups)
        return (*filters, *self.kernel_size), (out,)


class _Conv(_Convolution):
    """Conv1d and Conv2d."""

    padding: Sizes | str = 0
    dilation: Sizes = 1
    groups: Positive = 1
    bias: InitVar[bool] = True


class Conv1d(_Conv, op=F.conv1d, dims=1, axes=TAPS_FIRST):
    """One-dimensional cross-correlation with learned filters, weight (out_channels, in_channels / groups, P).

    Shapes  (N, in_channels, L) -> (N, out_channels, I), see conv1d; N may be absent
    """


class Conv2d(_Conv, op=F.conv2d, dims=2, axes=FILTER):
    """Two-dimensional cross-correlation with learned filters, weight (out_channels, in_channels / groups, P, Q).

    Shapes  (N, in_channels, H, W) -> (N, out_channels, I, J), see conv2d; N may be absent
    """


# ---- transposes ------------------------------------------------------------------------------------------------------


class _ConvTranspose(_Convolution, transposed=True):
    """ConvTranspose1d and ConvTranspose2d."""

    padding: Sizes = 0
    output_padding: Sizes = 0
    groups: Positive = 1
    bias: InitVar[bool] = True
    dilation: Sizes = 1


class ConvTranspose1d(_ConvTranspose, op=F.conv_transpose1d, dims=1, axes=TAPS_FIRST):
    """The adjoint of Conv1d: longer sequences of shorter ones; weight (in_channels, out_channels / groups, P).

    output_padding  elements that are added at the end of the output, where several sizes would do
    Shapes  (N, in_channels, L) -> (N, out_channels, I), see conv_transpose1d; N may be absent
    """


class ConvTranspose2d(_ConvTranspose, op=F.conv_transpose2d, dims=2, axes=FILTER):
    """The adjoint of Conv2d: larger images of smaller ones; weight (in_channels, out_channels / groups, P, Q).

    output_padding  rows and columns that are added below and to the right, where several sizes would do
    Shapes  (N, in_channels, H, W) -> (N, out_channels, I, J), see conv_transpose2d; N may be absent
    """
