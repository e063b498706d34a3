"""The errors of minigrad; see minigrad_kernels.errors."""

from minigrad_kernels.errors import (
    KindError,
    MinigradError,
    MissingError,
    OutOfMemory,
    ShapeError,
    StateError,
    SubscriptError,
)

__all__ = ["KindError", "MinigradError", "MissingError", "OutOfMemory", "ShapeError", "StateError", "SubscriptError"]
