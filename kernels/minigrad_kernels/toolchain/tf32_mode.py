"""The switch of TF32, in a file of its own: it can be set before anything is compiled."""

import numpy as np

from ..errors import KindError
from .modes import Mode

__all__ = ["mode", "round_to_tf32", "tf32"]

HALF, KEPT = np.uint32(0x1000), np.uint32(0xFFFFE000)  # of the last bit that is kept; 10 bits of mantissa are

_modes = Mode("tf32", False)
mode = _modes.get


def tf32(mode=True):
    """Whether products and convolutions of float32 round their operands to TF32. Off by default. A with block or a
    decorator.

    TF32 has the range of float32 and 10 bits of mantissa: the relative error of an operand is at most 2**-11. Products
    are exact, and their sums stay float32. On GPUs from compute capability 8.0 on, this is what tensor cores take. On
    the CPU the operands are rounded likewise, which makes nothing faster, but shows the accuracy.

    Errors  TypeError for a mode that is not True or False
    Source  PTX ISA: cvt.rna.tf32.f32
    """
    if not isinstance(mode, bool):
        raise KindError(f"tf32: mode is {mode!r}, wants True or False")
    return _modes.setting(mode)


def round_to_tf32(x, out):
    """The numbers of TF32 nearest to those of x, ties away from zero, as float32. NaN stays NaN.

    Shapes  x and out alike; they may be one array
    """
    bits = x.view(np.uint32)
    whole = x == x
    np.copyto(out, x)
    np.bitwise_and(bits + HALF, KEPT, out=out.view(np.uint32), where=whole)
