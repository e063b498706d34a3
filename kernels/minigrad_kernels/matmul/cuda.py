"""Matrix product on CUDA: which rung of the ladder runs.

Each rung is one idea more than the one below. For float32: plain, tiled, register, buffered; register has a second
name for smaller tiles. On tensor cores, for float16, bfloat16, and float32 rounded to TF32 in the mode tf32: tensor,
async, and tma, for Hopper, where its name asks for it. In both ladders split cuts long sums for few results. Float64
runs on the plain rung.
"""

import contextlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..errors import ShapeError
from ..launcher import Call
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import View, aligned, choose
from ..toolchain.cuda.tuning import chosen
from ..toolchain.modes import tf32_mode as tf32
from . import cuda_async, cuda_hopper, cuda_split, cuda_tensor
from .cuda_buffered import BUFFERED, LAYOUTS
from .cuda_plain import THREADS, plain
from .cuda_register import REGISTER
from .cuda_tiled import TILE, tiled
from .plan import MOST, Product, cut_of, launches, layout_of, product_of, tensor_cut_of

__all__ = ["LADDERS", "RUNGS", "equals", "forward", "kind_of", "ready", "rungs_of", "starts"]

FAR = 1 << 24  # strides from which on places within a tile might not be 32-bit


# ---- the ladders -----------------------------------------------------------------------------------------------------


class Rung(NamedTuple):
    """kernels: by whether a and b lie along k in memory, where the rung loads 128 bits; else one kernel, under None."""

    kernels: dict[Any, Any]
    tile: tuple[int, int]


def _one(kernel, rows, columns):
    return Rung({None: kernel}, (rows, columns))


def _on_cores(kind):
    return Rung({layout: cuda_async.ASYNC[kind, *layout] for layout in LAYOUTS}, (cuda_async.TILE, cuda_async.TILE))


RUNGS = {
    "plain": _one(plain[4], 8, 32),
    "tiled": _one(tiled, TILE, TILE),
    "register_64x64": _one(REGISTER[64, 64], 64, 64),
    "register": _one(REGISTER[128, 128], 128, 128),
    "buffered": Rung(BUFFERED, (128, 128)),
}
LADDERS = {"float32": RUNGS, "float64": {"plain": _one(plain[8], 8, 32)}, "tf32": {"async": _on_cores("tf32")}}
for _kind, _kernel in cuda_tensor.TENSOR.items():
    LADDERS[_kind] = {"tensor": _one(_kernel, cuda_tensor.TILE, cuda_tensor.TILE), "async": _on_cores(_kind)}
for _kind in ("float32", *cuda_tensor.CORES):  # after the rung that the shape has otherwise
    LADDERS[_kind]["split"] = _one(cuda_split.ADD["float32" if _kind == "tf32" else _kind], 1, cuda_split.WIDTH)
LADDERS["bfloat16"]["tma"] = Rung({(True, True): cuda_hopper.tma}, (cuda_hopper.ROWS, cuda_hopper.COLUMNS))
ALIKE = "register_64x64", "register", "buffered"
BEST = {(128, 128): ("buffered", "register", "plain"), (64, 64): ("register_64x64", "plain")}  # best first, by tile


def _misfits(kind, p, cut, layout, itemsize):
    """What each rung wants and does not get, in words; None where it fits."""
    many = ALIGNMENT // itemsize
    loads = (
        f"a and b at addresses that are multiples of {ALIGNMENT}, each with a stride of one element along one axis "
        f"whose size is a multiple of {many}, and strides that are multiples of {many} along all others; if b lies "
        "along K, a as well"
    )
    loads = None if layout in LAYOUTS else loads
    short = f"long sums for few results, got {p.k} terms for {p.m} x {p.n} results" if cut.slices == 1 else None
    along_k = cuda_hopper.misfit(p) if layout == (True, True) else "both a and b to lie along K"
    found = {"split": short, "buffered": loads, "async": loads, "tma": loads or along_k}
    far = max(abs(step) for step in (p.a_m, p.a_k, p.b_k, p.b_n)) >= FAR
    for name in RUNGS.keys() - {"plain"} if kind == "float32" else ():
        most = MOST * RUNGS[name].tile[1]
        if far or p.n > most:
            found[name] = f"strides of less than {FAR} elements" if far else f"at most {most} columns, got {p.n}"
    return {name: found.get(name) for name in LADDERS[kind]}


class Plan(NamedTuple):
    """What starting a product takes; sizes: the kernel's arguments between the arrays and the flags, none where it
    sees arrays with shapes."""

    kernel: Any
    grid: tuple[int, int]
    block: tuple[int, ...]
    sizes: tuple[int, ...]
    product: Product
    slices: int = 1
    shared: int = 0  # bytes of dynamic shared memory
    tables: Callable | None = None  # (product, a, b) -> further arguments, before the sizes


