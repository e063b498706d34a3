"""Convolution and its gradients on CUDA: how the work is cut, which rung of the ladder runs, and what its kernel gets.

Rungs, lowest first: plain, the formula; tiled, tiles of a matrix product that is gathered from the images, of the
forward direction alone and never chosen; register, blocks of sums in registers, for few channels, and for channels that
no 128-bit load suits; narrow and vector, tiles of two widths and 128-bit loads; product, for filters of one pixel,
which are matrices; tensor, products on tensor cores, with copies that travel by themselves. Groups of one channel run
plain. On each rung from register on, long sums of few results are cut into slices, which a second launch adds.

The weight gradient of one group, P*Q*C/G rows (p, q, c) by O/G columns, is the product of the input, gathered as the
filter reads it, with g. Its sums run over the N*I*J pixels, so on each rung but product a slice is a run of pixels.

Float64 runs on the plain rung. Float16 and bfloat16 run on tensor, unless `fits` or the place of an array says that the
launcher is to widen them. In the mode tf32, float32 runs on tensor where channels are multiples of 4.
How work is cut follows from its shape alone, never from the device, and so do the bits of a result.
"""

from collections.abc import Callable
from functools import lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

from ..errors import ShapeError
from ..layout import FILTER, strides_of
from ..matmul.plan import BLOCKS, LIMIT, MOST, blocks_of, cut_of
from ..toolchain.cuda.memory import View, choose, kept
from . import cuda_register, cuda_tensor, cuda_tiled, cuda_vector
from .cuda_gather import MOST_TAPS, QUAD, tables_of
from .cuda_plain import THREADS, plain_forward, plain_input_grad, plain_weight_grad
from .geometry import output_shape

RUNGS = ("plain", "tiled", "register", "narrow", "vector", "product", "tensor")
TILES = {"narrow": (128, 16), "vector": (128, 64)}  # pixels and channels; of the weight gradient rows and columns of dw
WEIGHT_TILES = {name: (cuda_vector.WEIGHT_ROWS, columns) for name, columns in (("narrow", 32), ("vector", 64))}
CHUNK = {"tf32": 4, "float16": 8, "bfloat16": 8}  # of what tensor cores multiply: elements in one asynchronous copy
FEW = 3  # channels that are made, up to which tiles are not worth their empty columns
NARROW = 32  # and up to which a narrow tile suits: columns that nobody needs are multiplied as well
REGISTER_ROWS = 48  # of dw: up to so many suit the rung register better than vector, if nothing is strided
PRODUCT = 16  # channels and filters, up to which a product of matrices is not worth its empty tiles, for dw
ROOM = 1 << 10  # places beyond the last element that kernels count to
FAR = 1 << 30  # places that kernels reckon with, from which on they might not be 32-bit
REACH = 1 << 28  # of a walk over padded images
POINT = (1, 1), (1, 1), (0, 0), (1, 1)  # filter, stride, padding and dilation of a product of matrices


@lru_cache(maxsize=1024)
def fits(direction, x_shape, w_shape, stride, padding, dilation, groups):
    """Whether a direction has a kernel for elements of 16 bits, at addresses that suit it: for multiples of 8 channels
    in a group, and strides that are not huge. Others are widened to float32 by the launcher.
    """
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    work = _work_of(direction, x_shape, w_shape, out_size, stride, padding, dilation, groups, "float16")
    return "tensor" in _fitting(work, "float16", True)


