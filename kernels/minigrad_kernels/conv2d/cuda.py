"""Convolution and its input gradient on CUDA: which rung of the ladder runs, and how it is started.

Rungs, lowest first: plain, the formula; gemm, tiles of a matrix product that is gathered from the images; vector, the
same by 128-bit loads; split, long sums of few results in slices. Beside them, for some layers: direct, for images of
few channels; depthwise, for groups of one channel; product, for filters of one pixel, which are matrices. A rung that
exists for tiles of several sizes has one name for each. Float64 runs on the plain rung.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from ..layout import CHANNELS_LAST, FILTER
from ..matmul import cuda as matmul
from ..matmul import cuda_split
from ..matmul.plan import MOST, cut_of
from ..pool2d import cuda as pool2d
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import address, aligned
from ..toolchain.cuda.rungs import choose
from . import cuda_depthwise, cuda_direct, cuda_plain
from .cuda_gemm import GEMM
from .cuda_parts import BIAS, MOST_TAPS, QUAD, RELU, WIDE
from .cuda_plan import FEW, Work, tiles_of, work_of
from .cuda_vector import VECTOR
from .cuda_weight import weight_grad, weight_grad_workspace
from .geometry import output_shape

__all__ = ["RUNGS", "forward", "forward_pooled", "input_grad", "starts", "weight_grad", "workspace"]

TILES = {  # name: (kernels by tile and direction, tile)
    "gemm_128x16": (GEMM, (128, 16)),
    "gemm": (GEMM, (64, 64)),
    "vector_128x16": (VECTOR, (128, 16)),
    "vector_128x32": (VECTOR, (128, 32)),
    "vector_64x64": (VECTOR, (64, 64)),
    "vector": (VECTOR, (128, 64)),
}
RUNGS = ("plain", *TILES, "split", "direct", "depthwise", "product")
SHARED = 48 << 10  # bytes of shared memory that every block may have
FAR = 1 << 30  # places that kernels reckon with, from which on they might not be 32-bit


def _misfits(work, itemsize, at_multiple):
    """What each rung wants and does not get, in words; None where it fits."""
    parts, filters = work.classes * work.groups, work.steps * cuda_direct.width_of(work.makes) * 4
    quads = f"addresses that are multiples of {ALIGNMENT}, and multiples of {QUAD} channels"
    wanted = {"plain": None}
    for name, (kernels, (_, columns)) in TILES.items():
        missing = None
        if parts * work.slices > MOST or work.makes > MOST * columns or work.reach >= FAR or max(work.taps) > MOST_TAPS:
            missing = (
                f"at most {MOST_TAPS} x {MOST_TAPS} taps, {MOST} groups, and padding and strides that are not huge"
            )
        elif kernels is VECTOR and not (
            at_multiple and work.reads % QUAD == 0 and (work.adjoint or work.makes % QUAD == 0)
        ):
            missing = quads + (" that a group reads" if work.adjoint else " in a group")
        wanted[name] = missing
    wanted["split"] = None if work.slices > 1 else f"long sums for few results, got {work.steps} terms"
    wanted["direct"] = None
    if work.adjoint or work.reads not in cuda_direct.DIRECT or filters > SHARED or work.groups > MOST:
        wanted["direct"] = (
            f"the forward direction, at most {max(cuda_direct.DIRECT)} channels in a group, small filters"
        )
    depthwise = work.makes == work.reads == 1 and work.groups % QUAD == 0 and at_multiple and work.reach < FAR
    wanted["depthwise"] = None if depthwise else f"groups of one channel, {quads}"
    wanted["product"] = None if work.matrices else "filters of one pixel, stride 1, no padding and one group"
    if itemsize != 4:
        wanted |= dict.fromkeys(RUNGS[1:], "float32")
    return wanted


def _best(work, misfits):
    """The name of the rung that suits the shape, of those that fit."""
    names = [name for name in ("product", "depthwise", "direct") if misfits[name] is None]
    if names:
        return names[0]
    tile = _tile_rung(work, misfits)
    return "split" if misfits["split"] is None and tile != "plain" else tile


def _tile_rung(work, misfits):
    if work.makes <= FEW:
        return "plain"
    wanted = [(VECTOR, work.tile), (GEMM, (128, 16) if work.makes <= 16 else (64, 64))]
    names = [name for pair in wanted for name, found in TILES.items() if found == pair]
    return next((name for name in names if misfits[name] is None), "plain")


class Plan(NamedTuple):
    """What starting a direction takes; sizes: the kernel's integers, but for the flags."""

    name: str
    work: Work
    kernel: Any
    grid: tuple[int, ...]
    sizes: tuple[int, ...]
    slices: int
    shared: int


