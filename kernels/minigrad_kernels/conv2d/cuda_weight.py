"""The weight gradient of convolution on CUDA: which rung of the ladder runs, and how it is started.

Each rung is one idea more than those below: plain, gemm, vector, tensor; direct is for few rows or columns of dw, and
pointwise is the matrix product that a 1x1 filter is. Vector has a second name for narrow tiles. All rungs but pointwise
write the sums of each slice of the pixels, and a last kernel adds the slices, in one order. The sum of a slice is one
sum, in the order of the pixels, in all tiles of gemm and vector: of these the fastest is taken. Float64 runs on the
plain rung; float16 and bfloat16 run on tensor, unless `fits` of cuda.py says that the launcher is to widen them; in
the mode tf32, float32 runs on tensor where it fits.
"""

from functools import lru_cache

import numpy as np

from ..bias import cuda as bias
from ..layout import CHANNELS_LAST, FILTER, strides_of
from ..matmul import cuda as matmul
from ..matmul import cuda_split
from ..matmul.cuda_parts import WIDE
from ..matmul.cuda_split import SUMS
from ..matmul.plan import most_slices
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import View, address, aligned, choose
from ..toolchain.cuda.tuning import chosen
from ..toolchain.modes import tf32_mode as tf32
from . import cuda_weight_gemm, cuda_weight_tensor
from .cuda_plain import THREADS, plain_weight_grad
from .cuda_weight_direct import DIRECT
from .cuda_weight_plan import problem_of
from .cuda_weight_tile import run_of, tile_of
from .cuda_weight_vector import HOP, ROWS, VECTOR

__all__ = ["RUNGS", "equals", "weight_grad", "weight_grad_workspace"]

OP = "conv2d weight_grad"
FEW_ROWS, FEW_COLUMNS = 96, 16  # of dw: what the direct rung is made for; more fill the tiles of the vector rung
DIRECT_ROWS = 48  # and with more than so many, or with strides, the vector rung is faster where it fits, too
MOST_GROUPS = 65535  # blocks in z
TILES = {  # name: (kernel, rows and columns of its tile, pixels from one that a thread gathers to its next one)
    "gemm": (
        cuda_weight_gemm.weight_gemm,
        (cuda_weight_gemm.ROWS, cuda_weight_gemm.COLUMNS),
        cuda_weight_gemm.HOP,
    ),  # fmt: skip
    "vector_96x32": (VECTOR[32], (ROWS, 32), HOP),
    "vector": (VECTOR[64], (ROWS, 64), HOP),
}
NARROW = 32  # columns, and at most so many suit the narrow tile of vector
SINGLE = "plain", *TILES, "direct", "pointwise"
KINDS = {"float64": ("plain",), "float32": SINGLE, "tf32": (*SINGLE, "tensor")}  # the rungs of a type
MISSING = {"tensor": "float16, bfloat16, or float32 in the mode tf32"}


# ---- choice ----------------------------------------------------------------------------------------------------------


def _tiles_misfit(p):
    """What any rung wants whose blocks own tiles of one group's dw."""
    if p.groups > MOST_GROUPS:
        return f"at most {MOST_GROUPS} groups, got {p.groups}"
    if p.groups > 1 and p.w_shape[1] == p.columns == 1:
        return "groups of more than one channel and filter"
    return None


def _direct_misfit(p):
    if p.rows > FEW_ROWS and p.columns > FEW_COLUMNS:
        return f"at most {FEW_ROWS} rows P*Q*C/G of dw, or {FEW_COLUMNS} columns O/G, got {p.rows} x {p.columns}"
    if tile_of(p) is None:
        return f"filters that reach over less of the input, got {p.w_shape[1:]} with dilation {p.dilation}"
    return None


