"""The weight gradient of convolution on CUDA: which rung of the ladder runs, and how it is started.

dw of one group, P*Q*C/G rows (p, q, c) by O/G columns, is the product of the input, gathered as the filter reads it,
with g. A sum runs over the N*I*J output pixels, of which each slice takes a run: all rungs but pointwise write the sums
of each slice, and a last kernel adds the slices, in one order.

Rungs: plain, the formula; vector, for tiles of two widths; register, for few rows of dw, and for channels that no
128-bit load suits; pointwise, the matrix product that a filter of one pixel is; tensor. The sum of a slice is one
sum, in the order of the pixels, in both tiles of vector: of these the fastest is taken. Float64 runs on the plain rung;
float16 and bfloat16 run on tensor, unless `fits` of cuda.py says that the launcher is to widen them; in the mode tf32,
float32 runs on tensor where it fits.
"""

from functools import lru_cache
from math import prod

import numpy as np

from ..bias import cuda as bias
from ..layout import CHANNELS_LAST, FILTER, strides_of
from ..matmul import cuda as matmul
from ..matmul import cuda_split
from ..matmul.cuda_end import SUMS, WIDE
from ..matmul.plan import MOST, most_slices
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import View, address, aligned, choose, kept
from ..toolchain.cuda.tuning import chosen
from ..toolchain.modes import tf32_mode as tf32
from . import cuda_register, cuda_tensor, cuda_vector
from .cuda_gather import MOST_TAPS, blocks_of, tables_of
from .cuda_plain import THREADS, plain_weight_grad
from .cuda_walk import OP, problem_of

__all__ = ["RUNGS", "TILES", "equals", "weight_grad", "weight_grad_workspace"]

TILES = {  # name: columns of its tile; narrow ones suit up to as many
    "vector_96x32": 32,
    "vector": 64,
}
REGISTER_ROWS = 48  # of dw: up to so many suit the rung register better than vector, if nothing is strided
FEW = 16  # channels and filters, up to which a product of matrices is not worth its empty tiles
KINDS = {
    "float64": ("plain",),
    "float32": ("plain", *TILES, "register", "pointwise"),
    "tf32": ("plain", *TILES, "register", "pointwise", "tensor"),
}  # the rungs of a type; others have tensor alone


# ---- the choice ------------------------------------------------------------------------------------------------------


def _pointwise_fits(p):
    """Whether it is a product of matrices that lie in memory as they are."""
    shifts = p.stride, p.padding, p.w_shape[2:], p.groups
    return shifts == ((1, 1), (0, 0), (1, 1), 1)


def _misfits(p, kind, x_aligned, others_aligned):
    """What each rung wants and does not get, in words; None where it fits."""
    tiles, where = None, f"at multiples of {ALIGNMENT} bytes"
    if p.groups > MOST:
        tiles = f"at most {MOST} groups, got {p.groups}"
    elif p.groups > 1 and p.w_shape[1] == p.columns == 1:
        tiles = "groups of more than one channel and filter"

    def loads(many):
        if x_aligned and others_aligned and p.w_shape[1] % many == p.columns % many == 0:
            return tiles
        return tiles or f"multiples of {many} channels and filters in a group, {where}"

    few = f"1x1 filters, stride 1, no padding, one group, more than {FEW} channels and filters"
    misfits = {
        "plain": None,
        **{name: loads(4) for name in TILES},
        "register": tiles or (f"at most {MOST_TAPS} x {MOST_TAPS} taps" if max(p.w_shape[2:]) > MOST_TAPS else None),
        "pointwise": None if _pointwise_fits(p) and min(p.rows, p.columns) > FEW else few,
        "tensor": loads(4 if kind == "tf32" else 8),
    }
    runs, missing = KINDS.get(kind, ("tensor",)), {"tensor": "float16, bfloat16, or float32 in the mode tf32"}
    return misfits | {name: missing.get(name, "float32") for name in misfits if name not in runs}


@lru_cache(maxsize=1024)
def _rung(p, kind, x_aligned, others_aligned, rung):
    """The name of the rung that runs a Problem; kind: the name of a type, or tf32."""
    misfits = _misfits(p, kind, x_aligned, others_aligned)
    if rung is None and misfits["vector"] is None and (p.rows > REGISTER_ROWS or max(p.stride) > 1):
        misfits["register"] = f"at most {REGISTER_ROWS} rows and stride 1"
    name = choose(OP, rung, misfits)
    return "vector_96x32" if rung is None and name == "vector" and p.columns <= TILES["vector_96x32"] else name


def equals(p, kind, x_aligned, others_aligned):
    """{name: Kernel} of the rungs that give the bits of the best one."""
    best = _rung(p, kind, x_aligned, others_aligned, None)
    return {name: cuda_vector.WEIGHT_VECTOR[columns] for name, columns in TILES.items() if best in TILES}


def kind_of(dtype):
    """How elements of a type are multiplied: by its name, or tf32."""
    return "tf32" if dtype.itemsize == 4 and tf32() else dtype.name


# ---- calls -----------------------------------------------------------------------------------------------------------


