"""Convolution and its gradients on CUDA: how the work is cut, which rung of the ladder runs, and what its kernel gets.

Rungs, lowest first: plain, the formula; tiled, tiles of a matrix product that is gathered from the images, of the
forward direction alone and never chosen; register, blocks of sums in registers, for few channels, and for channels that
no 128-bit load suits; vector, tiles of two sizes and 128-bit loads; tensor, products on tensor cores, with copies that
travel by themselves; split, long sums of few results in slices; product, for filters of one pixel, which are matrices.
Groups of one channel run plain.

The weight gradient of one group, P*Q*C/G rows (p, q, c) by O/G columns, is the product of the input, gathered as the
filter reads it, with g. A sum runs over the N*I*J pixels, of which each slice takes a run, on any rung but product.

Float64 runs on the plain rung. Float16 and bfloat16 run on tensor, unless `fits` or the place of an array says that the
launcher is to widen them. In the mode tf32, float32 runs on tensor where channels are multiples of 4.
How work is cut follows from its shape alone, never from the device, and so do the bits of a result.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import gcd, prod
from typing import Any, NamedTuple

from ..errors import ShapeError
from ..layout import FILTER, strides_of
from ..matmul.plan import BLOCKS, LEAST_DEPTH, LIMIT, MOST, WORTH
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import View, choose, kept
from . import cuda_register, cuda_tensor, cuda_tiled, cuda_vector
from .cuda_gather import MOST_TAPS, QUAD, blocks_of, tables_of
from .cuda_plain import THREADS, plain_forward, plain_input_grad, plain_weight_grad
from .geometry import output_shape

__all__ = ["RUNGS", "TILES", "WEIGHT_RUNGS", "WEIGHT_TILES", "Plan", "fits", "plan_of"]

TILES = {  # name: (kernels by direction, tile); each sum is one sum, in the order of the steps, so bits are equal
    "register": (cuda_register.REGISTER, None),  # whose pixels follow from the channels
    **{f"vector{'_128x16' * (tile[1] == 16)}": (cuda_vector.VECTOR[tile], tile) for tile in ((128, 16), (128, 64))},
}
RUNGS = ("plain", "tiled", *TILES, "tensor", "split", "product")
WEIGHT_TILES = {"vector_96x32": 32, "vector": 64}  # name: columns of its tile; the sum of a slice is one sum in both
WEIGHT_RUNGS = ("plain", *WEIGHT_TILES, "register", "product", "tensor")
CORES = ("float16", "bfloat16", "tf32")  # what tensor cores multiply
CHUNK = {"tf32": 4, "float16": 8, "bfloat16": 8}  # elements in one asynchronous copy
FEW = 3  # channels that are made, up to which tiles are not worth their empty columns
NARROW = 32  # and up to which a narrow tile suits: columns that nobody needs are multiplied as well
REGISTER_ROWS = 48  # of dw: up to so many suit the rung register better than vector, if nothing is strided
PRODUCT = 16  # channels and filters, up to which a product of matrices is not worth its empty tiles, for dw
ROOM = 1 << 10  # places beyond the last element that kernels count to
FAR = 1 << 30  # places that kernels reckon with, from which on they might not be 32-bit
POINT = (1, 1), (1, 1), (0, 0), (1, 1)  # filter, stride, padding and dilation of a product of matrices
ONE_PIXEL = "filters of one pixel, stride 1, no padding and one group"
NO_CORES = "float16, bfloat16, or float32 in the mode tf32"


class Plan(NamedTuple):
    """What starting a direction takes: a kernel, or for the rung product nothing.

    channels    of the result, in so many groups, and its elements; the sums are in so many slices
    arguments   from (first operand of the kernel, second, bias, residual, result, flags); of a kernel that sees arrays
                with shapes, `relu` stands in the place of flags
    """

    name: str
    channels: int
    groups: int
    size: int
    kernel: Any = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    arguments: Callable | None = None
    slices: int = 1
    shared: int = 0
    equals: tuple[str, ...] = ()  # rungs that give the same bits


def plan_of(direction, x_shape, w_shape, out_size, settings, kind, at_multiple, rung=None):
    """The Plan of a direction.

    settings: stride, padding, dilation, groups; kind: name of a type, or tf32; at_multiple: whether all arrays begin
    at multiples of 16 bytes; rung: its name; None: the one that suits the shape
    Errors  ValueError for a rung that does not exist or does not fit, and for sizes that are not 32-bit
    """
    make = _weight_plan if direction == "weight_grad" else partial(_gather_plan, direction)
    return make(x_shape, w_shape, out_size, settings, kind, at_multiple, rung)


@lru_cache(maxsize=1024)
def fits(direction, x_shape, w_shape, stride, padding, dilation, groups):
    """Whether a direction has a kernel for elements of 16 bits, at addresses that suit it: for multiples of 8 channels
    in a group, and strides that are not huge. Others are widened to float32 by the launcher.
    """
    if direction == "weight_grad":
        return groups <= MOST and w_shape[1] % 8 == (w_shape[0] // groups) % 8 == 0
    out_size = output_shape(x_shape, w_shape, None, stride, padding, dilation, groups)[2:]
    work = _work_of(direction, x_shape, w_shape, out_size, stride, padding, dilation, groups, "float16")
    return _misfits(work, "float16", True)["tensor"] is None


# ---- forward and input gradient: the cut -----------------------------------------------------------------------------


class Work(NamedTuple):
    """A direction of a convolution: one gather, as cuda_gather.py says.

    source, result: (height, width, channels) of an image that is read and of one that is made
    settings        filter, stride, padding, dilation, each vertical and horizontal
    pixels          of the largest class
    steps           the length of the longest sums, which are cut into `slices` of so many steps (depth)
    """

    adjoint: bool
    images: int
    source: tuple[int, int, int]
    result: tuple[int, int, int]
    settings: tuple[tuple[int, int], ...]
    groups: int
    pixels: int
    classes: int
    steps: int
    slices: int
    depth: int

    @property
    def reads(self):
        """Channels that a group reads."""
        return self.source[2] // self.groups

    @property
    def makes(self):
        """Channels that a group makes."""
        return self.result[2] // self.groups


def _cut(steps, blocks):
    """(slices of the sums, steps of a slice). Cut where blocks are too few to fill a GPU, if it repays a launch."""
    slices = min(BLOCKS // blocks, steps // LEAST_DEPTH) if blocks else 0
    if slices > 1:
        depth = -(-steps // (slices * 16)) * 16
        if steps - depth >= WORTH:
            return -(-steps // depth), depth
    return 1, steps


@lru_cache(maxsize=1024)
def _work_of(direction, x_shape, w_shape, out_size, stride, padding, dilation, groups, kind):
    """Errors  ValueError for sizes that are not 32-bit"""
    adjoint, (images, channels, *size), kernel = direction == "input_grad", x_shape, w_shape[2:]
    source, result, taps, apart = (*size, channels), (*out_size, w_shape[0]), kernel, (1, 1)
    if adjoint:
        hops = [s // gcd(s, d) for s, d in zip(stride, dilation, strict=True)]
        source, result, apart = result, source, stride
        taps = tuple(-(-k // hop) for k, hop in zip(kernel, hops, strict=True))
    settings = kernel, stride, padding, dilation
    _wants_less(_op(adjoint), LIMIT - ROOM, {
        "an image with its padding": max(n + 2 * p for n, p in zip(source[:2], padding, strict=True)),
        "the elements of an array": images * max(prod(source), prod(result)),
        "a setting": max(map(max, settings)),
    })  # fmt: skip
    pixels = images * prod(-(-n // s) for n, s in zip(result[:2], apart, strict=True))
    classes, makes, steps = prod(apart), result[2] // groups, prod(taps) * (source[2] // groups)
    tile = cuda_tensor.TILE if kind in CORES else (128, 16) if makes <= NARROW else (128, 64)
    blocks = classes * groups * blocks_of(pixels, tile[0]) * blocks_of(makes, tile[1])
    cut = kind in CORES or (kernel != (1, 1) and makes > FEW)
    return Work(
        adjoint, images, source, result, settings, groups, pixels, classes, steps,
        *(_cut(steps, blocks) if cut else (1, steps)),
    )  # fmt: skip


def _op(adjoint):
    return "conv2d input_grad" if adjoint else "conv2d"


def _wants_less(op, limit, numbers):
    for what, number in numbers.items():
        if number >= limit:
            raise ShapeError(f"{op}: {what} takes {number}, wants less than {limit}; split the images")


# ---- forward and input gradient: the choice --------------------------------------------------------------------------


def _tiles_misfit(work, columns):
    """What any rung of tiles wants and does not get."""
    kernel, stride, padding, dilation = work.settings
    axes = zip(work.source[:2], work.result[:2], kernel, stride, padding, dilation, strict=True)
    far = [(max(read, made) + pad + apart * taps, step) for read, made, taps, step, pad, apart in axes]
    reach = max(prod(place for place, _ in far) * work.source[2], *(place * step for place, step in far))
    parts = work.classes * work.groups * work.slices
    if parts > MOST or work.makes > MOST * columns or reach >= FAR or max(kernel) > MOST_TAPS:
        return f"at most {MOST_TAPS} x {MOST_TAPS} taps, {MOST} groups, and padding and strides that are not huge"
    return None


def _loads_misfit(work, many, at_multiple):
    """What a rung wants and does not get that loads so many channels at once."""
    if at_multiple and work.reads % many == 0 and (work.adjoint or work.makes % many == 0):
        return None
    where = " that a group reads" if work.adjoint else " in a group"
    return f"addresses that are multiples of {ALIGNMENT}, and multiples of {many} channels{where}"


def _misfits(work, kind, at_multiple):
    """What each rung wants and does not get, in words; None where it fits."""
    narrow, fours = _tiles_misfit(work, 16), _loads_misfit(work, QUAD, at_multiple)
    wanted = {
        "plain": None,
        "tiled": narrow if not work.adjoint and work.groups == 1 else "the forward direction, and one group",
        "register": narrow,
        "vector_128x16": narrow or fours,
        "vector": _tiles_misfit(work, 64) or fours,
        "tensor": NO_CORES,
        "split": None if work.slices > 1 else f"long sums for few results, got {work.steps} terms",
        "product": None if work.settings == POINT and work.groups == 1 else ONE_PIXEL,
    }
    if kind in CORES:
        wanted["tensor"] = _tiles_misfit(work, 64) or _loads_misfit(work, CHUNK[kind], at_multiple)
    return _of_type(wanted, kind, ("split", "tensor"))


def _of_type(wanted, kind, cores):
    """Those of a type: float64 has the plain rung alone, 16 bits have `cores`."""
    if kind in ("float32", "tf32"):
        return wanted
    has = cores if kind in CORES else ("plain",)
    return wanted | {name: "float32" for name in wanted if name not in has}


def _tile_rung(work, kind, misfits):
    if kind in CORES and misfits["tensor"] is None:
        return "tensor"
    wanted = ("vector_128x16" if work.makes <= NARROW else "vector"), "register"
    return next((name for name in wanted if work.makes > FEW and misfits[name] is None), "plain")


def _best(work, kind, misfits):
    """The name of the rung that suits the shape, of those that fit."""
    tile = _tile_rung(work, kind, misfits)
    if misfits["product"] is None and tile != "tensor":
        return "product"
    return "split" if misfits["split"] is None and tile != "plain" else tile


@lru_cache(maxsize=1024)
def _gather_plan(direction, x_shape, w_shape, out_size, settings, kind, at_multiple, rung):
    work = _work_of(direction, x_shape, w_shape, out_size, *settings, kind)
    misfits = _misfits(work, kind, at_multiple)
    name = choose(_op(work.adjoint), rung or _best(work, kind, misfits), misfits)
    plan = Plan(name, work.result[2], work.groups, work.images * prod(work.result))
    if name == "product":
        return plan
    if name in ("plain", "tiled"):
        given = partial(_arrays, work.adjoint, [size for pair in settings[:3] for size in pair])
        if name == "plain":
            kernel = (plain_input_grad if work.adjoint else plain_forward)[8 if kind == "float64" else 4]
            return plan._replace(
                kernel=kernel, grid=(blocks_of(plan.size, THREADS),), block=(THREADS,), arguments=given
            )
        size = cuda_tiled.TILE
        grid = blocks_of(work.pixels, size), blocks_of(work.makes, size)
        return plan._replace(kernel=cuda_tiled.tiled, grid=grid, block=(size, size), arguments=given)
    slices, depth = (work.slices, work.depth) if name == "split" else (1, work.steps)
    on = _tile_rung(work, kind, misfits) if name == "split" else name
    if on == "tensor":
        tile, kernel, shared = cuda_tensor.TILE, cuda_tensor.TENSOR[kind, work.adjoint], cuda_tensor.shared_of(kind)
    else:
        (kernels, tile), shared = TILES[on], 0
        kernel = kernels[work.adjoint]
    if on == "register":
        tile = cuda_register.pixels_of(work.makes), cuda_register.WIDEST
        shared = cuda_register.shared_of(work.makes, depth)
    grid = blocks_of(work.pixels, tile[0]), blocks_of(work.makes, tile[1]), work.classes * work.groups * slices
    tables = tables_of(work.adjoint, work.source, work.result, *work.settings, work.makes * work.source[2])
    sizes = (
        work.images, prod(work.source), work.source[2], prod(work.result[:2]), work.result[2], work.reads, work.makes,
        work.groups, depth, slices,
    )  # fmt: skip
    equals = tuple(name for name in TILES if misfits[name] is None) if name in TILES else ()
    given = partial(_gathered, tables, sizes)
    return Plan(*plan[:4], kernel, grid, (kernel.threads,), given, slices, shared, equals)


def _arrays(adjoint, settings, source, w, bias, residual, result, relu):
    """Of a kernel that sees arrays with shapes."""
    return (source, w, result, *settings) if adjoint else (source, w, bias, residual, result, *settings, relu)


def _gathered(tables, sizes, source, w, bias, residual, result, flags):
    return source, w, bias, residual, result, kept(tables, source), *sizes, flags


# ---- the weight gradient ---------------------------------------------------------------------------------------------

OP = "conv2d weight_grad"
REACH = 1 << 28  # of a walk over padded images
TILE = 96 * 64  # elements of dw: about what one block of threads owns, in any rung
FILL = 384  # how many blocks a problem should have before its sums are cut no further
LEAST_PIXELS, MOST_PIXELS = 256, 2048  # of a slice: fewer are not worth writing the sums, more would round too much
ROUND = 32  # a slice has a multiple of so many pixels
SUMS_ROOM = 1 << 23  # elements of all slices' sums together, unless more are needed to fill a GPU
MOST_SLICES = 4096  # what one thread of the last kernel adds is a 32nd of them


def _slices_of(pixels, size):
    """(slices of the sums over so many pixels, for so many elements of dw; pixels of a slice)"""
    fill = min(FILL // blocks_of(size, TILE), pixels // LEAST_PIXELS)
    short = min(blocks_of(pixels, MOST_PIXELS), SUMS_ROOM // size, MOST_SLICES)
    depth = blocks_of(blocks_of(pixels, max(1, fill, short)), ROUND) * ROUND
    return max(1, blocks_of(pixels, max(depth, 1))), depth


def _walk(x_shape, out_size, stride, hop):
    """(move_h, move_w, move, back_w, back_h) of a thread that goes so many pixels further each time.

    The first three lead to the pixel that many columns, rows and images on, the others back from behind the end
    of a row, and of an image. They may pass 32 bits where a thread walks out of x, which is not read then.
    """
    (channels, height, width), (i, j), (stride_h, stride_w) = x_shape[1:], out_size, stride
    lines, right = divmod(hop, j)
    images, down = divmod(lines, i)
    move = (images * height + down * stride_h) * width + right * stride_w
    back_w, back_h = stride_h * width - j * stride_w, (height - i * stride_h) * width
    wrapped = ((pixels * channels + LIMIT) % (2 * LIMIT) - LIMIT for pixels in (move, back_w, back_h))
    return down * stride_h, right * stride_w, *wrapped


def _weight_misfits(channels, filters, kernel, groups, point, kind, at_multiple):
    """What each rung wants and does not get, in words; None where it fits. channels, filters: of a group."""
    tiles = None
    if groups > MOST:
        tiles = f"at most {MOST} groups, got {groups}"
    elif groups > 1 and channels == filters == 1:
        tiles = "groups of more than one channel and filter"

    def loads(many):
        if at_multiple and channels % many == filters % many == 0:
            return tiles
        return tiles or f"multiples of {many} channels and filters in a group, at multiples of {ALIGNMENT} bytes"

    wanted = {
        "plain": None,
        **{name: loads(4) for name in WEIGHT_TILES},
        "register": tiles or (f"at most {MOST_TAPS} x {MOST_TAPS} taps" if max(kernel) > MOST_TAPS else None),
        "product": None
        if point and min(channels, filters) > PRODUCT
        else f"{ONE_PIXEL}, and more than {PRODUCT} channels and filters",
        "tensor": loads(CHUNK[kind]) if kind in CORES else NO_CORES,
    }
    return _of_type(wanted, kind, ("tensor",))


@lru_cache(maxsize=1024)
def _weight_plan(x_shape, w_shape, out_size, settings, kind, at_multiple, rung):
    stride, padding, dilation, groups = settings
    _wants_less(OP, LIMIT, {
        "the elements of x": prod(x_shape),
        "the elements of g": x_shape[0] * w_shape[0] * prod(out_size),
        "the elements of dw": prod(w_shape),
    })  # fmt: skip
    axes = zip(x_shape[2:], padding, stride, dilation, w_shape[2:], strict=True)
    _wants_less(
        OP, REACH, {"a walk over x": max(n + 2 * pad + step + apart * taps for n, pad, step, apart, taps in axes)}
    )
    (o, channels, *kernel_size), pixels = w_shape, x_shape[0] * prod(out_size)
    filters, rows, size = o // groups, prod(w_shape[1:]), prod(w_shape)
    slices, depth = (1, pixels) if kind == "float64" else _slices_of(pixels, size)
    point = (stride, padding, tuple(kernel_size), groups) == ((1, 1), (0, 0), (1, 1), 1)
    misfits = _weight_misfits(channels, filters, kernel_size, groups, point, kind, at_multiple)
    if rung is None and misfits["vector"] is None and (rows > REGISTER_ROWS or max(stride) > 1):
        misfits["register"] = f"at most {REGISTER_ROWS} rows and stride 1"
    name = choose(OP, rung, misfits)
    if rung is None and name == "vector" and filters <= WEIGHT_TILES["vector_96x32"]:
        name = "vector_96x32"
    plan = Plan(name, o, groups, size, slices=slices)
    if name == "product":
        return plan
    if name == "plain":
        given = partial(_sliced_array, (slices, *w_shape), (depth, *stride, *padding, *dilation))
        grid = blocks_of(size, THREADS), slices
        return plan._replace(
            kernel=plain_weight_grad[8 if kind == "float64" else 4], grid=grid, block=(THREADS,), arguments=given
        )
    sizes = pixels, depth, rows, filters, channels
    if name == "register":
        down, across, lanes, blocks = cuda_register.shares_of(rows, filters)
        run = cuda_register.run_of(w_shape, dilation, at_multiple and filters % 4 == 0)
        _, c, *x_size = x_shape
        tables = tables_of(False, (*x_size, c), (*out_size, o), kernel_size, stride, padding, dilation, 0)
        given = partial(_register, tables, (*sizes, prod(x_shape[1:]), o, down, across, lanes))
        return plan._replace(
            kernel=cuda_register.WEIGHT_REGISTER[run], grid=(blocks, slices, groups), block=(lanes * down * across,),
            arguments=given, shared=lanes // 2 * down * across * cuda_register.WEIGHT_SUMS * 4,
        )  # fmt: skip
    if name == "tensor":
        kernel, tile, hop = cuda_tensor.WEIGHT_TENSOR[kind], cuda_tensor.TILE, cuda_tensor.hop_of(kind)
        shared, equals = cuda_tensor.shared_of(kind), ()
    else:
        tile, hop, shared = (cuda_vector.WEIGHT_ROWS, WEIGHT_TILES[name]), cuda_vector.WEIGHT_HOP, 0
        kernel, equals = cuda_vector.WEIGHT_VECTOR[tile[1]], tuple(WEIGHT_TILES)
    sizes = (
        *sizes, w_shape[3], *x_shape[2:], x_shape[1], *out_size, o, *stride, *padding, *dilation,
        *_walk(x_shape, out_size, stride, hop),
    )  # fmt: skip
    given = partial(_walked, sizes, name == "tensor")
    grid = blocks_of(rows, tile[0]) * blocks_of(filters, tile[1]), slices, groups
    return Plan(*plan[:4], kernel, grid, (kernel.threads,), given, slices, shared, equals)


def _sliced_array(shape, sizes, x, g, _bias, _residual, out, _flags):
    """Of the plain kernel, which sees arrays with shapes: out has one more axis, the slices."""
    itemsize = x.itemsize
    strides = prod(shape[1:]) * itemsize, *strides_of(shape[1:], FILTER, itemsize)
    return x, g, View(out.view(x.dtype) if out.itemsize < itemsize else out, shape, strides), *sizes


def _register(tables, sizes, x, g, _bias, _residual, out, _flags):
    return x, g, out, kept(tables, x), *sizes


def _walked(sizes, flagged, x, g, _bias, _residual, out, flags):
    return (x, g, out, *sizes, flags) if flagged else (x, g, out, *sizes)
