"""Pooling layers. kernel_size, stride, padding, dilation: a number, or one for each dimension, vertical first.

stride      kernel_size by default
ceil_mode   whether a window that begins inside the input and ends outside it counts too
The ops refuse windows that are out of range, when they are called.
"""

from dataclasses import KW_ONLY, field

from . import functional as F
from .layer import Layer, Sizes


class _Pool(Layer):
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0

    def __post_init__(self):
        super().__post_init__()
        self.stride = self.kernel_size if self.stride is None else self.stride


class MaxPool1d(_Pool, op=F.max_pool1d):
    """The largest element of each window of (N, C, L)."""

    dilation: Sizes = 1
    _: KW_ONLY
    ceil_mode: bool = False


class MaxPool2d(MaxPool1d, op=F.max_pool2d):
    """The largest element of each window of (N, C, H, W)."""


class AvgPool1d(_Pool, op=F.avg_pool1d):
    """The average of each window of (N, C, L); zeros of the padding count, unless count_include_pad is False."""

    ceil_mode: bool = field(default=False, repr=False)
    count_include_pad: bool = field(default=True, repr=False)


class AvgPool2d(AvgPool1d, op=F.avg_pool2d):
    """The average of each window of (N, C, H, W); zeros of the padding count, unless count_include_pad is False."""


class AdaptiveAvgPool2d(Layer, op=F.adaptive_avg_pool2d):
    """The average over output_size windows that cover the image evenly; None keeps a size."""

    output_size: int | tuple[int | None, int | None]
