"""The ladder of the convolution and of its input gradient on CUDA: its rungs, which of them fit, and which is best."""

from functools import lru_cache

from ..matmul.plan import MOST
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from . import cuda_direct, cuda_gemm, cuda_vector
from .cuda_async import ASYNC
from .cuda_gemm import GEMM
from .cuda_parts import MOST_TAPS, QUAD
from .cuda_plan import CORES, FEW, work_of
from .cuda_tensor import TENSOR
from .cuda_vector import VECTOR
from .geometry import output_shape

__all__ = ["ON_CORES", "RUNGS", "TILES", "best_of", "fits", "misfits_of", "peers_of", "pooled_of", "tile_rung_of"]

TILES = {  # name: (kernels by tile and direction, tile)
    "gemm_128x16": (GEMM, (128, 16)),
    "gemm": (GEMM, (64, 64)),
    "vector_128x16": (VECTOR, (128, 16)),
    "vector_128x32": (VECTOR, (128, 32)),
    "vector_64x64": (VECTOR, (64, 64)),
    "vector": (VECTOR, (128, 64)),
}
ON_CORES = {
    "tensor": (TENSOR, (64, 64)),
    "async_128x32": (ASYNC, (128, 32)),
    "async_64x64": (ASYNC, (64, 64)),
    "async_128x128": (ASYNC, (128, 128)),
    "async": (ASYNC, (128, 64)),
}
RUNGS = ("plain", *TILES, *ON_CORES, "split", "direct", "depthwise", "product")
SHARED = 48 << 10  # bytes of shared memory that every block may have
CHUNK = 8  # elements of 16 bits in one asynchronous copy
FAR = 1 << 30  # places that kernels reckon with, from which on they might not be 32-bit


def _tiles_misfit(work, columns):
    """What any rung of tiles wants and does not get."""
    parts = work.classes * work.groups
    if parts * work.slices > MOST or work.makes > MOST * columns or work.reach >= FAR or max(work.taps) > MOST_TAPS:
        return f"at most {MOST_TAPS} x {MOST_TAPS} taps, {MOST} groups, and padding and strides that are not huge"
    return None


def misfits_of(work, kind, at_multiple):
    """What each rung wants and does not get, in words; None where it fits."""
    filters = work.steps * cuda_direct.width_of(work.makes) * 4
    quads = f"addresses that are multiples of {ALIGNMENT}, and multiples of {{}} channels"
    vectors = quads.format(QUAD)
    wanted = {"plain": None}
    for name, (kernels, (_, columns)) in TILES.items():
        fours = at_multiple and work.reads % QUAD == 0 and (work.adjoint or work.makes % QUAD == 0)
        missing = vectors + (" that a group reads" if work.adjoint else " in a group")
        wanted[name] = _tiles_misfit(work, columns) or (missing if kernels is VECTOR and not fours else None)
    wanted |= _misfits_on_cores(work, kind, at_multiple, quads)
    wanted["split"] = None if work.slices > 1 else f"long sums for few results, got {work.steps} terms"
    wanted["direct"] = None
    if work.adjoint or work.reads not in cuda_direct.DIRECT or filters > SHARED or work.groups > MOST:
        wanted["direct"] = (
            f"the forward direction, at most {max(cuda_direct.DIRECT)} channels in a group, small filters"
        )
    depthwise = work.makes == work.reads == 1 and work.groups % QUAD == 0 and at_multiple and work.reach < FAR
    wanted["depthwise"] = None if depthwise else f"groups of one channel, {vectors}"
    wanted["product"] = None if work.matrices else "filters of one pixel, stride 1, no padding and one group"
    if kind not in ("float32", "tf32"):
        keep = ("split", *ON_CORES) if kind in CORES else ("plain",)
        wanted |= {name: "float32" for name in RUNGS if name not in keep}
    return wanted


def _misfits_on_cores(work, kind, at_multiple, quads):
    chunk = QUAD if kind == "tf32" else CHUNK
    whole = at_multiple and work.reads % chunk == 0 and (work.adjoint or work.makes % chunk == 0)
    missing = quads.format(chunk) + (" that a group reads" if work.adjoint else " in a group")
    wanted = {}
    for name, (kernels, (rows, columns)) in ON_CORES.items():
        exists = (kind, rows, columns, work.adjoint) in kernels
        halves = kernels is TENSOR or not any(key[:3] == ("tf32", rows, columns) for key in kernels)
        types = "float16 or bfloat16" if halves else "float16, bfloat16, or float32 in the mode tf32"
        wanted[name] = None if exists else types
        if exists:
            wanted[name] = _tiles_misfit(work, columns) or (missing if kernels is ASYNC and not whole else None)
    return wanted


def best_of(work, kind, misfits):
    """The name of the rung that suits the shape, of those that fit."""
    names = [name for name in ("product", "depthwise", "direct") if misfits[name] is None]
    if kind != "tf32" and names:
        return names[0]
    tile = tile_rung_of(work, kind, misfits)
    if names and tile not in ON_CORES:
        return names[0]
    return "split" if misfits["split"] is None and tile != "plain" else tile


def tile_rung_of(work, kind, misfits):
    if kind in CORES:
        names = [name for name, found in ON_CORES.items() if found == (ASYNC, work.tile)]
        names = [name for name in (*names, "tensor") if misfits[name] is None]
        if names:
            return names[0]
    if work.makes <= FEW:
        return "plain"
    wanted = [(VECTOR, work.tile), (GEMM, (128, 16) if work.makes <= 16 else (64, 64))]
    names = [name for pair in wanted for name, found in TILES.items() if found == pair]
    return next((name for name in names if misfits[name] is None), "plain")


@lru_cache(maxsize=1024)
def fits(direction, x_shape, w_shape, stride, padding, dilation, groups):
    """Whether a direction has a kernel for elements of 16 bits: not for groups of few channels, nor for huge strides.

    Those are widened to float32 by the launcher, as tensor cores would multiply mostly zeros for them.
    """
    settings = stride, padding, dilation, groups
    if groups > 1 and min(w_shape[1], w_shape[0] // groups) < CHUNK:
        return False
    if direction == "weight_grad":
        return groups <= MOST
    out_size = output_shape(x_shape, w_shape, None, *settings)[2:]
    return _tiles_misfit(work_of(direction, x_shape, w_shape, out_size, *settings, "float16"), 1) is None


def peers_of(work, kind, misfits):
    """The rungs that give the bits of the best one: each sum is one sum, in the order of the steps.

    On tensor cores those of the same copies: steps that are left over after whole tiles come first, or last.
    """
    best = best_of(work, kind, misfits)
    if best in TILES:
        return [name for name in TILES if misfits[name] is None]
    if best in ON_CORES:
        alike = [name for name, (kernels, _) in ON_CORES.items() if kernels is ON_CORES[best][0]]
        return [name for name in alike if misfits[name] is None]
    return []


def pooled_of(work, best, misfits):
    """{name: kernel} of the rungs that pool in the same launch and give the bits of the best one, that one first."""
    if best == "direct":
        return {best: cuda_direct.POOLED[work.reads]} if work.reads in cuda_direct.POOLED else {}
    found = {}
    for name, (kernels, tile) in TILES.items():
        pooled = (cuda_vector if kernels is VECTOR else cuda_gemm).POOLED
        if best in TILES and misfits[name] is None and tile in pooled:
            found[name] = pooled[tile]
    return {best: found.pop(best)} | found if best in found else {}