@lru_cache(maxsize=1024)
def _plan(kind, operands, a_aligned, b_aligned, rung):
    p, itemsize, cores = product_of(*operands), operands[-1], kind in cuda_tensor.CORES
    layout = layout_of(p, a_aligned, b_aligned, itemsize)
    if kind == "tf32" and rung is None and layout not in LAYOUTS:
        return _plan("float32", operands, a_aligned, b_aligned, rung)
    if cores:
        cut = tensor_cut_of(p.m, p.n, p.k, p.count, layout in LAYOUTS)
    else:
        cut = cut_of(p.m, p.n, p.k, p.count)
    misfits = _misfits(kind, p, cut, layout, itemsize)
    names = ("async", "tensor") if cores else BEST[cut.tile]
    best = next((name for name in names if misfits.get(name, name) is None), None)
    name = choose("matmul", rung or ("split" if misfits.get("split", True) is None else best), misfits)
    slices, depth = (cut.slices, cut.depth) if name == "split" else (1, p.k)
    name = best if name == "split" else name
    kernels, (rows, columns) = LADDERS[kind][name]
    down, across = -(-p.m // rows), -(-p.n // columns)
    kernel = kernels[None if None in kernels else layout]
    if name == "plain":
        return Plan(kernel, (-(-p.m * p.n // THREADS), 1), (THREADS,), (), p)
    if name == "tiled":
        return Plan(kernel, (down, across), (TILE, TILE), (), p)
    steps, out_z = (p.a_m, p.a_k, p.b_k, p.b_n), p.z.out if slices == 1 else p.m * p.n
    sizes = p.m, p.n, p.k, depth, slices, *steps, p.z.a, p.z.b, out_z
    shared, tables = 0, None
    if name == "async":
        shared = cuda_async.shared_bytes(kind, layout)
    elif name == "tma":
        shared, tables = cuda_hopper.SHARED, cuda_hopper.maps_of
    grid = (down * across, 1) if cores else (down, across)
    return Plan(kernel, grid, (kernel.threads,), sizes, p, slices, shared, tables)


# ---- calls -----------------------------------------------------------------------------------------------------------


def kind_of(dtype):
    """How elements of a type are multiplied, a key of LADDERS: by its name, or tf32 for float32 in that mode."""
    return "tf32" if dtype.itemsize == 4 and tf32() else dtype.name


def rungs_of(a):
    """The rungs of the ladder for operands such as a, by name, in the mode that holds."""
    return LADDERS[kind_of(a.dtype)]


def _call(a, b):
    """What decides how two arrays are multiplied."""
    return kind_of(a.dtype), (a.shape, a.strides, b.shape, b.strides, a.itemsize), aligned(a), aligned(b)


def ready(a, b):
    """The Call for arrays that lie like these; its workspace is for the products of slices."""
    if not a.size or not b.size:
        return Call(0, forward)
    plan = _plan(*_call(a, b), None)
    p = plan.product
    return Call(cuda_split.partial_bytes(p.z.size * p.m * p.n, plan.slices), forward)


def forward(a, b, bias, relu, out, workspace, rung=None, *, residual=None):
    """Matrix product; see the launcher. rung: a name from rungs_of(a); None: the fastest of those with equal bits.

    Errors  ValueError for a rung that does not exist or does not fit
    """

    def run(name):
        for start, grid, block, arguments, shared in starts(a, b, bias, relu, out, workspace, name, residual):
            start(grid, block, arguments, shared)

    if rung is None and out.size:
        rung = chosen("matmul", (*_call(a, b), aligned(out)), lambda: equals(a, b), run, a)
    run(rung)


def equals(a, b):
    """{name: Kernel} of the rungs that give the bits of the best one: each sum is one sum, in the order of k."""
    found = {}
    if kind_of(a.dtype) != "float32" or _plan(*_call(a, b), None).slices > 1:
        return found
    for name in ALIKE:
        with contextlib.suppress(ShapeError):  # does not fit
            found[name] = _plan(*_call(a, b), name).kernel
    return found


def starts(a, b, bias, relu, out, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of `forward`, in order.

    Sums in slices go to the workspace first; each launch of `launches` uses the same memory for them.
    """
    if not out.size:
        return
    plan = _plan(*_call(a, b), rung)
    if not plan.sizes:
        yield from _of_arrays(plan, a, b, bias, relu, residual, out)
        return
    p, slices = plan.product, plan.slices
    for index, count in launches(p):
        first, second, beside, to = (_from(array, index) for array in (a, b, residual, out))
        before, sizes = (first, second), plan.sizes
        if plan.tables:
            sizes = *plan.tables(p, first, second), *sizes
        yield from cuda_split.in_slices(
            plan.kernel, (*plan.grid, count * slices), plan.block, partial(_arguments, before, sizes), plan.shared,
            cuda_split.end_of(bias, relu, beside, to, a, p.n), a, p.m * p.n, slices, workspace, count, p.z.out,
        )  # fmt: skip


def _arguments(before, sizes, bias, residual, out, flags):
    return *before, bias, residual, out, *sizes, flags


def _of_arrays(plan, a, b, bias, relu, residual, out):
    """The launches of a kernel that sees its operands as stacks of matrices."""
    p = plan.product
    for index, count in launches(p):
        left = _stack(a, index, (count, p.m, p.k), (p.z.a, p.a_m, p.a_k))
        right = _stack(b, index, (count, p.k, p.n), (p.z.b, p.b_k, p.b_n))
        beside, to = (_stack(array, index, (count, p.m, p.n), (p.z.out, p.n, 1)) for array in (residual, out))
        yield plan.kernel, (*plan.grid, count), plan.block, (left, right, bias, beside, to, bool(relu)), 0


def _stack(array, index, shape, steps):
    if array is None:
        return None
    return View(_from(array, index), shape, tuple(step * array.itemsize for step in steps))


def _from(array, index):
    """An array whose first element is that of the matrix with this index in the batch."""
    return array[tuple(slice(i, None) for i in index)] if array is not None and any(index) else array
