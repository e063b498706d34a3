"""Matrix product on CUDA: which rung of the ladder runs.

Each rung is one idea more than the one below: plain, tiled, register, vector, buffered, split. Register has a second
name for smaller tiles; its name alone means 128x128, as those above. Float64 runs on the plain rung. The rungs on
tensor cores, which other types and the mode tf32 take, stand in cuda_tensor_plan.py.
"""

import contextlib
from functools import lru_cache

import numpy as np

from ..errors import ShapeError
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from ..toolchain.cuda.memory import View, address, aligned, choose
from ..toolchain.cuda.tuning import chosen
from ..toolchain.modes import tf32_mode as tf32
from . import cuda_split, cuda_tensor_plan
from .cuda_buffered import BUFFERED
from .cuda_parts import BIAS, RELU, RESIDUAL, WIDE
from .cuda_plain import THREADS, plain
from .cuda_register import REGISTER
from .cuda_split import ADD, SUMS
from .cuda_tiled import TILE, tiled
from .cuda_vector import VECTOR
from .plan import MOST, Cut, Plan, Rung, cut_of, launches, layout_of, product_of

__all__ = ["RUNGS", "equals", "forward", "ready", "rungs_of", "starts", "workspace"]

FAR = 1 << 24  # strides from which on places within a tile might not be 32-bit


# ---- the ladder ------------------------------------------------------------------------------------------------------


RUNGS = {
    "plain": Rung({None: plain[4]}, (8, 32)),
    "tiled": Rung({None: tiled}, (TILE, TILE)),
    "register_64x64": Rung({None: REGISTER[64, 64]}, (64, 64)),
    "register": Rung({None: REGISTER[128, 128]}, (128, 128)),
    "vector": Rung(VECTOR, (128, 128)),
    "buffered": Rung(BUFFERED, (128, 128)),
    "split": Rung({None: cuda_split.add}, (1, cuda_split.WIDTH)),  # after the rung that the shape has otherwise
}
ALIKE = "register_64x64", "register", "vector", "buffered"
BEST = {(128, 128): ("buffered", "register", "plain"), (64, 64): ("register_64x64", "plain")}  # best first, by tile


def _misfits(p, cut, layout, itemsize):
    """What each rung wants and does not get, in words; None where it fits."""
    far = max(abs(step) for step in (p.a_m, p.a_k, p.b_k, p.b_n)) >= FAR

    def misfit(name, rung):
        if name == "plain":
            return None
        if itemsize != 4:
            return "float32"
        if far:
            return f"strides of less than {FAR} elements"
        if p.n > MOST * rung.tile[1]:
            return f"at most {MOST * rung.tile[1]} columns, got {p.n}"
        if name == "split":
            return None if cut.slices > 1 else f"long sums for few results, got {p.k} terms for {p.m} x {p.n} results"
        if None not in rung.kernels and layout is None:
            return (
                f"a and b at addresses that are multiples of {ALIGNMENT}, each with a stride of one element along one "
                "axis, whose size is a multiple of 4, and strides that are multiples of 4 elements along all others"
            )
        if None not in rung.kernels and layout not in rung.kernels:
            return "a and b in C order" if name == "vector" else "a to lie along K where b does"
        return None

    return {name: misfit(name, rung) for name, rung in RUNGS.items()}


