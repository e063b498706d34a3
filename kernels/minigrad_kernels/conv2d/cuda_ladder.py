"""The ladder of the convolution and of its input gradient on CUDA: its rungs, which of them fit, and which is best."""

from functools import lru_cache

from ..matmul.plan import MOST
from ..toolchain.cuda.memory import VECTOR as ALIGNMENT
from . import cuda_direct, cuda_gemm
from .cuda_gemm import GEMM
from .cuda_parts import MOST_TAPS, QUAD
from .cuda_plan import CORES, FEW, TILE_ON_CORES, tile_of, work_of
from .cuda_vector import VECTOR
from .geometry import output_shape

__all__ = ["RUNGS", "TILES", "best_of", "fits", "misfits_of", "peers_of", "tile_rung_of"]

TILES = {  # name: (kernels by direction, tile)
    "gemm": (GEMM, cuda_gemm.TILE),
    "vector_128x16": ({adjoint: VECTOR[128, 16, adjoint] for adjoint in (False, True)}, (128, 16)),
    "vector": ({adjoint: VECTOR[128, 64, adjoint] for adjoint in (False, True)}, (128, 64)),
}
RUNGS = ("plain", *TILES, "tensor", "split", "direct", "product")
SHARED = 48 << 10  # bytes of shared memory that every block may have
CHUNK = 8  # elements of 16 bits in one asynchronous copy
FAR = 1 << 30  # places that kernels reckon with, from which on they might not be 32-bit


def _tiles_misfit(work, columns):
    """What any rung of tiles wants and does not get."""
    parts = work.classes * work.groups
    if parts * work.slices > MOST or work.makes > MOST * columns or work.reach >= FAR or max(work.taps) > MOST_TAPS:
        return f"at most {MOST_TAPS} x {MOST_TAPS} taps, {MOST} groups, and padding and strides that are not huge"
    return None


def _loads_misfit(work, many, at_multiple):
    """What a rung wants and does not get that loads so many channels at once."""
    if at_multiple and work.reads % many == 0 and (work.adjoint or work.makes % many == 0):
        return None
    where = " that a group reads" if work.adjoint else " in a group"
    return f"addresses that are multiples of {ALIGNMENT}, and multiples of {many} channels{where}"


def misfits_of(work, kind, at_multiple):
    """What each rung wants and does not get, in words; None where it fits."""
    fours = _loads_misfit(work, QUAD, at_multiple)
    wanted = {"plain": None}
    for name, (_, (_, columns)) in TILES.items():
        wanted[name] = _tiles_misfit(work, columns) or (None if name == "gemm" else fours)
    wanted["tensor"] = "float16, bfloat16, or float32 in the mode tf32"
    if kind in CORES:
        loads = fours if kind == "tf32" else _loads_misfit(work, CHUNK, at_multiple)
        wanted["tensor"] = _tiles_misfit(work, TILE_ON_CORES[1]) or loads
    wanted["split"] = None if work.slices > 1 else f"long sums for few results, got {work.steps} terms"
    wanted["direct"] = None
    filters = work.steps * cuda_direct.width_of(work.makes) * 4
    if work.adjoint or work.source[2] > 1 or filters > SHARED:
        wanted["direct"] = "the forward direction, images of one channel, small filters"
    wanted["product"] = None if work.matrices else "filters of one pixel, stride 1, no padding and one group"
    if kind not in ("float32", "tf32"):
        keep = ("split", "tensor") if kind in CORES else ("plain",)
        wanted |= {name: "float32" for name in RUNGS if name not in keep}
    return wanted


def best_of(work, kind, misfits):
    """The name of the rung that suits the shape, of those that fit."""
    names = [name for name in ("product", "direct") if misfits[name] is None]
    tile = tile_rung_of(work, kind, misfits)
    if names and tile != "tensor":
        return names[0]
    return "split" if misfits["split"] is None and tile != "plain" else tile


def tile_rung_of(work, kind, misfits):
    if kind in CORES and misfits["tensor"] is None:
        return "tensor"
    if work.makes <= FEW:
        return "plain"
    wanted = ("vector_128x16" if tile_of(work.makes) == (128, 16) else "vector"), "gemm"
    return next((name for name in wanted if misfits[name] is None), "plain")


@lru_cache(maxsize=1024)
def fits(direction, x_shape, w_shape, stride, padding, dilation, groups):
    """Whether a direction has a kernel for elements of 16 bits, at addresses that suit it: for multiples of 8 channels
    in a group, and strides that are not huge. Others are widened to float32 by the launcher.
    """
    settings = stride, padding, dilation, groups
    if direction == "weight_grad":
        return groups <= MOST and w_shape[1] % CHUNK == (w_shape[0] // groups) % CHUNK == 0
    out_size = output_shape(x_shape, w_shape, None, *settings)[2:]
    return (
        misfits_of(work_of(direction, x_shape, w_shape, out_size, *settings, "float16"), "float16", True)["tensor"]
        is None
    )


def peers_of(work, kind, misfits):
    """The rungs that give the bits of the best one: each sum is one sum, in the order of the steps."""
    if best_of(work, kind, misfits) not in TILES:
        return []
    return [name for name in TILES if misfits[name] is None]
