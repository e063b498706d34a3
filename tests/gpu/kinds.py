"""The types in which products and convolutions are measured, and PyTorch's side of them. Both sums are float32."""

from typing import NamedTuple

import cupy
import ml_dtypes
import numpy as np

from minigrad_kernels.toolchain.modes import tf32

from .timing import random

__all__ = ["KINDS", "Kind", "at", "in_torch", "set_torch"]


class Kind(NamedTuple):
    """A type; digits: bits of mantissa of the operands' products or of the result, whichever are fewer."""

    name: str
    dtype: np.dtype
    digits: int

    @property
    def worst(self):
        """The most that a right result may be off, in the norm or of the largest element."""
        return 2.0**-self.digits * (1 if self.digits < 20 else 256)  # of float32 the sums round, too

    def random(self, *shape):
        """Normal numbers of this type on the device."""
        return random(*shape).astype(self.dtype)

    def mode(self):
        """A context in which float32 is computed as this type says."""
        return tf32(self.name == "tf32")


KINDS = {
    "float32": Kind("float32", np.dtype(np.float32), 23),
    "tf32": Kind("tf32", np.dtype(np.float32), 9),  # both operands are rounded to 10 bits
    "float16": Kind("float16", np.dtype(np.float16), 9),
    "bfloat16": Kind("bfloat16", np.dtype(ml_dtypes.bfloat16), 6),
}


def set_torch(kind):
    """Have PyTorch compute as the Kind says, with sums in float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind.name == "tf32"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True


def in_torch(array):
    """An array of CuPy as a Tensor of PyTorch on the same memory. Both work on the default stream."""
    import torch

    if array.dtype.name != "bfloat16":
        return torch.from_dlpack(array)
    return torch.from_dlpack(array.view(cupy.uint16).view(cupy.int16)).view(torch.bfloat16)


def at(row, milliseconds, spread, work, base, peer):
    """The row of a contender: its time, its speed for `work` multiplications, and beside the peer that took `base`."""
    row = row | {"ms": round(milliseconds, 5), "spread": round(spread, 3)}
    return row | {"tflops": round(2e-9 * work / milliseconds, 2), f"of_{peer}": round(base / milliseconds, 3)}
