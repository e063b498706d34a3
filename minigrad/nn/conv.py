"""Convolutional layers and their transposes.

kernel_size, stride, padding, dilation, output_padding  a number, or one for each dimension, vertical first
padding         or 'valid', none, or 'same', which with stride 1 keeps the size
groups          the channels are cut into so many parts that do not mix
padding_mode    what stands in the padding: 'zeros', or elements of the input as 'reflect', 'replicate' and 'circular'
                of pad choose them
Parameters start even in +-1 / sqrt(K) for K elements of weight[0], as PyTorch's do; bias has shape (out_channels,).
"""

from dataclasses import KW_ONLY, InitVar
from functools import partial
from typing import Annotated

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import FILTER

from ..core.check import each, one_of
from . import functional as F
from .layer import Positive, Sizes
from .linear import Affine

__all__ = ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"]

ORDERS = {1: (2, 1, 0), 2: FILTER}  # of the axes of filters in memory: taps, in-channels, out-channels
MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Affine):
    """What all of them have in common; dims is the number of dimensions of the windows."""

    in_channels: Positive
    out_channels: Positive
    kernel_size: Sizes
    stride: Sizes = 1

    def __post_init__(self, bias, device, dtype):
        super().__post_init__()
        self._check_each(1, "kernel_size", "stride", "dilation")
        self._check_padding()
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                wanted = f"a multiple of groups={self.groups}"
                raise ShapeError(f"{type(self).__name__}: {name} is {getattr(self, name)}, wanted {wanted}")
        into, out = self.in_channels, self.out_channels
        filters = (into, out // self.groups) if self.transposed else (out, into // self.groups)
        self.make_parameters((*filters, *self.kernel_size), out, bias, device, dtype, ORDERS[self.dims])

    def _check_each(self, least, *names):
        for name in names:
            setattr(self, name, each(type(self).__name__, name, getattr(self, name), self.dims, least))

    def extra_repr(self):
        none, one = (0,) * self.dims, (1,) * self.dims
        usual = {"padding": none, "dilation": one, "output_padding": none, "groups": 1, "bias": True}
        values = {**vars(self), "bias": self.bias is not None}
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, value in {**usual, "padding_mode": "zeros"}.items():
            parts += [f"{name}={values[name]}"] if values.get(name, value) != value else []
        return ", ".join(parts)


class _Conv(_Convolution):
    """Conv1d and Conv2d."""

    padding: Sizes | str = 0
    dilation: Sizes = 1
    groups: Positive = 1
    bias: InitVar[bool] = True
    padding_mode: Annotated[str, partial(one_of, choices=MODES)] = "zeros"
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def _check_padding(self):
        layer = type(self).__name__
        if not isinstance(self.padding, str):
            self._check_each(0, "padding")
        elif one_of(layer, "padding", self.padding, ("valid", "same")) == "same" and max(self.stride) > 1:
            raise ShapeError(f"{layer}: padding is 'same' and stride {self.stride}, wanted stride 1")

    def forward(self, input):
        if self.padding_mode == "zeros":
            return super().forward(input)
        input = F.pad(input, self._widths(), self.padding_mode)
        return self.op(input, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _widths(self):
        """The widths of the padding as pad takes them: of the last dimension first, before and after."""
        totals = [d * (size - 1) for d, size in zip(self.dilation, self.kernel_size, strict=True)]
        if self.padding != "same":
            totals = [0] * self.dims if self.padding == "valid" else [2 * width for width in self.padding]
        return [width for total in reversed(totals) for width in (total // 2, total - total // 2)]


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

    def _check_padding(self):
        self._check_each(0, "padding", "output_padding")


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
