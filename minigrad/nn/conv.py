"""Convolutional layers and their transposes.

kernel_size, stride, padding, dilation, output_padding  a number, or one for each dimension, vertical first
padding         or 'valid', none, or 'same', which with stride 1 keeps the size
groups          the channels are cut into so many parts that do not mix
padding_mode    what stands in the padding: 'zeros', or elements of the input as 'reflect', 'replicate' and 'circular'
                of pad choose them
Parameters start even in +-1 / sqrt(K) for K elements of weight[0], as PyTorch's do; bias has shape (out_channels,).
"""

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import FILTER

from .. import ops
from ..core.check import each, flag_of, integer_of, one_of
from .linear import init_affine
from .module import Module
from .parameter import parameter

__all__ = ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"]

ORDERS = {3: (2, 1, 0), 4: FILTER}  # of the axes of filters in memory: taps, in-channels, out-channels
MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What all of them are made of."""

    transposed = False

    def _make(self, in_channels, out_channels, kernel_size, stride, dilation, groups):
        """Check and keep the options."""
        layer = type(self).__name__
        self.in_channels = integer_of(layer, "in_channels", in_channels, 1)
        self.out_channels = integer_of(layer, "out_channels", out_channels, 1)
        self.kernel_size = each(layer, "kernel_size", kernel_size, self.dims, 1)
        self.stride = each(layer, "stride", stride, self.dims, 1)
        self.dilation = each(layer, "dilation", dilation, self.dims, 1)
        self.groups = integer_of(layer, "groups", groups, 1)
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ShapeError(f"{layer}: {name} is {getattr(self, name)}, wanted a multiple of groups={self.groups}")

    def _make_parameters(self, bias, device, dtype):
        layer = type(self).__name__
        into, out = self.in_channels, self.out_channels
        shape = (into, out // self.groups) if self.transposed else (out, into // self.groups)
        order = ORDERS[2 + self.dims]
        self.weight = parameter(layer, (*shape, *self.kernel_size), device, dtype, order)
        vector = parameter(layer, (out,), device, dtype) if flag_of(layer, "bias", bias) else None
        self.register_parameter("bias", vector)
        self.reset_parameters()

    def reset_parameters(self, generator=None):
        """Draw the parameters anew."""
        init_affine(self, generator)

    def extra_repr(self):
        none, one = (0,) * self.dims, (1,) * self.dims
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}",
            f"padding={self.padding}" if self.padding != none else "",
            f"dilation={self.dilation}" if self.dilation != one else "",
            f"output_padding={self.output_padding}" if self.output_padding != none else "",
            f"groups={self.groups}" if self.groups != 1 else "",
            "bias=False" if self.bias is None else "",
            f"padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "",
        ]
        return ", ".join(part for part in parts if part)


class _Conv(_Convolution):
    """Conv1d and Conv2d."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        layer = type(self).__name__
        self._make(in_channels, out_channels, kernel_size, stride, dilation, groups)
        self.output_padding = (0,) * self.dims
        self.padding_mode = one_of(layer, "padding_mode", padding_mode, MODES)
        if not isinstance(padding, str):
            padding = each(layer, "padding", padding, self.dims, 0)
        elif one_of(layer, "padding", padding, ("valid", "same")) == "same" and max(self.stride) > 1:
            raise ShapeError(f"{layer}: padding is 'same' and stride {self.stride}, wanted stride 1")
        self.padding = padding
        self._make_parameters(bias, device, dtype)

    def _padded(self, input):
        """(the input between what padding_mode puts around it, the zeros that are still to be added)."""
        if self.padding_mode == "zeros":
            return input, self.padding
        widths = [(width, width) for width in self.padding] if isinstance(self.padding, tuple) else []
        if self.padding == "same":
            reach = [d * (size - 1) for d, size in zip(self.dilation, self.kernel_size, strict=True)]
            widths = [(total // 2, total - total // 2) for total in reach]
        widths = [width for pair in reversed(widths) for width in pair]
        return ops.pad(input, widths, self.padding_mode) if any(widths) else input, 0

    def _arguments(self, input):
        input, padding = self._padded(input)
        return input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups


class Conv1d(_Conv):
    """One-dimensional cross-correlation with learned filters, weight (out_channels, in_channels / groups, P).

    Shapes  (N, in_channels, L) -> (N, out_channels, I), see conv1d; N may be absent
    """

    dims = 1

    def forward(self, input):
        return ops.conv1d(*self._arguments(input))


class Conv2d(_Conv):
    """Two-dimensional cross-correlation with learned filters, weight (out_channels, in_channels / groups, P, Q).

    Shapes  (N, in_channels, H, W) -> (N, out_channels, I, J), see conv2d; N may be absent
    """

    dims = 2

    def forward(self, input):
        return ops.conv2d(*self._arguments(input))


# ---- transposes ------------------------------------------------------------------------------------------------------


class _ConvTranspose(_Convolution):
    """ConvTranspose1d and ConvTranspose2d."""

    transposed = True

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        *,
        device=None,
        dtype=None,
    ):
        layer = type(self).__name__
        self._make(in_channels, out_channels, kernel_size, stride, dilation, groups)
        self.padding = each(layer, "padding", padding, self.dims, 0)
        self.output_padding = each(layer, "output_padding", output_padding, self.dims, 0)
        self.padding_mode = "zeros"
        self._make_parameters(bias, device, dtype)

    def _arguments(self, input):
        options = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return input, self.weight, self.bias, *options


class ConvTranspose1d(_ConvTranspose):
    """The adjoint of Conv1d: longer sequences of shorter ones; weight (in_channels, out_channels / groups, P).

    output_padding  elements that are added at the end of the output, where several sizes would do
    Shapes  (N, in_channels, L) -> (N, out_channels, I), see conv_transpose1d; N may be absent
    """

    dims = 1

    def forward(self, input):
        return ops.conv_transpose1d(*self._arguments(input))


class ConvTranspose2d(_ConvTranspose):
    """The adjoint of Conv2d: larger images of smaller ones; weight (in_channels, out_channels / groups, P, Q).

    output_padding  rows and columns that are added below and to the right, where several sizes would do
    Shapes  (N, in_channels, H, W) -> (N, out_channels, I, J), see conv_transpose2d; N may be absent
    """

    dims = 2

    def forward(self, input):
        return ops.conv_transpose2d(*self._arguments(input))
