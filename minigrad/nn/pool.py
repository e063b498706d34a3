"""Pooling layers. kernel_size, stride, padding, dilation: a number, or one for each dimension, vertical first.

stride      kernel_size by default
ceil_mode   whether a window that begins inside the input and ends outside it counts too
"""

from minigrad_kernels.errors import KindError, ShapeError

from .. import ops
from .module import Module
from .options import at_least, each, flag_of, integer_of

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

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        self._make(kernel_size, stride, padding, ceil_mode)
        each(type(self).__name__, "dilation", dilation, self.dims, 1)
        self.dilation = dilation
        self.return_indices = flag_of(type(self).__name__, "return_indices", return_indices)

    def _options(self):
        return self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices

    def extra_repr(self):
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L); with return_indices also where it stood."""

    dims = 1

    def forward(self, input):
        return ops.max_pool1d(input, *self._options())


class MaxPool2d(_MaxPool):
    """The largest element of each window of (N, C, H, W); with return_indices also where it stood in its H * W."""

    dims = 2

    def forward(self, input):
        return ops.max_pool2d(input, *self._options())


class AvgPool1d(_Pool):
    """The average of each window of (N, C, L); zeros of the padding count, unless count_include_pad is False."""

    dims = 1

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        self._make(kernel_size, stride, padding, ceil_mode)
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, each("AvgPool1d", name, getattr(self, name), 1, 0))
        self.count_include_pad = flag_of("AvgPool1d", "count_include_pad", count_include_pad)

    def forward(self, input):
        options = (self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return ops.avg_pool1d(input, self.kernel_size, *options)


class AvgPool2d(_Pool):
    """The average of each window of (N, C, H, W), or its sum over divisor_override.

    count_include_pad   whether zeros of the padding count
    """

    dims = 2

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        self._make(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = flag_of("AvgPool2d", "count_include_pad", count_include_pad)
        if divisor_override is not None and not integer_of("AvgPool2d", "divisor_override", divisor_override):
            raise ShapeError("AvgPool2d: divisor_override is 0, wanted another number or None")
        self.divisor_override = divisor_override

    def forward(self, input):
        options = (self.ceil_mode, self.count_include_pad, self.divisor_override)
        return ops.avg_pool2d(input, self.kernel_size, self.stride, self.padding, *options)


class AdaptiveAvgPool2d(Module):
    """The average over output_size windows that cover the image evenly; None keeps a size."""

    def __init__(self, output_size):
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        if len(sizes) != 2 or output_size is None:
            raise KindError(f"AdaptiveAvgPool2d: output_size is {output_size!r}, wanted a number or a pair")
        for size in sizes:
            if size is not None:
                at_least("AdaptiveAvgPool2d", "output_size", size, 0)
        self.output_size = output_size

    def forward(self, input):
        return ops.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"
