"""Convolution and its input gradient on CUDA: which rung of the ladder runs, and how it is started.

Rungs, lowest first: plain, the formula; tiled, tiles of a matrix product that is gathered from the images, of the
forward direction alone and never chosen; register, blocks of sums in registers; vector, tiles of two sizes and 128-bit
loads; tensor, products on tensor cores, with copies that travel by themselves; split, long sums of few results in
slices; product, for filters of one pixel, which are matrices. Groups of one channel run plain.

Float64 runs on the plain rung. Float16 and bfloat16 run on tensor, unless `fits` or the place of an array says that the
launcher is to widen them. In the mode tf32, float32 runs on tensor where channels are multiples of 4.
How work is cut follows from its shape alone, never from the device, and so do the bits of a result.
"""

from functools import lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..layout import CHANNELS_LAST, FILTER
from ..matmul import cuda as matmul
from ..matmul import cuda_split
from ..matmul.cuda_end import BIAS, RELU, RESIDUAL, SUMS, WIDE
from ..matmul.plan import BLOCKS, LEAST_DEPTH, LIMIT, MOST, WORTH, most_slices
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import address, aligned, choose, kept
from ..toolchain.cuda.tuning import chosen
from . import cuda_register, cuda_tensor, cuda_tiled, cuda_vector
from .cuda_gather import MOST_TAPS, QUAD, blocks_of, tables_of
from .cuda_plain import THREADS, plain_forward, plain_input_grad
from .cuda_weight import kind_of, weight_grad, weight_grad_workspace
from .geometry import output_shape

TILES = {  # name: (kernels by direction, tile); each sum is one sum, in the order of the steps, so bits are equal
    "register": (cuda_register.REGISTER, None),  # whose pixels follow from the channels
    **{f"vector{'_128x16' * (tile[1] == 16)}": (cuda_vector.VECTOR[tile], tile) for tile in ((128, 16), (128, 64))},
}
RUNGS = ("plain", "tiled", *TILES, "tensor", "split", "product")
CORES = ("float16", "bfloat16", "tf32")  # what tensor cores multiply
CHUNK = {"tf32": 4, "float16": 8, "bfloat16": 8}  # elements in one asynchronous copy
FEW = 3  # channels that are made, up to which tiles are not worth their empty columns
NARROW = 32  # and up to which a narrow tile suits: columns that nobody needs are multiplied as well
ROOM = 1 << 10  # places beyond the last element that kernels count to
FAR = 1 << 30  # places that kernels reckon with, from which on they might not be 32-bit


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

    @property
    def size(self):
        """Elements of the result."""
        return self.images * prod(self.result)


class Plan(NamedTuple):
    """What starting a direction takes; tables: none where the kernel sees arrays with shapes."""

    name: str
    work: Work
    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    slices: int = 1
    depth: int = 0
    shared: int = 0
    tables: Any = None


# ---- the cut ---------------------------------------------------------------------------------------------------------


