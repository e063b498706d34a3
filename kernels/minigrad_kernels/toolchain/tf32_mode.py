"""The switch of TF32, in a file of its own: it can be set before anything is compiled."""

from ..errors import KindError
from .modes import Mode

__all__ = ["mode", "tf32"]

_modes = Mode("tf32", False)
mode = _modes.get


def tf32(mode=True):
    """Whether products and convolutions of float32 on a GPU round their operands to TF32. Off by default. A with block
    or a decorator.

    TF32 has the range of float32 and 10 bits of mantissa: the relative error of an operand is at most 2**-11. Products
    are exact, and their sums stay float32. This is what tensor cores take, from compute capability 8.0 on. On the CPU
    the mode changes nothing, as PyTorch's allow_tf32.

    Errors  TypeError for a mode that is not True or False
    Source  PTX ISA: cvt.rna.tf32.f32
    """
    if not isinstance(mode, bool):
        raise KindError(f"tf32: mode is {mode!r}, wants True or False")
    return _modes.setting(mode)