def weight_grad_workspace(x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace that `weight_grad` wants, whatever the rung: the sums of the slices."""
    p = problem_of(tuple(x_shape), tuple(w_shape), stride, padding, dilation, groups)
    slices = max(p.slices, most_slices(p.rows, p.columns, p.pixels) if _pointwise_fits(p) else 1)
    return slices * p.size * max(itemsize, 4) + ALIGNMENT if slices > 1 else 0


def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace, rung=None):
    """Gradient of the convolution with respect to its filters; see the launcher. rung: a name from RUNGS; None: the
    fastest of those with the bits of the best that fits.

    Errors  ValueError for a rung that does not exist or does not fit, and for sizes that are not 32-bit
    """
    problem = problem_of(x.shape, dw.shape, stride, padding, dilation, groups)
    call = problem, kind_of(x.dtype), aligned(x), aligned(g, dw)

    def run(name):
        _start(RUNGS[_rung(*call, name)], problem, g, x, dw, workspace)

    if rung is None and dw.size and problem.pixels:
        rung = chosen("conv2d_weight_grad", call, lambda: equals(*call), run, x)
    run(rung)


def _start(start, p, g, x, dw, workspace):
    if not p.pixels:
        dw.fill(0)
    elif start is _pointwise or p.slices == 1:
        start(p, x, g, dw, workspace)
    else:
        first, itemsize = -address(workspace) % ALIGNMENT, max(x.itemsize, 4)
        partial = workspace[first : first + p.slices * p.size * itemsize]
        partial = partial.view(dw.dtype if dw.itemsize == itemsize else np.float32)
        start(p, x, g, partial, None)
        if dw.itemsize == 2:
            block = cuda_split.block_of(p.slices)
            arguments = partial, 0, 0, dw, p.size, p.size, p.slices, 0, 0
            cuda_split.ADD[dw.dtype.name]((blocks_of(p.size, block[0]), 1), block, arguments)
        else:
            parts = View(partial, (p.slices, p.size), (p.size * dw.itemsize, dw.itemsize))
            bias.add_parts(parts, View(dw, (p.size,), (dw.itemsize,)))


# Each starts a rung that writes the sums of the slices, or dw itself if there is one.


def _plain(p, x, g, out, _):
    size = x.itemsize
    slices = View(out, (p.slices, *p.w_shape), (p.size * size, *strides_of(p.w_shape, FILTER, size)))
    arguments = x, g, slices, p.depth, *p.stride, *p.padding, *p.dilation
    plain_weight_grad[size]((blocks_of(p.size, THREADS), p.slices), (THREADS,), arguments)


def _tiled(kernel, tile, hop, p, arrays, flags=(), shared=0):
    sizes = (
        p.pixels, p.depth, p.rows, p.columns, p.w_shape[1], p.w_shape[3], *p.x_shape[2:], p.x_shape[1], *p.out_size,
        p.w_shape[0], *p.stride, *p.padding, *p.dilation, *p.walk(hop),
    )  # fmt: skip
    grid = blocks_of(p.rows, tile[0]) * blocks_of(p.columns, tile[1]), p.slices, p.groups
    kernel(grid, (kernel.threads,), (*arrays, *sizes, *flags), shared)


def _vector(columns):
    kernel, tile = cuda_vector.WEIGHT_VECTOR[columns], (cuda_vector.WEIGHT_ROWS, columns)
    return lambda p, x, g, out, _: _tiled(kernel, tile, cuda_vector.WEIGHT_HOP, p, (x, g, out))


def _tensor(p, x, g, out, _):
    kind, flags = kind_of(x.dtype), WIDE * (p.columns % 4 == 0 and aligned(out))
    # Pointers of the kernel have elements such as those of x.
    place, flags = (out, flags) if out.itemsize == x.itemsize else (address(out), flags + SUMS)
    kernel, shared = cuda_tensor.WEIGHT_TENSOR[kind], cuda_tensor.shared_of(kind)
    _tiled(kernel, cuda_tensor.TILE, cuda_tensor.hop_of(kind), p, (x, g, place), (flags,), shared)


@lru_cache(maxsize=1024)
def _tables(p):
    (_, c, *x_size), (o, *_) = p.x_shape, p.w_shape
    return tables_of(False, (*x_size, c), (*p.out_size, o), p.w_shape[2:], p.stride, p.padding, p.dilation, 0)


def _register(p, x, g, out, _):
    down, across, lanes, blocks = cuda_register.shares_of(p.rows, p.columns)
    run = cuda_register.run_of(p.w_shape, p.dilation, aligned(g, out) and p.columns % 4 == 0)
    sizes = p.pixels, p.depth, p.rows, p.columns, p.w_shape[1], prod(p.x_shape[1:]), p.w_shape[0]
    arguments = x, g, out, kept(_tables(p), x), *sizes, down, across, lanes
    shared = lanes // 2 * down * across * cuda_register.WEIGHT_SUMS * 4
    kernel = cuda_register.WEIGHT_REGISTER[run]
    kernel((blocks, p.slices, p.groups), (lanes * down * across,), arguments, shared)


def _pointwise(p, x, g, dw, workspace):
    """Rows of x and of g are pixels, as they lie in memory."""
    a, b = (array.transpose(CHANNELS_LAST).reshape(p.pixels, array.shape[1]) for array in (x, g))
    out = dw.transpose(FILTER).reshape(p.rows, p.columns)
    matmul.forward(a.T, b, None, False, out, workspace)


RUNGS = {
    "plain": _plain,
    **{name: _vector(columns) for name, columns in TILES.items()},
    "register": _register,
    "pointwise": _pointwise,
    "tensor": _tensor,
}
