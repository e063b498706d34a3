"""How the CUDA kernels see a weight gradient: a product of matrices that is cut into slices by its shape alone.

dw of one group, P*Q*C/G rows (p, q, c) by O/G columns, is the product of the input, gathered as the filter reads it,
with g. A sum runs over the N*I*J output pixels, of which each slice takes a run.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from ..errors import ShapeError
from .geometry import output_shape

__all__ = ["Problem", "problem_of"]

LIMIT = 1 << 31  # elements: places are 32-bit inside kernels
REACH = 1 << 28  # of a walk over padded images
TILE = 96 * 64  # elements of dw: about what one block of threads owns, in any rung
BLOCKS = 384  # how many blocks a problem should have before its sums are cut no further
LEAST, MOST = 256, 2048  # pixels of a slice: fewer are not worth writing the sums, more would round too much
ROUND = 32  # a slice has a multiple of so many pixels
ROOM = 1 << 23  # elements of all slices' sums together, unless more are needed to fill a GPU
MOST_SLICES = 4096  # what one thread of the last kernel adds is a 32nd of them


class Problem(NamedTuple):
    """A weight gradient without its data."""

    x_shape: tuple
    w_shape: tuple
    out_size: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    rows: int  # of dw, P*Q*C/G
    columns: int  # of dw in one group
    pixels: int  # N*I*J
    depth: int  # pixels of a slice, at most
    slices: int

    @property
    def size(self):
        """Elements of dw."""
        return prod(self.w_shape)

    @property
    def pointwise(self):
        """A product of matrices that lie in memory as they are."""
        shifts = self.stride, self.padding, self.w_shape[2:]
        return shifts == ((1, 1), (0, 0), (1, 1)) and self.groups == 1

    def shapes(self):
        """The arguments SHAPES of the kernels."""
        return (
            self.rows, self.columns, self.w_shape[1], self.w_shape[3],
            *self.x_shape[2:], self.x_shape[1], *self.out_size, self.w_shape[0],
            *self.stride, *self.padding, *self.dilation,
        )  # fmt: skip

    def walk(self, hop):
        """The arguments move_h, move_w, move, back_w, back_h of a thread that goes so many pixels further each time.

        The first three lead to the pixel that many columns, rows and images on, the others back from behind the end
        of a row, and of an image. They may pass 32 bits where a thread walks out of x, which is not read then.
        """
        (i, j), (height, width) = self.out_size, self.x_shape[2:]
        lines, right = divmod(hop, j)
        images, down = divmod(lines, i)
        down, right = down * self.stride[0], right * self.stride[1]
        move = (images * height + down) * width + right
        back_w = self.stride[0] * width - j * self.stride[1]
        back_h = (height - i * self.stride[0]) * width
        return down, right, *(_wrapped(pixels * self.x_shape[1]) for pixels in (move, back_w, back_h))


def _wrapped(number):
    return (number + LIMIT) % (2 * LIMIT) - LIMIT


def _cut(pixels, size):
    """(pixels of a slice, slices)"""
    fill = min(BLOCKS // -(-size // TILE), pixels // LEAST)
    short = min(-(-pixels // MOST), ROOM // size, MOST_SLICES)
    depth = -(-pixels // max(1, fill, short))
    depth = -(-depth // ROUND) * ROUND
    return depth, max(1, -(-pixels // max(depth, 1)))


@lru_cache(maxsize=1024)
def problem_of(x_shape, w_shape, stride, padding, dilation, groups):
    """The Problem of these shapes and settings.

    Errors  ValueError for sizes that are not 32-bit
    """
    out_shape = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)
    for name, shape in (("x", x_shape), ("g", out_shape), ("dw", w_shape)):
        if prod(shape) >= LIMIT:
            raise ShapeError(
                f"conv2d weight_grad: {name} has shape {shape}, {prod(shape)} elements, wants less than {LIMIT}; "
                "split the batch and add"
            )
    reach = max(
        size + 2 * pad + step + apart * taps
        for size, pad, step, apart, taps in zip(x_shape[2:], padding, stride, dilation, w_shape[2:], strict=True)
    )
    if reach >= REACH:
        raise ShapeError(
            f"conv2d weight_grad: stride {stride}, padding {padding} and dilation {dilation} lead {reach} pixels "
            f"over x {x_shape}, wants less than {REACH}"
        )
    rows, columns = prod(w_shape[1:]), w_shape[0] // groups
    pixels = x_shape[0] * prod(out_shape[2:])
    depth, slices = _cut(pixels, prod(w_shape))
    return Problem(
        x_shape, w_shape, out_shape[2:], stride, padding, dilation, groups, rows, columns, pixels, depth, slices
    )  # fmt: skip
