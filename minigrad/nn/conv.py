"""Convolutional layers and their transposes.

kernel_size, stride, padding, dilation, output_padding  a number, or one for each dimension, vertical first
padding         of a convolution also 'valid', none, or 'same', which with stride 1 keeps the size
groups          the channels are cut into so many parts that do not mix
Parameters start even in +-1 / sqrt(K) for K elements of weight[0], as PyTorch's do; bias has shape (out_channels,).
The ops refuse windows and padding that are out of range, when they are called.
"""

from dataclasses import KW_ONLY, InitVar

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import FILTER

from ..core.check import each
from . import functional as F
from .layer import Positive, Sizes
from .linear import Affine

__all__ = ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"]

ORDERS = {1: (2, 1, 0), 2: FILTER}  # of the axes of filters in memory: taps, in-channels, out-channels
LEAST = {"kernel_size": 1, "stride": 1, "dilation": 1, "padding": 0, "output_padding": 0}
USUAL = ("padding", "dilation", "output_padding", "groups", "bias")


class _Convolution(Affine, unnamed=2, usual=USUAL):
    """What all of them have in common; dims is the number of dimensions of the windows."""

    in_channels: Positive
    out_channels: Positive
    kernel_size: Sizes
    stride: Sizes = 1

    def __post_init__(self, bias, device, dtype):
        super().__post_init__()
        layer = type(self).__name__
        for name, least in LEAST.items():
            value = getattr(self, name, 0)
            if name != "padding" or not isinstance(value, str):
                setattr(self, name, each(layer, name, value, self.dims, least))
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ShapeError(f"{layer}: {name} is {getattr(self, name)}, wanted a multiple of groups={self.groups}")
        into, out = self.in_channels, self.out_channels
        filters = (into, out // self.groups) if self.transposed else (out, into // self.groups)
        self.make_parameters((*filters, *self.kernel_size), out, bias, device, dtype, ORDERS[self.dims])


class _Conv(_Convolution):
    """Conv1d and Conv2d."""

    padding: Sizes | str = 0
    dilation: Sizes = 1
    groups: Positive = 1
    bias: InitVar[bool] = True
    _: KW_ONLY
    device: InitVar[object] = None
    dtype: InitVar[object] = None


class Conv1d(_Conv, op=F.conv1d, dims=1):
    """One-dimensional cross-correlation with learned filters, weight (out_channels, in_channels / groups, P).

    Shapes  (N, in_channels, L) -> (N, out_channels, I), see conv1d; N may be absent
    """


class Conv2d(_Conv, op=F.conv2d, dims=2):
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
    _: KW_ONLY
    device: InitVar[object] = None
    dtype: InitVar[object] = None


class ConvTranspose1d(_ConvTranspose, op=F.conv_transpose1d, dims=1):
    """The adjoint of Conv1d: longer sequences of shorter ones; weight (in_channels, out_channels / groups, P).

    output_padding  elements that are added at the end of the output, where several sizes would do
    Shapes  (N, in_channels, L) -> (N, out_channels, I), see conv_transpose1d; N may be absent
    """


class ConvTranspose2d(_ConvTranspose, op=F.conv_transpose2d, dims=2):
    """The adjoint of Conv2d: larger images of smaller ones; weight (in_channels, out_channels / groups, P, Q).

    output_padding  rows and columns that are added below and to the right, where several sizes would do
    Shapes  (N, in_channels, H, W) -> (N, out_channels, I, J), see conv_transpose2d; N may be absent
    """
