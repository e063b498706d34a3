"""Which rung on tensor cores runs: tensor, async, split, each one idea more than the one below; tma if asked for.

They multiply float16 and bfloat16, and float32 rounded to TF32 in the mode tf32, where 16 bytes travel at once.
"""

from functools import lru_cache

from ..toolchain.cuda.memory import VECTOR, choose
from . import cuda_split, cuda_tensor, cuda_tma
from .cuda_async import ASYNC, TILE, shared_bytes
from .cuda_fragments import CORES
from .cuda_vector import LAYOUTS
from .plan import Cut, Plan, Rung, layout_of, product_of, tensor_cut_of

__all__ = ["RUNGS", "plan_of"]


def _rungs(core):
    found = {
        "tensor": Rung({None: cuda_tensor.TENSOR.get(core.name)}, (cuda_tensor.TILE, cuda_tensor.TILE)),
        "async": Rung({layout: ASYNC[core.name, *layout] for layout in LAYOUTS}, (TILE, TILE)),
        "split": Rung({None: cuda_split.ADD[core.half.name]}, (1, cuda_split.WIDTH)),  # after the rung otherwise chosen
    }
    if core.name == "bfloat16":  # on Hopper, where asked for
        found["tma"] = Rung({(True, True): cuda_tma.tma}, (cuda_tma.ROWS, cuda_tma.COLUMNS))
    return {name: rung for name, rung in found.items() if name != "tensor" or core.name in cuda_tensor.TENSOR}


RUNGS = {name: _rungs(core) for name, core in CORES.items()}


def _misfits(p, cut, layout, core):
    """What each rung wants and does not get, in words; None where it fits."""
    wanted = (
        f"a and b at addresses that are multiples of {VECTOR}, each with a stride of one element along one axis, whose "
        f"size is a multiple of {core.chunk}, and strides that are multiples of {core.chunk} along all others; if b "
        "lies along K, a as well"
    )
    loads = None if layout in LAYOUTS else wanted
    short = f"long sums for few results, got {p.k} terms for {p.m} x {p.n} results"
    found = {"tensor": None, "async": loads, "split": None if cut.slices > 1 else short}
    found["tma"] = loads or (cuda_tma.misfit(p) if layout == (True, True) else "both a and b to lie along K")
    return {name: found[name] for name in RUNGS[core.name]}


@lru_cache(maxsize=1024)
def plan_of(a_shape, a_strides, b_shape, b_strides, core_name, a_aligned, b_aligned, rung):
    """The Plan of a product; core_name: a key of RUNGS. None where TF32 does not fit and no rung was asked for.

    Errors  ValueError for a rung that does not exist or does not fit
    """
    core, rungs = CORES[core_name], RUNGS[core_name]
    p = product_of(a_shape, a_strides, b_shape, b_strides, core.size)
    layout = layout_of(p, a_aligned, b_aligned, core.size)
    best = "async" if layout in LAYOUTS else "tensor"
    if rung is None and best not in rungs:
        return None
    cut = tensor_cut_of(p.m, p.n, p.k, p.count, best == "async")
    misfits = _misfits(p, cut, layout, core)
    name = choose("matmul", rung or ("split" if misfits["split"] is None else best), misfits)
    if name == "split":
        name = best
    else:
        cut = Cut(cut.tile, 1, p.k)
    kernels, tile = rungs[name]
    tiles = -(-p.m // tile[0]) * -(-p.n // tile[1])
    shared = {"tma": cuda_tma.SHARED, "tensor": 0}.get(name, shared_bytes(core, layout) if layout else 0)
    tables = cuda_tma.tables_of(p) if name == "tma" else None
    out_z = p.z.out if cut.slices == 1 else p.m * p.n
    sizes = p.m, p.n, p.k, cut.depth, cut.slices, p.a_m, p.a_k, p.b_k, p.b_n, p.z.a, p.z.b, out_z
    return Plan(kernels[None if None in kernels else layout], (tiles, 1), sizes, p, cut, shared, tables)