# ---- the work and its cut --------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """A direction of a convolution: one gather, as cuda_gather.py says.

    source, result: (height, width, channels) of an image that is gathered and of one that is made; for the weight
                    gradient those of x and of g
    settings        filter, stride, padding, dilation, each vertical and horizontal
    pixels          of the largest class
    steps           taps and channels that a pixel reads at most: the length of its sum, or the rows of dw
    size            elements of the result, whose sums are cut into `slices`, each of so many terms (depth)
    """

    direction: str
    images: int
    source: tuple[int, int, int]
    result: tuple[int, int, int]
    settings: tuple[tuple[int, int], ...]
    groups: int
    pixels: int
    classes: int
    steps: int
    size: int
    slices: int
    depth: int

    @property
    def adjoint(self):
        return self.direction == "input_grad"

    @property
    def of_weights(self):
        return self.direction == "weight_grad"

    @property
    def reads(self):
        """Channels of the source in a group."""
        return self.source[2] // self.groups

    @property
    def makes(self):
        """Channels of the result in a group."""
        return self.result[2] // self.groups

    @property
    def tables(self):
        return tables_of(self.adjoint, self.source, self.result, *self.settings, self.makes * self.source[2])


def _op(direction):
    return "conv2d" if direction == "forward" else f"conv2d {direction}"


@lru_cache(maxsize=1024)
def _work_of(direction, x_shape, w_shape, out_size, stride, padding, dilation, groups, kind):
    """Errors  ValueError for sizes that are not 32-bit"""
    (images, channels, *size), kernel, adjoint = x_shape, w_shape[2:], direction == "input_grad"
    source, result, taps, apart = (*size, channels), (*out_size, w_shape[0]), kernel, (1, 1)
    if adjoint:
        hops = [s // gcd(s, d) for s, d in zip(stride, dilation, strict=True)]
        source, result, apart = result, source, stride
        taps = tuple(-(-k // hop) for k, hop in zip(kernel, hops, strict=True))
    pixels = images * prod(-(-n // s) for n, s in zip(result[:2], apart, strict=True))
    classes, steps = prod(apart), prod(taps) * (source[2] // groups)
    work = Work(
        direction, images, source, result, (kernel, stride, padding, dilation), groups, pixels, classes, steps,
        images * prod(result), 1, steps,
    )  # fmt: skip
    axes = zip(size, padding, stride, dilation, kernel, strict=True)
    for what, number, limit in (
        ("the elements of x", prod(x_shape), LIMIT - ROOM),
        ("the elements of out", images * w_shape[0] * prod(out_size), LIMIT - ROOM),
        ("the elements of w", prod(w_shape), LIMIT - ROOM),
        ("a walk over x", max(n + 2 * pad + step + apart * taps for n, pad, step, apart, taps in axes), REACH),
    ):
        if number >= limit:
            raise ShapeError(f"{_op(direction)}: {what} takes {number}, wants less than {limit}; split the images")
    if work.of_weights:
        fill = FILL_ON_CORES if kind in CHUNK else FILL
        slices, depth = (1, pixels) if kind == "float64" else _slices_of(pixels, prod(w_shape), fill)
        return work._replace(size=prod(w_shape), slices=slices, depth=depth)
    tile = cuda_tensor.TILE if kind in CHUNK else TILES["narrow" if work.makes <= NARROW else "vector"]
    blocks = classes * groups * blocks_of(pixels, tile[0]) * blocks_of(work.makes, tile[1])
    if kind in CHUNK or work.makes > FEW:
        slices, depth = cut_of(steps, blocks, enough=BLOCKS if kind in CHUNK else 2 * BLOCKS)
        return work._replace(slices=slices, depth=depth)
    return work


# Of the weight gradient.
TILE = 96 * 64  # elements of dw: about what one block of threads owns, in any rung
FILL, FILL_ON_CORES = 768, 384  # how many blocks a problem should have before its sums are cut no further
LEAST_PIXELS, MOST_PIXELS = 256, 2048  # of a slice: fewer are not worth writing the sums, more would round too much
ROUND = 32  # a slice has a multiple of so many pixels
SUMS_ROOM = 1 << 23  # elements of all slices' sums together, unless more are needed to fill a GPU
MOST_SLICES = 4096  # what one thread of the last kernel adds is a 32nd of them


def _slices_of(pixels, size, fill):
    """(slices of the sums over so many pixels, for so many elements of dw; pixels of a slice)"""
    fill = min(fill // blocks_of(size, TILE), pixels // LEAST_PIXELS)
    short = min(blocks_of(pixels, MOST_PIXELS), SUMS_ROOM // size, MOST_SLICES)
    depth = blocks_of(blocks_of(pixels, max(1, fill, short)), ROUND) * ROUND
    return max(1, blocks_of(pixels, max(depth, 1))), depth


# ---- the choice ------------------------------------------------------------------------------------------------------


def _fitting(work, kind, at_multiple):
    """The rungs that take a type, and such work; at_multiple: whether all arrays begin at multiples of 16 bytes."""

    def loads(many):
        """Whether so many channels can be loaded at once."""
        aside = work.adjoint or work.makes % many == 0  # filters of an input gradient are read along the other axis
        return at_multiple and work.reads % many == 0 and aside

    kernel, _, padding, dilation = work.settings
    axes = zip(work.source[:2], work.result[:2], kernel, padding, dilation, strict=True)
    reach = prod(max(read, made) + pad + apart * taps for read, made, taps, pad, apart in axes) * work.source[2]
    parts = work.classes * work.groups * work.slices
    tiles = parts <= MOST and work.makes <= MOST * 16 and reach < FAR and max(kernel) <= MOST_TAPS
    fits = {
        "plain": True,
        "tiled": work.direction == "forward" and work.groups == 1,
        "register": tiles,
        "narrow": tiles and loads(QUAD),
        "vector": tiles and loads(QUAD),
        "product": (*work.settings, work.groups) == (*POINT, 1),
        "tensor": kind in CHUNK and tiles and loads(CHUNK[kind]),
    }
    own = {"float32": RUNGS, "tf32": RUNGS, "float64": ("plain",)}.get(kind, ("tensor",))
    return [name for name in own if fits[name]]


def _preferred(work):
    """Rungs that suit the shape, the best first."""
    tile, (_, stride, _, _) = "narrow" if work.makes <= NARROW else "vector", work.settings
    if not work.of_weights:
        return ("tensor", "product", *((tile, "register") if work.makes > FEW else ()))
    if work.groups > 1 and work.reads == work.makes == 1:
        return ()
    small = work.steps <= REGISTER_ROWS and max(stride) == 1
    product = ("product",) if min(work.reads, work.makes) > PRODUCT else ()
    return ("tensor", *product, *(("register", tile) if small else (tile, "register")))


# ---- plans -----------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What starting a direction takes: a kernel, or for the rung product nothing.

    arguments   from (first operand of the kernel, second, bias, residual, result, flags); of a kernel that sees arrays
                with shapes, `relu` stands in the place of flags
    """

    name: str
    work: Work
    slices: int
    kernel: Any = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    arguments: Callable | None = None
    shared: int = 0


