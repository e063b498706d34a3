"""The switch of Winograd's way, in a file of its own: it can be set before anything is compiled."""

import contextlib
import contextvars

from ..errors import ShapeError

__all__ = ["mode", "winograd"]

_modes = contextvars.ContextVar("winograd", default=True)
mode = _modes.get


@contextlib.contextmanager
def winograd(mode=True):
    """Whether convolutions on the CPU may go by Winograd's F(4x4,3x3). On by default. A with block or a decorator.

    True    3x3 filters with stride, dilation and groups of 1 do in float32, where shapes promise a gain
    False   none do: all are direct, with rounding errors about ten times as small
    "always"    all that can do, whether it pays or not
    Errors  ValueError for another mode
    """
    if mode not in (True, False, "always"):
        raise ShapeError(f"winograd: mode is {mode!r}, wants True, False or 'always'")
    token = _modes.set(mode)
    try:
        yield
    finally:
        _modes.reset(token)
