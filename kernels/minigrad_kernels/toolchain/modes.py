"""Modes: values that hold inside a with block; they can be set before anything is compiled."""

import contextlib
import contextvars
from typing import Any

from ..errors import KindError, ShapeError


class Mode:
    """A value of a thread, or an asynchronous task: others are not disturbed.

    get()           the value of now
    variable        for those who set it and set it back by themselves
    """

    def __init__(self, name, default):
        self.variable = contextvars.ContextVar(name, default=default)
        self.get = self.variable.get
        self._outside: contextvars.ContextVar[tuple] = contextvars.ContextVar(f"{name}, outside", default=())

    def setting(self, value):
        """A with block in which the mode has this value, or a decorator."""
        return Block(self, value)

    def enter(self, value):
        """Have the mode this value, until leave()."""
        self._outside.set((self.get(), self._outside.get()))
        self.variable.set(value)

    def leave(self):
        """Go back to the value before the last enter() that was not left yet."""
        before, outside = self._outside.get()
        self._outside.set(outside)
        self.variable.set(before)


class Block(contextlib.ContextDecorator):
    """A with block that may be entered again, inside itself and in several threads too: it keeps nothing of its own."""

    def __init__(self, mode, value):
        self.mode, self.value = mode, value

    def __enter__(self):
        self.mode.enter(self.value)

    def __exit__(self, *error):
        self.mode.leave()


# ---- TF32 --------------------------------------------------------------------------------------------------------

_tf32 = Mode("tf32", False)
tf32_mode = _tf32.get


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
    return _tf32.setting(mode)


# ---- Winograd's way ----------------------------------------------------------------------------------------------

_winograd = Mode("winograd", True)
winograd_mode = _winograd.get


def winograd(mode=True):
    """Whether convolutions on the CPU may go by Winograd's way. On by default. A with block or a decorator.

    True    those in float32 without dilation and groups do, where shapes promise a gain
    False   none do: all are direct, with rounding errors about ten times as small
    "always"    all that can do, whether it pays or not
    Errors  ValueError for another mode
    """
    if not isinstance(mode, bool) and not (isinstance(mode, str) and mode == "always"):
        raise ShapeError(f"winograd: mode is {mode!r}, wants True, False or 'always'")
    return _winograd.setting(mode)


# ---- capture -----------------------------------------------------------------------------------------------------

# What this thread starts on a GPU may become part of a graph: then somebody records it.
#
#     hold        (values) -> that the arrays of the device among them stay as long as the graph
#     keep        (anything) -> likewise
#     upload      a NumPy array -> an equal one on the device, there at once and for as long as the graph
#     write       (an array of the device, NumPy's numbers): they are there when the graph is first launched
#     note        (again, undo, check, after): what the host does besides. `again` does it once more before each replay,
#                 `undo` takes it back where the capture fails, `check` says before a replay whether the graph still
#                 holds, `after` is called with the graph after each launch, the first one included
#
# Numbers that change from step to step lie on the device at one address. Who owns such an array notes how the host
# renews it; see optimizer/cuda.py.
capturing: contextvars.ContextVar[Any] = contextvars.ContextVar("capturing", default=None)