@lru_cache(maxsize=1024)
def plan_of(direction, x_shape, w_shape, out_size, settings, kind, at_multiple, rung=None):
    """The Plan of a direction.

    settings: stride, padding, dilation, groups; kind: name of a type, or tf32; at_multiple: whether all arrays begin
    at multiples of 16 bytes; rung: its name; None: the one that suits the shape
    Errors  ValueError for a rung that does not exist or does not fit, and for sizes that are not 32-bit
    """
    work = _work_of(direction, x_shape, w_shape, out_size, *settings, kind)
    fitting = _fitting(work, kind, at_multiple)
    rung = rung or next((name for name in _preferred(work) if name in fitting), "plain")
    plan = Plan(choose(_op(direction), rung, fitting), work, work.slices)
    if plan.name == "product":
        return plan
    if plan.name in ("plain", "tiled"):
        return _plan_of_arrays(plan, work, w_shape, 8 if kind == "float64" else 4)
    return _weight_plan(plan, work, kind, at_multiple) if work.of_weights else _gather_plan(plan, work, kind)


def _plan_of_arrays(plan, work, w_shape, itemsize):
    """Of the rungs whose kernels see arrays with shapes."""
    settings = [size for pair in work.settings[1:] for size in pair]
    plan = plan._replace(grid=(blocks_of(work.size, THREADS), work.slices), block=(THREADS,))
    if work.of_weights:
        shape = work.slices, *w_shape  # of the result, which has one more axis, the slices
        strides = prod(w_shape) * itemsize, *strides_of(w_shape, FILTER, itemsize)

        def arguments(x, g, _bias, _residual, out, _flags):
            return x, g, View(out.view(x.dtype), shape, strides), work.depth, *settings

        return plan._replace(kernel=plain_weight_grad[itemsize], arguments=arguments)
    plan = plan._replace(
        kernel=(plain_input_grad if work.adjoint else plain_forward)[itemsize],
        grid=plan.grid[:1],
        arguments=(lambda g, w, _bias, _residual, dx, _relu: (g, w, dx, *settings))
        if work.adjoint
        else (lambda x, w, bias, residual, out, relu: (x, w, bias, residual, out, *settings, relu)),
    )
    if plan.name == "plain":
        return plan
    size = cuda_tiled.TILE
    grid = blocks_of(work.pixels, size), blocks_of(work.makes, size)
    return plan._replace(kernel=cuda_tiled.tiled, grid=grid, block=(size, size))


