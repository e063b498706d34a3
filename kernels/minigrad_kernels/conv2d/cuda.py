"""Convolution and its input gradient on CUDA: which rung of the ladder runs, and how it is started.

Rungs, lowest first: plain, the formula; gemm, tiles of a matrix product that is gathered from the images; vector, the
same by 128-bit loads; tensor, products on tensor cores; async, the same with copies that travel by themselves; split,
long sums of few results in slices. Beside them, for some layers: direct, for images of few channels; depthwise, for
groups of one channel; product, for filters of one pixel, which are matrices. A rung that exists for tiles of several
sizes has one name for each. Some pool in the same launch (cuda_pooled.py).

Float64 runs on the plain rung. Float16 and bfloat16 run on tensor and async, whatever their channels, unless `fits`
says that the launcher is to widen them. In the mode tf32, float32 runs on async where channels are multiples of 4.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from ..layout import CHANNELS_LAST, FILTER
from ..matmul import cuda as matmul
from ..matmul import cuda_split
from ..matmul.cuda_split import SUMS
from ..matmul.plan import most_slices
from ..pool2d import cuda as pool2d
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import address, aligned
from ..toolchain.cuda.rungs import choose
from ..toolchain.tf32_mode import mode as tf32
from ..toolchain.tuning import chosen
from . import cuda_depthwise, cuda_direct, cuda_plain
from .cuda_async import ASYNC, shared_of
from .cuda_ladder import ON_CORES, RUNGS, TILES, best_of, fits, misfits_of, peers_of, pooled_of, tile_rung_of
from .cuda_parts import BIAS, QUAD, RELU, RESIDUAL, WIDE
from .cuda_plan import Work, tiles_of, work_of
from .cuda_weight import weight_grad, weight_grad_workspace
from .geometry import output_shape

__all__ = [
    "ON_CORES",
    "RUNGS",
    "TILES",
    "equals",
    "fits",
    "forward",
    "forward_pooled",
    "input_grad",
    "starts",
    "weight_grad",
    "workspace",
]


SQUARES = (2, 2), (2, 2), (0, 0), (1, 1)  # windows that kernels of convolution pool by
APART = "apart"  # in the place of a rung: convolution and pooling, one after the other


class Plan(NamedTuple):
    """What starting a direction takes; sizes: the kernel's integers, but for the flags; rest: what follows those."""

    name: str
    work: Work
    kernel: Any
    grid: tuple[int, ...]
    sizes: tuple[int, ...]
    slices: int
    shared: int
    rest: tuple[int, ...] = ()