@lru_cache(maxsize=1024)
def _plan(direction, x_shape, w_shape, out_size, settings, itemsize, at_multiple, rung):
    work = work_of(direction, x_shape, w_shape, out_size, *settings)
    misfits = _misfits(work, itemsize, at_multiple)
    op = "conv2d input_grad" if work.adjoint else "conv2d"
    name = choose(op, rung or _best(work, misfits), misfits)
    slices, depth = (work.slices, work.depth) if name == "split" else (1, work.steps)
    if name == "split":
        name = _tile_rung(work, misfits)
    sizes = (*work.sizes(), depth, slices)
    if name == "product":
        return Plan(name, work, None, (), (), 1, 0)
    if name == "plain":
        x, out = (work.result, work.source) if work.adjoint else (work.source, work.result)
        kernels = cuda_plain.INPUT_GRAD if work.adjoint else cuda_plain.FORWARD
        grid = (-(-work.size // cuda_plain.THREADS),)
        return Plan(name, work, kernels[itemsize], grid, (work.size, *x, *out, *work.settings), 1, 0)
    if name == "depthwise":
        grid = (-(-work.pixels * (work.groups // QUAD) // cuda_depthwise.THREADS), 1, work.classes)
        return Plan(name, work, cuda_depthwise.DEPTHWISE[work.adjoint], grid, sizes, 1, 0)
    if name == "direct":
        down = tiles_of(work.pixels, cuda_direct.pixels_of(work.makes))
        grid = (down, tiles_of(work.makes, cuda_direct.WIDEST), work.groups)
        return Plan(
            name,
            work,
            cuda_direct.DIRECT[work.reads],
            grid,
            sizes,
            1,
            work.steps * cuda_direct.width_of(work.makes) * 4,
        )
    kernels, (rows, columns) = TILES[name]
    grid = tiles_of(work.pixels, rows), tiles_of(work.makes, columns), work.classes * work.groups * slices
    return Plan(name, work, kernels[rows, columns, work.adjoint], grid, sizes, slices, 0)


# ---- calls -----------------------------------------------------------------------------------------------------------


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction: sums of slices; see the launcher."""
    settings = stride, padding, dilation, groups
    if direction == "weight_grad":
        return weight_grad_workspace(x_shape, w_shape, *settings, itemsize)
    out_size = output_shape(x_shape, w_shape, None, *settings)[2:]
    if not min(x_shape):
        return 0
    if direction == "forward_pooled":
        forward = workspace("forward", x_shape, w_shape, *settings, itemsize)
        return _convolved_bytes(x_shape, w_shape, out_size, itemsize) + forward
    plan = _plan(direction, x_shape, w_shape, out_size, settings, itemsize, True, None)
    slices, work = plan.slices, plan.work
    if plan.name == "product":
        slices = cut_of(work.pixels, work.makes, work.reads, 1).slices
    return slices * work.size * itemsize + ALIGNMENT if slices > 1 else 0


def _convolved_bytes(x_shape, w_shape, out_size, itemsize):
    """Bytes of what is pooled, at an address that suits it, and for more behind it."""
    return -(-x_shape[0] * w_shape[0] * prod(out_size) * itemsize // ALIGNMENT) * ALIGNMENT + ALIGNMENT


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, rung=None):
    """Convolution; see the launcher. rung: a name from RUNGS; None: the best that fits.

    Errors  ValueError for a rung that does not exist or does not fit, or for sizes that are not 32-bit
    """
    settings = stride, padding, dilation, groups
    for start, grid, block, arguments, shared in starts("forward", x, w, bias, relu, settings, out, workspace, rung):
        start(grid, block, arguments, shared)


def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out, positions, workspace,
):  # fmt: skip
    """forward, then max_forward of pool2d, each by the best rung that fits; see the launcher."""
    if not out.size:
        return
    n, o, *size = output_shape(x.shape, w.shape, None, stride, padding, dilation, groups)
    first, end = -address(workspace) % ALIGNMENT, _convolved_bytes(x.shape, w.shape, size, x.itemsize)
    elements = workspace[first : first + n * o * prod(size) * x.itemsize].view(x.dtype)
    convolved = elements.reshape(n, *size, o)
    settings = stride, padding, dilation, groups
    forward(x, w, bias, relu, *settings, convolved.transpose(0, 3, 1, 2), workspace[end:])
    windows = kernel_size, pool_stride, pool_padding, pool_dilation
    pool2d.max_forward(convolved, *windows, *(array.transpose(CHANNELS_LAST) for array in (out, positions)))


def input_grad(g, w, stride, padding, dilation, groups, dx, workspace, rung=None):
    """Gradient with respect to x; see the launcher. rung and errors as for forward."""
    settings = stride, padding, dilation, groups
    for start, grid, block, arguments, shared in starts("input_grad", g, w, None, False, settings, dx, workspace, rung):
        start(grid, block, arguments, shared)


def starts(direction, source, w, bias, relu, settings, result, workspace, rung=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of a direction, in order."""
    if not result.size:
        return
    x, out = (source, result) if direction == "forward" else (result, source)
    at_multiple = aligned(source, w, result)
    plan = _plan(direction, x.shape, w.shape, out.shape[2:], settings, source.itemsize, at_multiple, rung)
    work, end = plan.work, BIAS * (bias is not None) + RELU * relu
    if plan.name == "product":
        a, out = (array.transpose(CHANNELS_LAST).reshape(work.pixels, -1) for array in (source, result))
        b = w.transpose(FILTER).reshape(w.shape[1], w.shape[0])
        for start in matmul.starts(a, b.T if work.adjoint else b, bias, relu, out, workspace):
            yield *start, 0
        return
    block, arrays, bias = (plan.kernel.threads,), (source, w), 0 if bias is None else bias
    if plan.name == "plain":
        arguments = (*arrays, result, *plan.sizes) if work.adjoint else (*arrays, bias, result, *plan.sizes, end)
        yield plan.kernel, plan.grid, block, arguments, 0
        return
    wide = WIDE * (work.makes % QUAD == 0 and aligned(result))
    if plan.slices == 1:
        yield plan.kernel, plan.grid, block, (*arrays, bias, result, *plan.sizes, end + wide), plan.shared
        return
    first = -address(workspace) % ALIGNMENT
    partial = workspace[first : first + plan.slices * work.size * result.itemsize].view(result.dtype)
    yield plan.kernel, plan.grid, block, (*arrays, 0, partial, *plan.sizes, wide), 0
    grid, block = (-(-work.size // cuda_split.WIDTH), 1), (cuda_split.WIDTH, cuda_split.HEIGHT)
    yield cuda_split.add, grid, block, (partial, bias, result, work.size, work.result[2], plan.slices, 0, end), 0