def _gather_plan(plan, work, kind):
    shared, tables = 0, work.tables
    if plan.name == "tensor":
        tile, kernel, shared = cuda_tensor.TILE, cuda_tensor.TENSOR[kind, work.adjoint], cuda_tensor.shared_of(kind)
    elif plan.name == "register":
        tile = cuda_register.pixels_of(work.makes), cuda_register.WIDEST
        kernel, shared = cuda_register.REGISTER[work.adjoint], cuda_register.shared_of(work.makes, work.depth)
    else:
        tile = TILES[plan.name]
        kernel = cuda_vector.VECTOR[tile][work.adjoint]
    sizes = (
        work.images, prod(work.source), work.source[2], prod(work.result[:2]), work.result[2], work.reads, work.makes,
        work.groups, work.depth, work.slices,
    )  # fmt: skip
    blocks = blocks_of(work.pixels, tile[0]), blocks_of(work.makes, tile[1])
    return plan._replace(
        kernel=kernel,
        grid=(*blocks, work.classes * work.groups * work.slices),
        block=(kernel.threads,),
        arguments=lambda source, w, *end: (source, w, *end[:3], kept(tables, source), *sizes, end[3]),
        shared=shared,
    )


def _weight_plan(plan, work, kind, at_multiple):
    (_, taps), stride, padding, dilation = work.settings
    sizes, tables = (work.pixels, work.depth, work.steps, work.makes, work.reads), work.tables
    if plan.name == "register":
        down, across, lanes, blocks = cuda_register.shares_of(work.steps, work.makes)
        run = cuda_register.run_of(work.reads, taps, dilation, at_multiple and work.makes % QUAD == 0)
        sizes = *sizes, prod(work.source), work.result[2], down, across, lanes
        return plan._replace(
            kernel=cuda_register.WEIGHT_REGISTER[run],
            grid=(blocks, work.slices, work.groups),
            block=(lanes * down * across,),
            arguments=lambda x, g, _bias, _residual, out, _flags: (x, g, out, kept(tables, x), *sizes),
            shared=lanes // 2 * down * across * cuda_register.WEIGHT_SUMS * 4,
        )
    on_cores, shared = plan.name == "tensor", 0
    if on_cores:
        kernel, tile, hop = cuda_tensor.WEIGHT_TENSOR[kind], cuda_tensor.TILE, cuda_tensor.hop_of(kind)
        shared = cuda_tensor.shared_of(kind)
    else:
        tile, hop = WEIGHT_TILES[plan.name], cuda_vector.WEIGHT_HOP
        kernel = cuda_vector.WEIGHT_VECTOR[tile[1]]
    walk = _walk(work.source, work.result, stride, hop)
    sizes = *sizes, taps, *work.source, *work.result, *stride, *padding, *dilation, *walk
    return plan._replace(
        kernel=kernel,
        grid=(blocks_of(work.steps, tile[0]) * blocks_of(work.makes, tile[1]), work.slices, work.groups),
        block=(kernel.threads,),
        arguments=lambda x, g, _bias, _residual, out, flags: (x, g, out, *sizes, *[flags] * on_cores),
        shared=shared,
    )


def _walk(source, result, stride, hop):
    """(move_h, move_w, move, back_w, back_h) of a thread that goes so many pixels further each time.

    The first three lead to the pixel that many columns, rows and images on, the others back from behind the end
    of a row, and of an image. They may pass 32 bits where a thread walks out of x, which is not read then.
    """
    (height, width, channels), (i, j, _), (stride_h, stride_w) = source, result, stride
    lines, right = divmod(hop, j)
    images, down = divmod(lines, i)
    move = (images * height + down * stride_h) * width + right * stride_w
    back_w, back_h = stride_h * width - j * stride_w, (height - i * stride_h) * width
    wrapped = ((pixels * channels + LIMIT) % (2 * LIMIT) - LIMIT for pixels in (move, back_w, back_h))
    return down * stride_h, right * stride_w, *wrapped