@lru_cache(maxsize=1024)
def _plan(direction, x_shape, w_shape, out_size, settings, kind, at_multiple, rung):
    work = work_of(direction, x_shape, w_shape, out_size, *settings, kind)
    misfits = misfits_of(work, kind, at_multiple)
    op = "conv2d input_grad" if work.adjoint else "conv2d"
    name = choose(op, rung or best_of(work, kind, misfits), misfits)
    slices, depth = (work.slices, work.depth) if name == "split" else (1, work.steps)
    if name == "split":
        name = tile_rung_of(work, kind, misfits)
    sizes = (*work.sizes(), depth, slices)
    if name == "product":
        return Plan(name, work, None, (), (), 1, 0)
    if name == "plain":
        x, out = (work.result, work.source) if work.adjoint else (work.source, work.result)
        kernels = cuda_plain.INPUT_GRAD if work.adjoint else cuda_plain.FORWARD
        grid = (-(-work.size // cuda_plain.THREADS),)
        return Plan(
            name, work, kernels[8 if kind == "float64" else 4], grid, (work.size, *x, *out, *work.settings), 1, 0
        )
    if name == "depthwise":
        grid = (-(-work.pixels * (work.groups // QUAD) // cuda_depthwise.THREADS), 1, work.classes)
        return Plan(name, work, cuda_depthwise.DEPTHWISE[work.adjoint], grid, sizes, 1, 0)
    if name == "direct":
        return _tiled(name, work, cuda_direct.DIRECT[work.reads], sizes, slices)
    kernels, (rows, columns) = TILES[name] if name in TILES else ON_CORES[name]
    if name in ON_CORES:
        shared = shared_of(kind, rows, columns) if kernels is ASYNC else 0
        return _tiled(name, work, kernels[kind, rows, columns, work.adjoint], sizes, slices, shared)
    return _tiled(name, work, kernels[rows, columns, work.adjoint], sizes, slices)


def _tiled(name, work, kernel, sizes, slices, shared=0):
    """The Plan of a rung whose blocks own tiles of pixels and channels."""
    if name == "direct":
        rows, columns = cuda_direct.pixels_of(work.makes), cuda_direct.WIDEST
        shared = work.steps * cuda_direct.width_of(work.makes) * 4
    else:
        rows, columns = (TILES.get(name) or ON_CORES[name])[1]
    grid = tiles_of(work.pixels, rows), tiles_of(work.makes, columns), work.classes * work.groups * slices
    return Plan(name, work, kernel, grid, sizes, slices, shared, () if name in ON_CORES else (0,))


@lru_cache(maxsize=1024)
def _pooled_plans(call, windows, pooled_size):
    """{rung: Plan} of those that pool in the launch that convolves, with the bits of `forward` and pooling; best first.

    Windows of 2 x 2 side by side, the rest of a map that they do not cover left out.
    """
    plan = _plan(*call, None)
    size = tuple(n // 2 for n in plan.work.result[:2])
    if windows != SQUARES or pooled_size != size or plan.slices > 1:
        return {}
    whole = tuple(2 * n for n in size)
    work = plan.work._replace(result=(*whole, plan.work.result[2]), pixels=plan.work.images * prod(whole))
    sizes, misfits = (*work.sizes(), work.steps, 1), misfits_of(plan.work, call[-2], call[-1])
    kernels = pooled_of(plan.work, plan.name, misfits)
    return {name: _tiled(name, work, kernel, sizes, 1) for name, kernel in kernels.items()}


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
    plan = _plan(direction, x_shape, w_shape, out_size, settings, _kind(itemsize), True, None)
    slices, work, itemsize = plan.slices, plan.work, max(itemsize, 4)
    if plan.name == "product":
        slices = most_slices(work.pixels, work.makes, work.reads)
    return slices * work.size * itemsize + ALIGNMENT if slices > 1 else 0


def _kind(itemsize, name="float16"):
    """How elements are multiplied; float16 and bfloat16 are, but for their kernels, alike."""
    return {2: name, 4: "tf32" if tf32() else "float32", 8: "float64"}[itemsize]


def _convolved_bytes(x_shape, w_shape, out_size, itemsize):
    """Bytes of what is pooled, at an address that suits it, and for more behind it."""
    return -(-x_shape[0] * w_shape[0] * prod(out_size) * itemsize // ALIGNMENT) * ALIGNMENT + ALIGNMENT


def ready(direction, x_shape, w_shape, settings, itemsize, windows=None, made=None):
    """What a launcher runs with the arrays of a call, whose sizes each launch looks at by itself."""
    if direction == "forward":
        return lambda x, w, bias, relu, residual, *rest: forward(x, w, bias, relu, *settings, *rest, residual=residual)
    if direction == "forward_pooled":
        return lambda x, w, bias, relu, *rest: forward_pooled(x, w, bias, relu, *settings, *windows, *rest)
    start = {"input_grad": input_grad, "weight_grad": weight_grad}[direction]
    return lambda source, other, *rest: start(source, other, *settings, *rest)


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, rung=None, *, residual=None):
    """Convolution; see the launcher. rung: a name from RUNGS; None: the best that fits.

    Errors  ValueError for a rung that does not exist or does not fit, or for sizes that are not 32-bit
    """
    settings = stride, padding, dilation, groups
    _run("forward", x, w, bias, relu, settings, out, workspace, rung, residual)


def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out, positions, workspace,
):  # fmt: skip
    """forward, then max_forward of pool2d, in one launch where there is a kernel for it; see the launcher."""
    if not out.size:
        return
    settings, windows = (stride, padding, dilation, groups), (kernel_size, pool_stride, pool_padding, pool_dilation)
    size = output_shape(x.shape, w.shape, None, *settings)[2:]
    call = "forward", x.shape, w.shape, size, settings, _kind(x.itemsize, x.dtype.name), aligned(x, w)
    plans = _pooled_plans(call, windows, out.shape[2:])

    def run(name):
        if name == APART:
            _convolve_and_pool(x, w, bias, relu, settings, windows, out, positions, workspace)
        else:
            _start_pooled(plans[name], x, w, bias, relu, out, positions)

    def candidates():
        return {name: plan.kernel for name, plan in plans.items()} | {APART: _plan(*call, None).kernel}

    fastest = chosen("conv2d_pooled", call, candidates, run, x) if plans else APART
    run(fastest or next(iter(plans)))


def _start_pooled(plan, x, w, bias, relu, out, positions):
    flags = BIAS * (bias is not None) + RELU * relu
    flags += WIDE * (plan.work.makes % QUAD == 0 and aligned(out) and address(positions) % QUAD == 0)
    arguments = x, w, 0 if bias is None else bias, 0, out, *plan.sizes, flags, positions
    plan.kernel(plan.grid, (plan.kernel.threads,), arguments, plan.shared)


def _convolve_and_pool(x, w, bias, relu, settings, windows, out, positions, workspace):
    n, o, *size = output_shape(x.shape, w.shape, None, *settings)
    first, end = -address(workspace) % ALIGNMENT, _convolved_bytes(x.shape, w.shape, size, x.itemsize)
    elements = workspace[first : first + n * o * prod(size) * x.itemsize].view(x.dtype)
    convolved = elements.reshape(n, *size, o)
    forward(x, w, bias, relu, *settings, convolved.transpose(0, 3, 1, 2), workspace[end:])
    pool2d.max_forward(convolved, *windows, *(array.transpose(CHANNELS_LAST) for array in (out, positions)))


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
    at_multiple, kind = aligned(source, w, result), _kind(source.itemsize, source.dtype.name)
    return direction, x.shape, w.shape, out.shape[2:], settings, kind, at_multiple


def _matrices(direction, source, w, result, bias, relu):
    """A convolution by filters of one pixel as a matrix product: what `forward` of matmul gets before the workspace."""
    a, out = _matrix(source), _matrix(result)
    b = w.transpose(FILTER).reshape(w.shape[1], w.shape[0])
    return a, b if direction == "forward" else b.T, bias, relu, out


def _matrix(images):
    """Images as the rows of a matrix, pixel by pixel."""
    return None if images is None else images.transpose(CHANNELS_LAST).reshape(-1, images.shape[1])


def equals(*call):
    """{name: Kernel} of the rungs that give the bits of the best one."""
    work, kind = _plan(*call, None).work, call[-2]
    names = peers_of(work, kind, misfits_of(work, kind, call[-1]))
    return {name: _plan(*call, name).kernel for name in names}


def starts(direction, source, w, bias, relu, settings, result, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of a direction, in order."""
    if not result.size:
        return
    plan = _plan(*_call(direction, source, w, settings, result), rung)
    work, end = plan.work, BIAS * (bias is not None) + RELU * relu + RESIDUAL * (residual is not None)
    if plan.name == "product":
        matrices = _matrices(direction, source, w, result, bias, relu)
        yield from matmul.starts(*matrices, workspace, None, _matrix(residual))
        return
    block, arrays, added = (plan.kernel.threads,), (source, w), [0 if a is None else a for a in (bias, residual)]
    if plan.name == "plain":
        arguments = (*arrays, result, *plan.sizes) if work.adjoint else (*arrays, *added, result, *plan.sizes, end)
        yield plan.kernel, plan.grid, block, arguments, 0
        return
    both = aligned(result) if residual is None else aligned(result, residual)
    wide = WIDE * (work.makes % QUAD == 0 and both)
    place, sums = (result, 0) if result.itemsize == source.itemsize else (address(result), SUMS)
    if plan.slices == 1:
        arguments = *arrays, *added, place, *plan.sizes, end + wide + sums, *plan.rest
        yield plan.kernel, plan.grid, block, arguments, plan.shared
        return
    first = -address(workspace) % ALIGNMENT
    partial = workspace[first : first + plan.slices * work.size * 4]
    whole = WIDE * (work.makes % QUAD == 0) + SUMS * (source.itemsize == 2)
    yield plan.kernel, plan.grid, block, (*arrays, 0, 0, partial, *plan.sizes, whole, *plan.rest), plan.shared
    grid, block = (-(-work.size // cuda_split.WIDTH), 1), (cuda_split.WIDTH, cuda_split.HEIGHT)
    arguments = partial, *added, place, work.size, work.result[2], plan.slices, 0, end + sums
    yield cuda_split.ADD[source.dtype.name], grid, block, arguments, 0