def _misfits(p, kind, x_aligned, others_aligned):
    """What each rung wants and does not get, in words; None where it fits."""
    chunk = 4 if kind == "tf32" else 8
    chunks = x_aligned and others_aligned and p.w_shape[1] % chunk == p.columns % chunk == 0
    quads = x_aligned and others_aligned and p.w_shape[1] % 4 == p.columns % 4 == 0
    wide = p.pointwise and min(p.rows, p.columns) > FEW_COLUMNS
    where, tiles = f"at multiples of {ALIGNMENT} bytes", _tiles_misfit(p)
    fours = tiles or (None if quads else f"multiples of 4 channels and filters in a group, {where}")
    misfits = {
        "plain": None,
        **{name: tiles if name.startswith("gemm") else fours for name in TILES},
        "tensor": tiles or (None if chunks else f"multiples of {chunk} channels and filters in a group, {where}"),
        "direct": tiles or _direct_misfit(p),
        "pointwise": None
        if wide
        else f"1x1 filters, stride 1, no padding, one group, more than {FEW_COLUMNS} channels and filters",
    }
    runs = KINDS.get(kind, ("tensor",))
    return misfits | {name: MISSING.get(name, "float32") for name in misfits if name not in runs}


@lru_cache(maxsize=1024)
def _rung(p, kind, x_aligned, others_aligned, rung):
    """The name of the rung that runs a Problem; kind: the name of a type, or tf32."""
    misfits = _misfits(p, kind, x_aligned, others_aligned)
    if rung is None and misfits["vector"] is None and (p.rows > DIRECT_ROWS or max(p.stride) > 1):
        misfits["direct"] = f"at most {DIRECT_ROWS} rows and stride 1"
    name = choose(OP, rung, misfits)
    return "vector_96x32" if rung is None and name == "vector" and p.columns <= NARROW else name


def equals(p, kind, x_aligned, others_aligned):
    """{name: Kernel} of the rungs that give the bits of the best one."""
    best, misfits = _rung(p, kind, x_aligned, others_aligned, None), _misfits(p, kind, x_aligned, others_aligned)
    return {name: kernel for name, (kernel, *_) in TILES.items() if best in TILES and misfits[name] is None}


def _type(array):
    """How the elements of an array are multiplied."""
    return "tf32" if array.itemsize == 4 and tf32() else array.dtype.name


# ---- calls -----------------------------------------------------------------------------------------------------------


def weight_grad_workspace(x_shape, w_shape, stride, padding, dilation, groups, itemsize):
    """Bytes of workspace that `weight_grad` wants, whatever the rung: the sums of the slices."""
    p = problem_of(tuple(x_shape), tuple(w_shape), stride, padding, dilation, groups)
    slices = max(p.slices, most_slices(p.rows, p.columns, p.pixels) if p.pointwise else 1)
    return slices * p.size * max(itemsize, 4) + ALIGNMENT if slices > 1 else 0


def weight_grad(g, x, stride, padding, dilation, groups, dw, workspace, rung=None):
    """Gradient of the convolution with respect to its filters; see the launcher. rung: a name from RUNGS; None: the
    fastest of those with the bits of the best that fits.

    Errors  ValueError for a rung that does not exist or does not fit, and for sizes that are not 32-bit
    """
    problem = problem_of(x.shape, dw.shape, stride, padding, dilation, groups)
    call = problem, _type(x), aligned(x), aligned(g, dw)

    def run(name):
        _start(RUNGS[_rung(*call, name)], problem, g, x, dw, workspace)

    if rung is None and dw.size and problem.pixels:
        rung = chosen("conv2d_weight_grad", call, lambda: equals(*call), run, x)
    run(rung)


def _start(start, problem, g, x, dw, workspace):
    if not problem.pixels:
        dw.fill(0)
    elif start is _pointwise or problem.slices == 1:
        start(problem, x, g, dw, workspace)
    else:
        first, itemsize = -address(workspace) % ALIGNMENT, max(x.itemsize, 4)
        partial = workspace[first : first + problem.slices * problem.size * itemsize]
        partial = partial.view(dw.dtype if dw.itemsize == itemsize else np.float32)
        _add(partial, dw, start(problem, x, g, partial, None), problem.size)


