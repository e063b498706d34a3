"""The switch of Winograd's way, in a file of its own: it can be set before anything is compiled."""

from ..errors import ShapeError
from ..toolchain.modes import Mode

_modes = Mode("winograd", True)
mode = _modes.get


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
