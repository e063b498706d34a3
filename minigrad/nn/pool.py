"""Pooling layers. kernel_size, stride, padding, dilation: a number or a pair (vertical, horizontal)."""

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.arguments import pair

from .. import ops
from .module import Module
from .options import one_of

__all__ = ["AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d"]


class _Pool(Module):
    """Checks the windows, and keeps them as they were given."""

    def __init__(self, kernel_size, stride, padding, ceil_mode):
        layer = type(self).__name__
        size = pair(layer, "kernel_size", kernel_size, 1)
        self.kernel_size, self.padding, self.ceil_mode = kernel_size, padding, ceil_mode
        self.stride = kernel_size if stride is None else stride
        pair(layer, "stride", self.stride, 1)
        if any(2 * width > length for width, length in zip(pair(layer, "padding", padding, 0), size, strict=True)):
            raise ShapeError(f"{layer}: padding is {padding}, wanted at most half of kernel_size {kernel_size}")


class MaxPool2d(_Pool):
    """The largest element of each window; stride is kernel_size by default. return_indices must be false."""

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        pair("MaxPool2d", "dilation", dilation, 1)
        self.dilation = dilation
        self.return_indices = one_of("MaxPool2d", "return_indices", return_indices, (False,))

    def forward(self, input):
        return ops.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(_Pool):
    """The average of each window; stride is kernel_size by default."""

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        if divisor_override == 0:
            raise ShapeError("AvgPool2d: divisor_override is 0, wanted another number or None")
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input):
        options = (self.ceil_mode, self.count_include_pad, self.divisor_override)
        return ops.avg_pool2d(input, self.kernel_size, self.stride, self.padding, *options)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """The average over output_size windows that cover the image evenly; None keeps a size."""

    def __init__(self, output_size):
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        if len(sizes) != 2:
            raise KindError(f"AdaptiveAvgPool2d: output_size is {output_size!r}, wanted a number or a pair")
        pair("AdaptiveAvgPool2d", "output_size", tuple(1 if size is None else size for size in sizes), 1)
        self.output_size = output_size

    def forward(self, input):
        return ops.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"
