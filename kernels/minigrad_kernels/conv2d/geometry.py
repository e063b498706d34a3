"""Shapes of a convolution, and what it refuses."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from ..errors import ShapeError


@lru_cache(maxsize=1024)
def output_shape(x_shape, w_shape, bias_shape, stride, padding, dilation, groups):
    """Shape (N, O, I, J) of a convolution.

    Math    I = floor((H + 2*padding - dilation*(P - 1) - 1) / stride) + 1, J likewise
    Shapes  x (N, C, H, W), w (O, C/groups, P, Q), bias (O,) or None; stride, padding, dilation: pairs
    Errors  ValueError for shapes or values that do not fit
    """
    made, depth = w_shape[:2]
    if x_shape[1] != depth * groups or groups < 1 or made % groups or min(w_shape) < 1:
        raise ShapeError(
            f"conv2d: x has {x_shape[1]} channels (shape {x_shape}), w takes {depth * groups} and makes {made} (shape "
            f"{w_shape}) with groups={groups}; wants no axis of size 0, equal channels, and groups of one size"
        )
    if bias_shape not in (None, (made,)):
        raise ShapeError(f"conv2d: bias has shape {bias_shape}, w makes {made} channels; wants {(made,)}")
    padded = tuple(size + 2 * pad for size, pad in zip(x_shape[2:], padding, strict=True))
    reach = tuple(step * (kernel - 1) + 1 for kernel, step in zip(w_shape[2:], dilation, strict=True))
    if padded[0] < reach[0] or padded[1] < reach[1]:
        raise ShapeError(
            f"conv2d: w reaches over {reach} (shape {w_shape}, dilation {dilation}), "
            f"but x with its padding is only {padded} (shape {x_shape}, padding {padding})"
        )
    size = ((p - r) // s + 1 for p, r, s in zip(padded, reach, stride, strict=True))
    return (x_shape[0], w_shape[0], *size)


class Geometry(NamedTuple):
    """A convolution without its data; hashable, so plans are kept by it."""

    x_shape: tuple
    w_shape: tuple
    out_size: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    itemsize: int
    threads: int

    @property
    def depthwise(self):
        """One filter for each channel, which makes one channel."""
        return self.groups == self.x_shape[1] == self.w_shape[0] > 1

    @property
    def work(self):
        """Multiplications of any direction."""
        return self.x_shape[0] * prod(self.out_size) * prod(self.w_shape)
