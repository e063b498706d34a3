"""How the CUDA kernels see a convolution or its input gradient, and how they cut its work: by its shape alone.

Nothing here depends on the device, so that neither do the bits of a result.
"""

from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from ..errors import ShapeError
from ..matmul.plan import BLOCKS, LEAST_DEPTH, LIMIT, WORTH

__all__ = ["CORES", "FEW", "TILE_ON_CORES", "Work", "tile_of", "tiles_of", "work_of"]

ROOM = 1 << 10  # places beyond the last element that kernels count to
FEW = 3  # channels that are made, up to which tiles are not worth their empty columns
TILE_ON_CORES = 128, 64  # pixels and channels
CORES = ("float16", "bfloat16", "tf32")  # what tensor cores multiply


class Work(NamedTuple):
    """A direction of a convolution: one gather, as cuda_parts.py says.

    source, result: (height, width, channels) of an image that is read and of one that is made
    pixels, taps    of the largest class: those of the result, and those of the filter, vertical and horizontal
    tile            the rows and columns that suit it; its sums are cut into `slices` of so many steps (depth)
    """

    adjoint: bool
    images: int
    source: tuple[int, int, int]
    result: tuple[int, int, int]
    settings: tuple[int, ...]  # filter, stride, padding, dilation: vertical, horizontal; groups
    pixels: int
    classes: int
    taps: tuple[int, int]
    tile: tuple[int, int]
    slices: int
    depth: int

    @property
    def groups(self):
        return self.settings[-1]

    @property
    def reads(self):
        """Channels that a group reads."""
        return self.source[2] // self.groups

    @property
    def makes(self):
        """Channels that a group makes."""
        return self.result[2] // self.groups

    @property
    def steps(self):
        """The length of the longest sums."""
        return prod(self.taps) * self.reads

    @property
    def size(self):
        """Elements of the result."""
        return self.images * prod(self.result)

    @property
    def matrices(self):
        """Whether it is a matrix product: each pixel is made of one, in the same order."""
        return self.settings == (1, 1, 1, 1, 0, 0, 1, 1, 1)

    @property
    def reach(self):
        """The farthest place that the kernels work out which sort pixels into classes or reckon with places outside."""
        kernel, stride, padding, dilation = (self.settings[i : i + 2] for i in (0, 2, 4, 6))
        axes = zip(self.source[:2], self.result[:2], kernel, stride, padding, dilation, strict=True)
        far = [(max(read, made) + pad + apart * taps, step) for read, made, taps, step, pad, apart in axes]
        return max(prod(place for place, _ in far) * self.source[2], *(place * step for place, step in far))

    def sizes(self):
        """The integers of the kernels, from the images to the groups."""
        return self.images, *self.source, *self.result, *self.settings


def tiles_of(size, tile):
    """How many tiles cover so many rows or columns."""
    return -(-size // tile)


def _check(op, work):
    numbers = {
        "an image with its padding": max(n + 2 * p for n, p in zip(work.source[:2], work.settings[4:6], strict=True)),
        "the elements of an array": work.images * max(prod(work.source), prod(work.result)),
        "a setting": max(work.settings),
    }
    for what, number in numbers.items():
        if number >= LIMIT - ROOM:
            raise ShapeError(f"{op}: {what} takes {number}, wants less than {LIMIT - ROOM}; split the images")


def tile_of(makes):
    """The tile of the vector rung that suits so many channels: columns that nobody needs are multiplied as well."""
    return (128, 16) if makes <= 32 else (128, 64)


def _cut(steps, blocks):
    """(slices of the sums, steps of a slice). Cut where blocks are too few to fill a GPU, if it repays a launch."""
    slices = min(BLOCKS // blocks, steps // LEAST_DEPTH) if blocks else 0
    if slices > 1:
        depth = -(-steps // (slices * 16)) * 16
        if steps - depth >= WORTH:
            return -(-steps // depth), depth
    return 1, steps


@lru_cache(maxsize=1024)
def work_of(direction, x_shape, w_shape, out_size, stride, padding, dilation, groups, kind="float32"):
    """The Work of "forward" or "input_grad"; kind: of CORES, or another type.

    Errors  ValueError for sizes that are not 32-bit
    """
    adjoint = direction == "input_grad"
    images, channels, *size = x_shape
    x, out = (*size, channels), (*out_size, w_shape[0])
    kernel = w_shape[2:]
    source, result = (out, x) if adjoint else (x, out)
    taps, apart = kernel, (1, 1)
    if adjoint:
        hops = [s // gcd(s, d) for s, d in zip(stride, dilation, strict=True)]
        taps, apart = tuple(-(-k // hop) for k, hop in zip(kernel, hops, strict=True)), stride
    pixels = images * prod(-(-n // s) for n, s in zip(result[:2], apart, strict=True))
    classes, makes = prod(apart), result[2] // groups
    steps = prod(taps) * (source[2] // groups)
    parts = classes * groups
    tile = TILE_ON_CORES if kind in CORES else tile_of(makes)
    blocks = parts * tiles_of(pixels, tile[0]) * tiles_of(makes, tile[1])
    cut = kind in CORES or (kernel != (1, 1) and makes > FEW)
    slices, depth = _cut(steps, blocks) if cut else (1, steps)
    settings = (*kernel, *stride, *padding, *dilation, groups)
    work = Work(adjoint, images, source, result, settings, pixels, classes, taps, tile, slices, depth)
    _check("conv2d" if not adjoint else "conv2d input_grad", work)
    return work
