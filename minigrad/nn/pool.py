"""Pooling layers. kernel_size, stride, padding, dilation: a number, or one for each dimension, vertical first.

stride      kernel_size by default
ceil_mode   whether a window that begins inside the input and ends outside it counts too
"""

from minigrad_kernels.errors import KindError, ShapeError

from .. import ops
from ..core.check import each, flag_of, integer_of
from .module import Module

__all__ = ["AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"]


class _Pool(Module):
    """Checks the windows, and keeps them as they were given."""

    def _make(self, kernel_size, stride, padding, ceil_mode):
        layer = type(self).__name__
        self.kernel_size, self.padding = kernel_size, padding
        self.ceil_mode = flag_of(layer, "ceil_mode", ceil_mode)
        self.stride = kernel_size if stride is None else stride
        sizes = each(layer, "kernel_size", kernel_size, self.dims, 1)
        each(layer, "stride", self.stride, self.dims, 1)
        widths = each(layer, "padding", padding, self.dims, 0)
        if any(2 * width > size for width, size in zip(widths, sizes, strict=True)):
            raise ShapeError(f"{layer}: padding is {padding}, wanted at most half of kernel_size {kernel_size}")

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    """MaxPool1d and MaxPool2d."""

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, *, ceil_mode=False):
        self._make(kernel_size, stride, padding, ceil_mode)
        each(type(self).__name__, "dilation", dilation, self.dims, 1)
        self.dilation = dilation

    def _options(self):
        return self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode

    def extra_repr(self):
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L)."""

    dims = 1

    def forward(self, input):
        return ops.max_pool1d(input, *self._options())


class MaxPool2d(_MaxPool):
    """The largest element of each window of (N, C, H, W)."""

    dims = 2

    def forward(self, input):
        return ops.max_pool2d(input, *self._options())


class _AvgPool(_Pool):
    """AvgPool1d and AvgPool2d."""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        self._make(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def _options(self):
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad


class AvgPool1d(_AvgPool):
    """The average of each window of (N, C, L); zeros of the padding count, unless count_include_pad is False."""

    dims = 1

    def _make(self, *windows):
        super()._make(*windows)
        for name in ("kernel_size", "stride", "padding"):  # which PyTorch shows as tuples
            setattr(self, name, each("AvgPool1d", name, getattr(self, name), 1, 0))

    def forward(self, input):
        return ops.avg_pool1d(input, *self._options())


class AvgPool2d(_AvgPool):
    """The average of each window of (N, C, H, W); zeros of the padding count, unless count_include_pad is False."""

    dims = 2

    def forward(self, input):
        return ops.avg_pool2d(input, *self._options())


class AdaptiveAvgPool2d(Module):
    """The average over output_size windows that cover the image evenly; None keeps a size."""

    def __init__(self, output_size):
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        if len(sizes) != 2 or output_size is None:
            raise KindError(f"AdaptiveAvgPool2d: output_size is {output_size!r}, wanted a number or a pair")
        for size in sizes:
            if size is not None:
                integer_of("AdaptiveAvgPool2d", "output_size", size, 0)
        self.output_size = output_size

    def forward(self, input):
        return ops.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"
