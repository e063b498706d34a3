"""Which rung on tensor cores runs: tensor, async, split, each one idea more than the one below; wgmma and tma if
asked for.

They multiply float16 and bfloat16, and float32 rounded to TF32 in the mode tf32. A rung that exists for tiles of
several sizes has one name for each; the name alone means 128x128.
"""

from functools import lru_cache

from ..toolchain.cuda.memory import VECTOR
from ..toolchain.cuda.rungs import choose
from . import cuda_split, cuda_tensor, cuda_tma, cuda_wgmma
from .cuda_async import ASYNC, LAYOUTS, shared_bytes
from .cuda_fragments import CORES
from .plan import Cut, Plan, Rung, layout_of, product_of, tensor_cut_of

__all__ = ["RUNGS", "plan_of"]


def _rungs(core):
    by_tile = {tile: {} for *_, tile in ((*key[:1], key[1:3]) for key in ASYNC)}
    for (name, rows, columns, *layout), kernel in ASYNC.items():
        if name == core.name:
            by_tile[rows, columns][tuple(layout)] = kernel
    return {
        "tensor": Rung({None: cuda_tensor.TENSOR[core.name]}, (cuda_tensor.TILE, cuda_tensor.TILE)),
        "async_64x64": Rung(by_tile[64, 64], (64, 64)),
        "async": Rung(by_tile[128, 128], (128, 128)),
        "split": Rung({None: cuda_split.ADD[core.half.name]}, (1, cuda_split.WIDTH)),  # after the rung otherwise chosen
    }


RUNGS = {name: _rungs(core) for name, core in CORES.items()}
# Those of Hopper, where asked for
RUNGS["bfloat16"]["wgmma"] = Rung(cuda_wgmma.WGMMA, (cuda_wgmma.TILE, cuda_wgmma.TILE))
for _name in cuda_tma.KINDS:
    _kernels = {key[1:]: kernel for key, kernel in cuda_tma.TMA.items() if key[0] == _name}
    RUNGS[_name]["tma"] = Rung(_kernels, (cuda_tma.ROWS, cuda_tma.COLUMNS))
BEST = {(128, 128): ("async", "tensor"), (64, 64): ("async_64x64", "tensor")}  # for each tile, best first


SHARED = {"wgmma": cuda_wgmma.SHARED, "tma": cuda_tma.SHARED}  # bytes; of the others by type, tile and layout


def _misfits(p, cut, layout, core):
    """What each rung wants and does not get, in words; None where it fits."""
    wanted = (
        f"a and b at addresses that are multiples of {VECTOR}, each with a stride of one element along one axis, whose "
        f"size is a multiple of {core.chunk}, and strides that are multiples of {core.chunk} along all others; if b "
        "lies along K, a as well"
    )
    loads = None if layout in LAYOUTS else wanted
    short = f"long sums for few results, got {p.k} terms for {p.m} x {p.n} results"
    found = {"tensor": None, "async_64x64": loads, "async": loads, "split": None if cut.slices > 1 else short}
    found |= {"wgmma": loads, "tma": loads or cuda_tma.misfit(p, layout)}
    return {name: misfit for name, misfit in found.items() if name in RUNGS[core.name]}


@lru_cache(maxsize=1024)
def plan_of(a_shape, a_strides, b_shape, b_strides, core_name, a_aligned, b_aligned, rung):
    """The Plan of a product; core_name: a key of RUNGS.

    Errors  ValueError for a rung that does not exist or does not fit
    """
    core, rungs = CORES[core_name], RUNGS[core_name]
    p = product_of(a_shape, a_strides, b_shape, b_strides, core.size)
    cut, layout = tensor_cut_of(p.m, p.n, p.k, p.count), layout_of(p, a_aligned, b_aligned, core.size)
    misfits = _misfits(p, cut, layout, core)
    best = next(name for name in BEST[cut.tile] if misfits[name] is None)
    name = choose("matmul", rung or ("split" if misfits["split"] is None else best), misfits)
    if name == "split":
        name = best
    else:
        cut = Cut(cut.tile, 1, p.k)
    kernels, tile = rungs[name]
    tiles = -(-p.m // tile[0]) * -(-p.n // tile[1])
    shared = SHARED[name] if name in SHARED else 0 if None in kernels else shared_bytes(core, tile, layout)
    tables = cuda_tma.tables_of(p, layout) if name == "tma" else None
    out_z = p.z.out if cut.slices == 1 else p.m * p.n
    sizes = p.m, p.n, p.k, cut.depth, cut.slices, p.a_m, p.a_k, p.b_k, p.b_n, p.z.a, p.z.b, out_z
    return Plan(kernels[None if None in kernels else layout], (tiles, 1), sizes, p, cut, shared, tables)
