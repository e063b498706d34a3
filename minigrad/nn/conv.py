"""The convolutional layer."""

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.toolchain.arguments import pair

from .. import ops
from .linear import init_affine
from .module import Module
from .options import at_least, one_of, parameter

__all__ = ["Conv2d"]


class Conv2d(Module):
    """Two-dimensional cross-correlation with learned filters.

    kernel_size, stride, padding, dilation  a number or a pair (vertical, horizontal)
    padding         or 'valid', none, or 'same', which with stride 1 keeps the size
    groups          the channels are cut into so many parts that do not mix
    weight (out_channels, in_channels / groups, *kernel_size) and bias (out_channels,) start even in
    +-1 / sqrt(in_channels / groups * P * Q), as PyTorch's do.
    Shapes  (N, in_channels, H, W) -> (N, out_channels, I, J), see conv2d
    """

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
        device="cpu",
        dtype=None,
    ):
        self.in_channels = at_least("Conv2d", "in_channels", in_channels, 1)
        self.out_channels = at_least("Conv2d", "out_channels", out_channels, 1)
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size, 1)
        self.stride = pair("Conv2d", "stride", stride, 1)
        self.dilation = pair("Conv2d", "dilation", dilation, 1)
        self.groups = at_least("Conv2d", "groups", groups, 1)
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ShapeError(f"Conv2d: {name} is {getattr(self, name)}, wanted a multiple of groups={self.groups}")
        self.padding_mode = one_of("Conv2d", "padding_mode", padding_mode, ("zeros",))
        self.padding = self._padding(padding)
        shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.weight = parameter("Conv2d", shape, device, dtype)
        self.register_parameter("bias", parameter("Conv2d", shape[:1], device, dtype) if bias else None)
        self.reset_parameters()

    def _padding(self, padding):
        if not isinstance(padding, str):
            return pair("Conv2d", "padding", padding, 0)
        if one_of("Conv2d", "padding", padding, ("valid", "same")) == "same" and self.stride != (1, 1):
            raise ShapeError(f"Conv2d: padding is 'same' and stride {self.stride}, wanted stride 1")
        return padding

    def reset_parameters(self, generator=None):
        """Draw the parameters anew."""
        init_affine(self, generator)

    def forward(self, input):
        padding = self.padding
        if padding == "valid":
            padding = 0
        elif padding == "same":
            total = [d * (size - 1) for d, size in zip(self.dilation, self.kernel_size, strict=True)]
            padding = tuple(width // 2 for width in total)
            if any(width % 2 for width in total):  # the odd one goes below and to the right
                input = ops.pad(input, (0, total[1] % 2, 0, total[0] % 2))
        return ops.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0, 0):
            text += f", padding={self.padding!r}" if isinstance(self.padding, tuple) else f", padding={self.padding}"
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")
