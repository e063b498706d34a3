"""The switch of Winograd's way, in a file of its own: it can be set before anything is compiled."""

from ..errors import ShapeError
from ..toolchain.modes import Mode
from ..toolchain.tf32_mode import mode as tf32

__all__ = ["asked", "mode", "winograd"]

_modes = Mode("winograd", True)
asked = _modes.get  # what mode() follows from, beside tf32


def mode():
    """The mode of now; in the mode tf32 there is no Winograd, which would round sums of rounded numbers again."""
    return not tf32() and asked()


def winograd(mode=True):
    """Whether convolutions on the CPU may go by Winograd's way. On by default. A with block or a decorator.

    True    those in float32 without dilation and groups do, where shapes promise a gain
    False   none do: all are direct, with rounding errors about ten times as small
    "always"    all that can do, whether it pays or not
    Errors  ValueError for another mode
    """
    if not isinstance(mode, bool) and not (isinstance(mode, str) and mode == "always"):
        raise ShapeError(f"winograd: mode is {mode!r}, wants True, False or 'always'")
    return _modes.setting(mode)
