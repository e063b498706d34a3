"""Images for the loader on CUDA: which rung runs, and how it is started.

Rungs: plain, one thread a number; vector, one thread four numbers in one 128-bit store (both in cuda_kernels.py).
"""

from ..errors import ShapeError
from ..toolchain.cuda.memory import VECTOR, address, aligned
from ..toolchain.cuda.rungs import choose
from . import cuda_kernels

__all__ = ["gather_normalize", "pad_crop_normalize"]

LIMIT = 1 << 31  # numbers of a batch: places are 32-bit inside kernels, but for those of images in the data set
THREADS = 256


def _rung(op, rung, out, fits):
    n, height, width, channels = out.shape
    if out.size >= LIMIT:
        wanted = f"wants less than {LIMIT} numbers; split the batch"
        raise ShapeError(f"{op}: out has shape {(n, channels, height, width)}, {wanted}")
    fits = fits and height * width * channels % 4 == 0 and aligned(out)
    wish = (
        "images of a multiple of 4 bytes, that begin at a multiple of 4, "
        f"and an address of out that is a multiple of {VECTOR}"
    )
    return choose(op, rung, {"plain": None, "vector": None if fits else wish})


def gather_normalize(images, indices, scale, shift, out, rung=None):
    rung = _rung("gather_normalize", rung, out, address(images) % 4 == 0)
    if out.size:
        kernel, share = (cuda_kernels.gather_plain, 1) if rung == "plain" else (cuda_kernels.gather_vector, 4)
        count, image = out.size // share, out.size // len(out) // share
        arguments = images, indices, scale, shift, out, count, image, scale.size
        kernel((-(-count // THREADS),), (THREADS,), arguments)


def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out, rung=None):
    rung = _rung("pad_crop_normalize", rung, out, True)
    if out.size:
        kernel, share = (cuda_kernels.cut_plain, 1) if rung == "plain" else (cuda_kernels.cut_vector, 4)
        arrays = images, indices, offsets, flips, scale, shift, out
        kernel(
            (-(-out.size // (share * THREADS)),), (THREADS,), (*arrays, out.size, *out.shape[1:], padding, int(edge))
        )
