"""Convolution and its input gradient on CUDA: which rung of the ladder runs, and how it is started.

Rungs, lowest first: plain, the formula; gemm, tiles of a matrix product that is gathered from the images; vector, the
same by 128-bit loads, for tiles of two sizes; tensor, products on tensor cores, with copies that travel by themselves;
split, long sums of few results in slices. Beside them, for some layers: direct, for images of one channel; product,
for filters of one pixel, which are matrices. Groups of one channel run plain.

Float64 runs on the plain rung. Float16 and bfloat16 run on tensor, unless `fits` or the place of an array says that the
launcher is to widen them. In the mode tf32, float32 runs on tensor where channels are multiples of 4.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from ..layout import CHANNELS_LAST, FILTER
from ..matmul import cuda as matmul
from ..matmul import cuda_split
from ..matmul.cuda_split import SUMS
from ..matmul.plan import most_slices
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import address, aligned, choose
from ..toolchain.cuda.tuning import chosen
from ..toolchain.modes import tf32_mode as tf32
from . import cuda_direct
from .cuda_ladder import RUNGS, TILES, best_of, fits, misfits_of, peers_of, tile_rung_of
from .cuda_parts import BIAS, QUAD, RELU, RESIDUAL, WIDE
from .cuda_plain import THREADS, plain_forward, plain_input_grad
from .cuda_plan import TILE_ON_CORES, Work, tiles_of, work_of
from .cuda_tensor import TENSOR, shared_of
from .cuda_weight import weight_grad, weight_grad_workspace
from .geometry import output_shape

__all__ = [
    "RUNGS", "TILES", "copied_at_once", "equals", "fits", "forward", "input_grad", "starts", "weight_grad", "workspace",
]  # fmt: skip


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
        kernels = plain_input_grad if work.adjoint else plain_forward
        grid = (-(-work.size // THREADS),)
        return Plan(name, work, kernels[8 if kind == "float64" else 4], grid, work.settings[2:-1], 1, 0)
    if name == "direct":
        width = cuda_direct.width_of(work.makes)
        tile, kernel = (cuda_direct.pixels_of(work.makes), cuda_direct.WIDEST), cuda_direct.direct
        shared = work.steps * width * 4
    elif name == "tensor":
        tile, kernel, shared = TILE_ON_CORES, TENSOR[kind, work.adjoint], shared_of(kind)
    else:
        (kernels, tile), shared = TILES[name], 0
        kernel = kernels[work.adjoint]
    grid = tiles_of(work.pixels, tile[0]), tiles_of(work.makes, tile[1]), work.classes * work.groups * slices
    return Plan(name, work, kernel, grid, sizes, slices, shared)


# ---- calls -----------------------------------------------------------------------------------------------------------


def workspace(direction, x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace for a direction: sums of slices; see the launcher."""
    settings = stride, padding, dilation, groups
    if direction == "weight_grad":
        return weight_grad_workspace(x_shape, w_shape, *settings, itemsize)
    out_size = output_shape(x_shape, w_shape, None, *settings)[2:]
    if not min(x_shape):
        return 0
    plan = _plan(direction, x_shape, w_shape, out_size, settings, _kind(itemsize), True, None)
    slices, work, itemsize = plan.slices, plan.work, max(itemsize, 4)
    if plan.name == "product":
        slices = most_slices(work.pixels, work.makes, work.reads)
    return slices * work.size * itemsize + ALIGNMENT if slices > 1 else 0


def copied_at_once(*arrays):
    """Whether arrays of 16 bits begin where tensor cores' copies of 16 bytes may."""
    return aligned(*arrays)


def _kind(itemsize, name="float16"):
    """How elements are multiplied; float16 and bfloat16 are, but for their kernels, alike."""
    return {2: name, 4: "tf32" if tf32() else "float32", 8: "float64"}[itemsize]


def ready(direction, x_shape, w_shape, settings, itemsize):
    """What a launcher runs with the arrays of a call, whose sizes each launch looks at by itself."""
    if direction == "forward":
        return lambda x, w, bias, relu, residual, *rest: forward(x, w, bias, relu, *settings, *rest, residual=residual)
    start = {"input_grad": input_grad, "weight_grad": weight_grad}[direction]
    return lambda source, other, *rest: start(source, other, *settings, *rest)


def forward(x, w, bias, relu, stride, padding, dilation, groups, out, workspace, rung=None, *, residual=None):
    """Convolution; see the launcher. rung: a name from RUNGS; None: the best that fits.

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
    if plan.name == "plain":
        others = (result, *plan.sizes) if work.adjoint else (bias, residual, result, *plan.sizes, bool(relu))
        yield plan.kernel, plan.grid, (THREADS,), (source, w, *others), 0
        return
    block, arrays, added = (plan.kernel.threads,), (source, w), [0 if a is None else a for a in (bias, residual)]
    both = aligned(result) if residual is None else aligned(result, residual)
    wide = WIDE * (work.makes % QUAD == 0 and both)
    place, sums = (result, 0) if result.itemsize == source.itemsize else (address(result), SUMS)
    if plan.slices == 1:
        arguments = *arrays, *added, place, *plan.sizes, end + wide + sums
        yield plan.kernel, plan.grid, block, arguments, plan.shared
        return
    first = -address(workspace) % ALIGNMENT
    partial = workspace[first : first + plan.slices * work.size * 4]
    whole = WIDE * (work.makes % QUAD == 0) + SUMS * (source.itemsize == 2)
    yield plan.kernel, plan.grid, block, (*arrays, 0, 0, partial, *plan.sizes, whole), plan.shared
    block = cuda_split.block_of(plan.slices)
    arguments = partial, *added, place, work.size, work.result[2], plan.slices, 0, end + sums
    yield cuda_split.ADD[source.dtype.name], (-(-work.size // block[0]), 1), block, arguments, 0