@lru_cache(maxsize=1024)
def _plan(a_shape, a_strides, b_shape, b_strides, itemsize, a_aligned, b_aligned, rung):
    p = product_of(a_shape, a_strides, b_shape, b_strides, itemsize)
    cut, layout = cut_of(p.m, p.n, p.k, p.count), layout_of(p, a_aligned, b_aligned, itemsize)
    misfits = _misfits(p, cut, layout, itemsize)
    best = next(name for name in BEST[cut.tile] if misfits[name] is None)
    name = choose("matmul", rung or ("split" if misfits["split"] is None else best), misfits)
    if name == "split":
        name = best
    else:
        cut = Cut(RUNGS[name].tile, 1, p.k)
    kernels, (rows, columns) = RUNGS[name]
    down, across = -(-p.m // rows), -(-p.n // columns)
    steps = p.a_m, p.a_k, p.b_k, p.b_n
    if name == "plain":
        return Plan(plain[itemsize], (-(-p.m * p.n // THREADS), 1), (), p, cut)
    if name == "tiled":
        return Plan(tiled, (down, across), (), p, cut)
    kernel = kernels[None if None in kernels else layout]
    sizes = (p.m, p.n, p.k, cut.depth, cut.slices, *steps, p.z.a, p.z.b, p.z.out if cut.slices == 1 else p.m * p.n)
    return Plan(kernel, (down, across), sizes, p, cut)


# ---- calls -----------------------------------------------------------------------------------------------------------


def _core_of(a):
    """What tensor cores take such operands as: float16 and bfloat16, and float32 in the mode tf32; else None."""
    if a.itemsize == 2:
        return a.dtype.name
    return "tf32" if a.itemsize == 4 and tf32() else None


def rungs_of(a):
    """The rungs of the ladder for operands such as a, by name, in the mode that holds."""
    core = _core_of(a)
    return cuda_tensor_plan.RUNGS[core] if core else RUNGS


def _plan_of(a, b, rung):
    settings, core = (a.shape, a.strides, b.shape, b.strides), _core_of(a)
    plan = cuda_tensor_plan.plan_of(*settings, core, aligned(a), aligned(b), rung) if core else None
    return plan or _plan(*settings, a.itemsize, aligned(a), aligned(b), rung)


def workspace(a, b):
    """Bytes of workspace that `forward` wants for these arrays: the products of slices."""
    if not a.size or not b.size:
        return 0
    plan = _plan_of(a, b, None)
    p, slices = plan.product, plan.cut.slices
    return p.z.size * slices * p.m * p.n * 4 + ALIGNMENT if slices > 1 else 0


def ready(a, b):
    """What the launcher runs with arrays that lie like these."""
    return lambda a, b, bias, relu, residual, *rest: forward(a, b, bias, relu, *rest, residual=residual)


def forward(a, b, bias, relu, out, workspace, rung=None, *, residual=None):
    """Matrix product; see the launcher. rung: a name from rungs_of(a); None: the fastest of those with equal bits.

    Errors  ValueError for a rung that does not exist or does not fit
    """

    def run(name):
        for start, grid, block, arguments, shared in starts(a, b, bias, relu, out, workspace, name, residual):
            start(grid, block, arguments, shared)

    if rung is None and out.size:
        call = a.shape, a.strides, b.shape, b.strides, a.dtype.name, _core_of(a), aligned(a), aligned(b), aligned(out)
        rung = chosen("matmul", call, lambda: equals(a, b), run, a)
    run(rung)


def equals(a, b):
    """{name: Kernel} of the rungs that give the bits of the best one: each sum is one sum, in the order of k."""
    found = {}
    if _plan_of(a, b, None).cut.slices > 1 or _core_of(a):
        return found
    for name in ALIKE:
        with contextlib.suppress(ShapeError):  # does not fit
            found[name] = _plan_of(a, b, name).kernel
    return found


def starts(a, b, bias, relu, out, workspace, rung=None, residual=None):
    """(kernel, grid, block, arguments, dynamic shared memory) of each launch of `forward`, in order."""
    if not out.size:
        return
    plan = _plan_of(a, b, rung)
    if not plan.sizes:
        yield from _of_arrays(plan, a, b, bias, relu, residual, out)
        return
    end = BIAS * (bias is not None) + RELU * bool(relu) + RESIDUAL * (residual is not None)
    bias = 0 if bias is None else bias
    if plan.cut.slices > 1:
        yield from _split(plan, a, b, bias, residual, out, workspace, end)
        return
    both = aligned(out) if residual is None else aligned(out, residual)
    end += WIDE * (plan.product.n % 4 == 0 and both) + SUMS * (out.itemsize > a.itemsize)
    for index, count in launches(plan.product):
        rest = tuple(slice(i, None) for i in index)  # its first element is that of the first matrix
        first, second, beside, to = (_from(array, rest) if any(index) else array for array in (a, b, residual, out))
        tables = plan.tables(first, second, count) if plan.tables else ()
        arguments = first, second, bias, 0 if beside is None else beside, _elements(to, a), *tables, *plan.sizes, end
        yield plan.kernel, (*plan.grid, count), (plan.kernel.threads,), arguments, plan.shared


def _of_arrays(plan, a, b, bias, relu, residual, out):
    """The launches of a kernel that sees its operands as stacks of matrices."""
    p, block = plan.product, (TILE, TILE) if plan.kernel is tiled else (THREADS,)
    for index, count in launches(p):
        rest = tuple(slice(i, None) for i in index)
        left = _stack(a, rest, (count, p.m, p.k), (p.z.a, p.a_m, p.a_k))
        right = _stack(b, rest, (count, p.k, p.n), (p.z.b, p.b_k, p.b_n))
        beside, to = (_stack(array, rest, (count, p.m, p.n), (p.z.out, p.n, 1)) for array in (residual, out))
        yield plan.kernel, (*plan.grid, count), block, (left, right, bias, beside, to, bool(relu)), 0


def _stack(array, rest, shape, steps):
    return None if array is None else View(array[rest], shape, tuple(step * array.itemsize for step in steps))


def _from(array, rest):
    return None if array is None else array[rest]


def _elements(out, like):
    """out as elements of the size that the operands have, two for each float32 beside 16 bits."""
    return out if out.itemsize == like.itemsize else out.view(np.uint16)


def _split(plan, a, b, bias, residual, out, workspace, end):
    """Products of slices to the workspace, then their sums; for each launch of `launches` in the same memory."""
    p, slices = plan.product, plan.cut.slices
    first, size = -address(workspace) % ALIGNMENT, p.m * p.n
    partial = workspace[first : first + p.z.size * slices * size * 4].view(np.float32)
    sums = SUMS * (a.itemsize == 2)
    add, end = ADD[a.dtype.name], end + SUMS * (out.itemsize > a.itemsize)
    for index, count in launches(p):
        rest = tuple(slice(i, None) for i in index)
        arguments = a[rest], b[rest], 0, 0, _elements(partial, a), *plan.sizes, sums + WIDE * (p.n % 4 == 0)
        yield plan.kernel, (*plan.grid, count * slices), (plan.kernel.threads,), arguments, plan.shared
        block = cuda_split.block_of(slices)
        grid = -(-size // block[0]), count
        beside = 0 if residual is None else residual[rest]
        yield add, grid, block, (partial, bias, beside, _elements(out[rest], a), size, p.n, slices, p.z.out, end), 0