def _tile_of(makes, kind):
    return cuda_tensor.TILE if kind in CORES else (128, 16) if makes <= NARROW else (128, 64)


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
    op, settings = "conv2d input_grad" if adjoint else "conv2d", (kernel, stride, padding, dilation)
    numbers = {
        "an image with its padding": max(n + 2 * p for n, p in zip(source[:2], padding, strict=True)),
        "the elements of an array": images * max(prod(source), prod(result)),
        "a setting": max(map(max, settings)),
    }
    for what, number in numbers.items():
        if number >= LIMIT - ROOM:
            raise ShapeError(f"{op}: {what} takes {number}, wants less than {LIMIT - ROOM}; split the images")
    pixels = images * prod(-(-n // s) for n, s in zip(result[:2], apart, strict=True))
    classes, makes, steps = prod(apart), result[2] // groups, prod(taps) * (source[2] // groups)
    tile = _tile_of(makes, kind)
    blocks = classes * groups * blocks_of(pixels, tile[0]) * blocks_of(makes, tile[1])
    cut = kind in CORES or (kernel != (1, 1) and makes > FEW)
    return Work(
        adjoint, images, source, result, settings, groups, pixels, classes, steps,
        *(_cut(steps, blocks) if cut else (1, steps)),
    )  # fmt: skip


# ---- the choice ------------------------------------------------------------------------------------------------------


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
    matrices = work.settings == ((1, 1), (1, 1), (0, 0), (1, 1)) and work.groups == 1
    wanted = {
        "plain": None,
        "tiled": narrow if not work.adjoint and work.groups == 1 else "the forward direction, and one group",
        "register": narrow,
        "vector_128x16": narrow or fours,
        "vector": _tiles_misfit(work, 64) or fours,
        "tensor": "float16, bfloat16, or float32 in the mode tf32",
        "split": None if work.slices > 1 else f"long sums for few results, got {work.steps} terms",
        "product": None if matrices else "filters of one pixel, stride 1, no padding and one group",
    }
    if kind in CORES:
        wanted["tensor"] = _tiles_misfit(work, 64) or _loads_misfit(work, CHUNK[kind], at_multiple)
    if kind not in ("float32", "tf32"):
        keep = ("split", "tensor") if kind in CORES else ("plain",)
        wanted |= {name: "float32" for name in RUNGS if name not in keep}
    return wanted


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
def _plan(direction, x_shape, w_shape, out_size, settings, kind, at_multiple, rung):
    work = _work_of(direction, x_shape, w_shape, out_size, *settings, kind)
    misfits = _misfits(work, kind, at_multiple)
    name = choose("conv2d input_grad" if work.adjoint else "conv2d", rung or _best(work, kind, misfits), misfits)
    if name == "product":
        return Plan(name, work, None, (), ())
    if name == "plain":
        kernel = (plain_input_grad if work.adjoint else plain_forward)[8 if kind == "float64" else 4]
        return Plan(name, work, kernel, (blocks_of(work.size, THREADS),), (THREADS,))
    if name == "tiled":
        size = cuda_tiled.TILE
        grid = blocks_of(work.pixels, size), blocks_of(work.makes, size)
        return Plan(name, work, cuda_tiled.tiled, grid, (size, size))
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
    return Plan(name, work, kernel, grid, (kernel.threads,), slices, depth, shared, tables)


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


# ---- calls -----------------------------------------------------------------------------------------------------------


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction: sums of slices; see the launcher."""
    settings = stride, padding, dilation, groups
    if direction == "weight_grad":
        return weight_grad_workspace(x_shape, w_shape, *settings, itemsize)
    out_size = output_shape(x_shape, w_shape, None, *settings)[2:]
    if not min(x_shape):
        return 0
    plan = _plan(direction, x_shape, w_shape, out_size, settings, kind_of(np.dtype(f"f{itemsize}")), True, None)
    slices, work = plan.slices, plan.work
    if plan.name == "product":
        slices = most_slices(work.pixels, work.makes, work.reads)
    return slices * work.size * max(itemsize, 4) + ALIGNMENT if slices > 1 else 0


def ready(direction, x_shape, w_shape, settings, itemsize):
    """What a launcher runs with the arrays of a call, whose sizes each launch looks at by itself."""
    if direction == "forward":
        return lambda x, w, bias, relu, residual, *rest: forward(x, w, bias, relu, *settings, *rest, residual=residual)
    start = {"input_grad": input_grad, "weight_grad": weight_grad}[direction]
    return lambda source, other, *rest: start(source, other, *settings, *rest)


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, rung=None, *, residual=None):
    """Convolution; see the launcher. rung: a name from RUNGS; None: the fastest of those with the bits of the best.

    Errors  ValueError for a rung that does not exist or does not fit, or for sizes that are not 32-bit
    """
    settings = stride, padding, dilation, groups
    _run("forward", x, w, bias, relu, settings, out, workspace, rung, residual)


def input_grad(g, w, stride, padding, dilation, groups, dx, workspace, rung=None):
    """Gradient with respect to x; see the launcher. rung and errors as for forward."""
    settings = stride, padding, dilation, groups
    _run("input_grad", g, w, None, False, settings, dx, workspace, rung)


def _run(direction, source, w, bias, relu, settings, result, workspace, rung, residual=None):
    """Start all launches of a direction, by the rung that was found to be the fastest where none is asked for."""

    def start(name):
        for kernel, *given in starts(direction, source, w, bias, relu, settings, result, workspace, name, residual):
            kernel(*given)

    if rung is None and result.size:
        call = _call(direction, source, w, settings, result)
        if _plan(*call, None).name == "product":  # which has candidates of its own
            matmul.forward(*_matrices(direction, source, w, result, bias, relu), workspace, residual=_matrix(residual))
            return
        rung = chosen("conv2d", call, lambda: equals(*call), start, source)
    start(rung)


def _call(direction, source, w, settings, result):
    """What tells one call from another."""
    x, out = (source, result) if direction == "forward" else (result, source)
    return direction, x.shape, w.shape, out.shape[2:], settings, kind_of(source.dtype), aligned(source, w, result)


def _matrices(direction, source, w, result, bias, relu):
    """A convolution by filters of one pixel as a matrix product: what `forward` of matmul gets before the workspace."""
    b = w.transpose(FILTER).reshape(w.shape[1], w.shape[0])
    return _matrix(source), b if direction == "forward" else b.T, bias, relu, _matrix(result)


def _matrix(images):
    """Images as the rows of a matrix, pixel by pixel."""
    return None if images is None else images.transpose(CHANNELS_LAST).reshape(-1, images.shape[1])


def equals(*call):
    """{name: Kernel} of the rungs that give the bits of the best one."""
    plan, kind = _plan(*call, None), call[-2]
    misfits = _misfits(plan.work, kind, call[-1])
    names = [name for name in TILES if misfits[name] is None] if plan.name in TILES else []
    return {name: _plan(*call, name).kernel for name in names}


def starts(direction, source, w, bias, relu, settings, result, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of a direction, in order."""
    if not result.size:
        return
    plan = _plan(*_call(direction, source, w, settings, result), rung)
    work, kernel = plan.work, plan.kernel
    if plan.name == "product":
        matrices = _matrices(direction, source, w, result, bias, relu)
        yield from matmul.starts(*matrices, workspace, None, _matrix(residual))
        return
    if plan.tables is None:  # a kernel of arrays with shapes
        others = [size for pair in work.settings[1:] for size in pair]
        others = (result, *others) if work.adjoint else (bias, residual, result, *others, bool(relu))
        yield kernel, plan.grid, plan.block, (source, w, *others), 0
        return
    end = BIAS * (bias is not None) + RELU * bool(relu) + RESIDUAL * (residual is not None)
    added = [0 if array is None else array for array in (bias, residual)]
    sizes = (
        kept(plan.tables, source), work.images, prod(work.source), work.source[2], prod(work.result[:2]),
        work.result[2], work.reads, work.makes, work.groups, plan.depth, plan.slices,
    )  # fmt: skip
    # Pointers of the kernel have elements such as those of the source.
    place, sums = (result, 0) if result.itemsize == source.itemsize else (address(result), SUMS)
    wide = WIDE * (work.makes % QUAD == 0)
    if plan.slices == 1:
        wide *= aligned(result) if residual is None else aligned(result, residual)
        yield kernel, plan.grid, plan.block, (source, w, *added, place, *sizes, end + wide + sums), plan.shared
        return
    first = -address(workspace) % ALIGNMENT
    partial = workspace[first : first + plan.slices * work.size * 4]
    wide += SUMS * (source.itemsize == 2)
    yield kernel, plan.grid, plan.block, (source, w, 0, 0, partial, *sizes, wide), plan.shared
    block = cuda_split.block_of(plan.slices)
    arguments = partial, *added, place, work.size, work.result[2], plan.slices, 0, end + sums
    yield cuda_split.ADD[source.dtype.name], (blocks_of(work.size, block[0]), 1), block, arguments, 0
