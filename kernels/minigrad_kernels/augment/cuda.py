"""Images for the loader on CUDA: one thread a number (cuda_kernels.py)."""

from ..errors import ShapeError
from . import cuda_kernels

__all__ = ["gather_normalize", "pad_crop_normalize"]

LIMIT = 1 << 31  # numbers of a batch
THREADS = 256


def _start(op, kernel, out, arguments):
    """Start a kernel with a thread for each number of out."""
    if out.size >= LIMIT:
        n, height, width, channels = out.shape
        wanted = f"wants less than {LIMIT} numbers; split the batch"
        raise ShapeError(f"{op}: out has shape {(n, channels, height, width)}, {wanted}")
    if out.size:
        kernel((-(-out.size // THREADS),), (THREADS,), arguments)


def gather_normalize(images, indices, scale, shift, out):
    _start("gather_normalize", cuda_kernels.gather, out, (images, indices, scale, shift, out))


def pad_crop_normalize(images, indices, offsets, flips, padding, edge, scale, shift, out):
    arrays = images, indices, offsets, flips, scale, shift, out
    _start("pad_crop_normalize", cuda_kernels.cut, out, (*arrays, padding, edge))
