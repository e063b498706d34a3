"""Matrix product on CUDA: which rung of the ladder runs.

Each rung is one idea more than the one below. For float32: plain, tiled, register, buffered; register has a second
name for smaller tiles. On tensor cores, for float16, bfloat16, and float32 rounded to TF32 in the mode tf32: tensor,
async, and tma, for Hopper, where its name asks for it. Float64 runs on the plain rung. From register on, but not
on tma, long sums of few results are cut into slices, which a second launch adds; see cuda_split.py.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..toolchain.cuda.memory import View, aligned, choose
from ..toolchain.modes import tf32_mode as tf32
from . import cuda_async, cuda_hopper, cuda_tensor
from .cuda_buffered import BUFFERED, LAYOUTS
from .cuda_plain import THREADS, plain
from .cuda_register import REGISTER
from .cuda_split import in_slices
from .cuda_tiled import TILE, tiled
from .plan import MOST, Product, blocks_of, layout_of, product_of, side_of, slices_of

FAR = 1 << 24  # strides from which on places within a tile might not be 32-bit


# ---- the ladders -----------------------------------------------------------------------------------------------------


class Rung(NamedTuple):
    """kernels: by whether a and b lie along k in memory, where the rung loads 128 bits; else one kernel, under None."""

    kernels: dict[Any, Any]
    tile: tuple[int, int]


RUNGS = {
    "plain": Rung({None: plain[4]}, (8, 32)),
    "tiled": Rung({None: tiled}, (TILE, TILE)),
    "register_64x64": Rung({None: REGISTER[64, 64]}, (64, 64)),
    "register": Rung({None: REGISTER[128, 128]}, (128, 128)),
    "buffered": Rung(BUFFERED, (128, 128)),
}
LADDERS = {"float32": RUNGS, "float64": {"plain": Rung({None: plain[8]}, (8, 32))}}
for _kind in cuda_tensor.CORES:
    _layouts = {layout: cuda_async.ASYNC[_kind, *layout] for layout in LAYOUTS}
    LADDERS[_kind] = {"async": Rung(_layouts, (cuda_async.TILE, cuda_async.TILE))}
for _kind, _kernel in cuda_tensor.TENSOR.items():
    LADDERS[_kind]["tensor"] = Rung({None: _kernel}, (cuda_tensor.TILE, cuda_tensor.TILE))
LADDERS["bfloat16"]["tma"] = Rung({(True, True): cuda_hopper.tma}, (cuda_hopper.ROWS, cuda_hopper.COLUMNS))
BEST = {128: ("buffered", "register", "plain"), 64: ("register_64x64", "plain")}  # best first, by the side of a tile


def _fitting(kind, p, layout):
    """The rungs that take operands which lie so."""
    if kind == "float32" and (p.n > MOST * TILE or max(map(abs, (p.a_m, p.a_k, p.b_k, p.b_n))) >= FAR):
        return ["plain"]
    fits = dict.fromkeys(("buffered", "async"), layout in LAYOUTS)  # which load 128 bits
    fits["tma"] = layout == (True, True) and cuda_hopper.fits(p)
    return [name for name in LADDERS[kind] if fits.get(name, True)]


class Plan(NamedTuple):
    """What starting a product takes; sizes: the kernel's arguments between the arrays and the flags, none where it
    sees arrays with shapes."""

    product: Product
    kernel: Any
    grid: tuple[int, int, int]
    block: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    slices: int = 1
    shared: int = 0  # bytes of dynamic shared memory


@lru_cache(maxsize=1024)
def _plan(kind, operands, a_aligned, b_aligned, rung):
    """None where no one stride leads through the batch, or it has more matrices than a grid can count."""
    p, itemsize, on_cores = product_of(*operands), operands[-1], kind in cuda_tensor.CORES
    if p is None or p.matrices > MOST:
        return None
    layout = layout_of(p, a_aligned, b_aligned, itemsize)
    if kind == "tf32" and rung is None and layout not in LAYOUTS:
        return _plan("float32", operands, a_aligned, b_aligned, rung)
    fitting, best = _fitting(kind, p, layout), ("async", "tensor") if on_cores else BEST[side_of(p)]
    name = choose("matmul", rung or next(name for name in best if name in fitting), fitting)
    kernels, (rows, columns) = LADDERS[kind][name]
    kernel, down, across = kernels[None if None in kernels else layout], blocks_of(p.m, rows), blocks_of(p.n, columns)
    if name == "plain":
        return Plan(p, kernel, (blocks_of(p.m * p.n, THREADS), 1, p.matrices), (THREADS,))
    if name == "tiled":
        return Plan(p, kernel, (down, across, p.matrices), (TILE, TILE))
    (slices, depth), shared = slices_of(p, rows if on_cores else side_of(p), on_cores), 0
    if name == "async":
        shared = cuda_async.shared_bytes(kind, layout)
    elif name == "tma":
        slices, depth, shared = 1, p.k, cuda_hopper.SHARED
    sizes = p.m, p.n, p.k, depth, slices, p.a_m, p.a_k, p.b_k, p.b_n, p.a_z, p.b_z, p.m * p.n
    plane = (down * across, 1) if on_cores else (down, across)
    return Plan(p, kernel, (*plane, p.matrices * slices), (kernel.threads,), sizes, slices, shared)


# ---- calls -----------------------------------------------------------------------------------------------------------


def kind_of(dtype):
    """How elements of a type are multiplied, a key of LADDERS: by its name, or tf32 for float32 in that mode."""
    return "tf32" if dtype.itemsize == 4 and tf32() else dtype.name


def _parts(rung, a, b, *others):
    """(Plan, arrays) of each launch: of the whole, or of parts of the batch that one stride leads through."""
    operands = a.shape, a.strides, b.shape, b.strides, a.itemsize
    plan = _plan(kind_of(a.dtype), operands, aligned(a), aligned(b), rung)
    if plan is not None:
        yield plan, (a, b, *others)
        return
    several = [slice(first, first + MOST) for first in range(0, len(a), MOST)]
    for part in several if a.ndim == 3 else range(len(a)):
        yield from _parts(rung, *(x if x is None else x[part] for x in (a, b, *others)))


def forward(a, b, bias, relu, out, workspace, rung=None, *, residual=None):
    """Matrix product; see the launcher. rung: its name in LADDERS; None: the one that suits the shape.

    Errors  ValueError for a rung that does not exist or does not fit
    """
    for kernel, *given in starts(a, b, bias, relu, out, workspace, rung, residual):
        kernel(*given)


def starts(a, b, bias, relu, out, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of `forward`, in order.

    Sums in slices go to the workspace first.
    """
    for plan, (left, right, beside, to) in _parts(rung, a, b, residual, out) if out.size else ():
        p = plan.product
        if plan.sizes:
            maps = cuda_hopper.maps_of(p, left, right) if plan.kernel is cuda_hopper.tma else ()
            arguments = partial(_arguments, (left, right), (*maps, *plan.sizes))
            yield from in_slices(plan, arguments, left, bias, relu, beside, to, workspace, p.n, count=p.matrices)
            continue
        left = _stack(left, (p.matrices, p.m, p.k), (p.a_z, p.a_m, p.a_k))
        right = _stack(right, (p.matrices, p.k, p.n), (p.b_z, p.b_k, p.b_n))
        beside, to = (_stack(array, (p.matrices, p.m, p.n), (p.m * p.n, p.n, 1)) for array in (beside, to))
        yield plan.kernel, plan.grid, plan.block, (left, right, bias, beside, to, bool(relu)), 0


def _arguments(operands, sizes, bias, residual, out, flags):
    return *operands, bias, residual, out, *sizes, flags


def _stack(array, shape, steps):
    """An array as a stack of matrices."""
    return None if array is None else View(array, shape, tuple(step * array.itemsize for step in steps))