def _add(partial, dw, slices, size):
    """Add the sums of the slices."""
    if dw.itemsize == 2:
        block = cuda_split.block_of(slices)
        cuda_split.ADD[dw.dtype.name]((-(-size // block[0]), 1), block, (partial, 0, 0, dw, size, size, slices, 0, 0))
    else:
        parts = View(partial, (slices, size), (size * dw.itemsize, dw.itemsize))
        bias.add_parts(parts, View(dw, (size,), (dw.itemsize,)))


# Each starts a rung that writes the sums of the slices, or dw itself if there is one, and returns how many it wrote.


def _plain(problem, x, g, out, _):
    size, settings = x.itemsize, (*problem.stride, *problem.padding, *problem.dilation)
    strides = problem.size * size, *strides_of(problem.w_shape, FILTER, size)
    slices = View(out, (problem.slices, *problem.w_shape), strides)
    grid = -(-problem.size // THREADS), problem.slices
    plain_weight_grad[size](grid, (THREADS,), (x, g, slices, problem.depth, *settings))
    return problem.slices


def _tiled(kernel, tile, hop, problem, arrays, flags=(), shared=0):
    tiles = -(-problem.rows // tile[0]) * -(-problem.columns // tile[1])
    sizes = problem.pixels, problem.depth, *problem.shapes(), *problem.walk(hop)
    kernel((tiles, problem.slices, problem.groups), (kernel.threads,), (*arrays, *sizes, *flags), shared)
    return problem.slices


def _of_tiles(kernel, tile, hop):
    return lambda problem, x, g, out, _: _tiled(kernel, tile, hop, problem, (x, g, out))


def _tensor(problem, x, g, out, _):
    kind, flags = _type(x), WIDE * (problem.columns % 4 == 0 and aligned(out))
    # Pointers of the kernel have elements such as those of x.
    place, flags = (out, flags) if out.itemsize == x.itemsize else (address(out), flags + SUMS)
    kernel, tile = cuda_weight_tensor.TENSOR[kind], (cuda_weight_tensor.ROWS, cuda_weight_tensor.COLUMNS)
    hop, shared = cuda_weight_tensor.HOPS[kind], cuda_weight_tensor.SHARED[kind]
    return _tiled(kernel, tile, hop, problem, (x, g, place), (flags,), shared)


def _direct(problem, x, g, out, _):
    tile = tile_of(problem)
    tiles_h, tiles_w = -(-problem.out_size[0] // tile.height), -(-problem.out_size[1] // tile.width)
    tiles = problem.x_shape[0] * tiles_h * tiles_w
    share = -(-tiles // problem.slices)
    sizes = tiles, share, tiles_h, tiles_w, tile.height, tile.width, *tile.patch
    rest = tile.down, tile.across, tile.lanes, tile.padded
    grid, arrays = (tile.chunks, -(-tiles // share), problem.groups), (x, g, out)
    DIRECT[run_of(problem, aligned(g, out) and problem.columns % 4 == 0)](
        grid, (tile.threads,), (*arrays, *problem.shapes(), *sizes, *rest), tile.shared
    )
    return -(-tiles // share)


def _pointwise(problem, x, g, dw, workspace):
    """Rows of x and of g are pixels, as they lie in memory."""
    a, b = (array.transpose(CHANNELS_LAST).reshape(problem.pixels, array.shape[1]) for array in (x, g))
    out = dw.transpose(FILTER).reshape(problem.rows, problem.columns)
    matmul.forward(a.T, b, None, False, out, workspace)


RUNGS = {
    "plain": _plain,
    **{name: _of_tiles(*found) for name, found in TILES.items()},
    "tensor": _tensor,
    "direct": _direct,
    "pointwise": _pointwise,
}
